"""The contract of Meta: epoch record, catalog, plans, notes, and the right to run the pipeline, over every store."""

from __future__ import annotations

import os
import threading

import pytest

from tests.contract.conftest import Subject
from viewkeeper.errors import CorruptStore, Fenced, InputError, PipelineRunning
from viewkeeper.model import epochs
from viewkeeper.model.positions import Cut
from viewkeeper.ports.meta import change_epoch_record, live_holder
from viewkeeper.stores.open import open_store


def test_a_url_opens_the_same_store_again(subject: Subject) -> None:
    subject.store.swap_catalog(0, {"version": 3})
    other = open_store(subject.store.url)

    assert other.incarnation == subject.store.incarnation
    assert other.partitions == subject.store.partitions
    assert other.read_epoch_record() == subject.store.read_epoch_record()
    assert other.read_catalog() == {"version": 3}
    other.close()


def test_of_two_who_swap_the_epoch_record_at_once_one_succeeds(subject: Subject) -> None:
    """R5."""
    won: list[str] = []
    for _ in range(10):
        record, start = subject.store.read_epoch_record(), threading.Barrier(3)
        attempts: list[tuple[str, bool]] = []

        def take(name: str, record: object = record, start: object = start, attempts: list = attempts) -> None:
            start.wait()
            taken = subject.store.swap_epoch_record(record.version, epochs.take_over(record, name))
            attempts.append((name, taken))

        threads = [threading.Thread(target=take, args=(f"driver {number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [name for name, taken in attempts if taken]
        assert len(winners) == 1
        assert subject.store.read_epoch_record().owner == winners[0]
        assert subject.store.read_epoch_record().version == record.version + 1
        won += winners

    assert len(won) == 10


def test_the_catalog_is_swapped_by_its_version(subject: Subject) -> None:
    assert subject.store.read_catalog() == {}
    assert subject.store.swap_catalog(0, {"version": 1, "note": "é"})
    assert not subject.store.swap_catalog(0, {"version": 1, "note": "other"})
    assert subject.store.read_catalog() == {"version": 1, "note": "é"}
    assert subject.store.swap_catalog(1, {"version": 2})


def test_a_plan_is_kept_for_the_epoch_in_flight(subject: Subject) -> None:
    store = subject.store
    store.keep_json("plan", "first", {"nodes": [1]})
    store.keep_json("plan", "first", {"nodes": [1]})
    assert store.read_json("plan", "first") == {"nodes": [1]}
    record = epochs.take_over(store.read_epoch_record(), "me")
    assert store.swap_epoch_record(record.version - 1, record)
    begun = epochs.begin(record, "me", Cut({}, 1, 0), "first")
    assert store.swap_epoch_record(record.version, begun)
    store.keep_json("plan", "second", {"nodes": [2]})  # by one who does not know of the epoch
    assert store.read_json("plan", "first") == {"nodes": [1]}
    with pytest.raises(CorruptStore, match="the store lacks plan third of the epoch"):
        store.read_json("plan", "third")


def test_a_plan_outlives_that_of_another_pipeline_between_two_epochs(subject: Subject) -> None:
    """Who begins an epoch with the plan of the one before does not keep it again."""
    store = subject.store
    store.keep_json("plan", "ours", {"nodes": [1]})
    record = epochs.take_over(store.read_epoch_record(), "me")
    assert store.swap_epoch_record(record.version - 1, record)
    for epoch in (1, 2):
        begun = epochs.begin(record, "me", Cut({}, 1, 0), "ours")
        assert store.swap_epoch_record(record.version, begun)
        assert store.read_json("plan", "ours") == {"nodes": [1]}
        record = epochs.commit(begun, "me", epoch, {}, frozenset())
        assert store.swap_epoch_record(begun.version, record)
        store.keep_json("plan", "theirs", {"nodes": [2]})  # by one that was superseded while it kept its plan


def test_what_epochs_measured_is_kept_until_it_is_replaced(subject: Subject) -> None:
    assert subject.store.read_json("note", "measured") == {}
    subject.store.keep_json("note", "measured", {"epochs": 1})
    subject.store.keep_json("note", "other", {"n": 1})
    subject.store.keep_json("note", "measured", {"epochs": 2, "seen": {"7": 3}})

    assert subject.store.read_json("note", "measured") == {"epochs": 2, "seen": {"7": 3}}


def test_the_frontier_follows_record_and_catalog(subject: Subject) -> None:
    store = subject.store
    assert store.read_frontier().catalog_version == 0
    assert store.swap_catalog(0, {"version": 7})
    changed = change_epoch_record(store, lambda record: epochs.pin(record, "reader", 0, 5))

    assert store.read_frontier().catalog_version == 7
    assert store.read_epoch_record() == changed and changed.pins == {"reader": (0, 5)}


def test_a_catalog_that_was_read_can_be_changed_without_harm(subject: Subject) -> None:
    subject.store.swap_catalog(0, {"version": 1, "tables": []})
    subject.store.read_catalog()["tables"].append("mine")

    assert subject.store.read_catalog() == {"version": 1, "tables": []}


def test_beats_of_a_claim_are_seen_and_end_with_it(subject: Subject) -> None:
    other = open_store(subject.store.url)
    first = subject.store.claim(take_over=False)
    seen = other.holder()
    first.beat()
    assert seen.pid == other.holder().pid == os.getpid() and seen.beat != other.holder().beat
    with pytest.raises(PipelineRunning):  # it has moved
        other.claim(take_over=True, instead_of=seen)
    second = other.claim(take_over=True, instead_of=other.holder())
    with pytest.raises(Fenced):
        first.beat()
    first.release()
    second.beat()
    second.release()
    other.close()


def test_record_and_catalog_may_be_swapped_at_once(subject: Subject) -> None:
    """Each succeeds, and the read frontier is that of both."""
    store, count = subject.store, 10

    def swap_catalogs() -> None:
        for version in range(count):
            assert store.swap_catalog(version, {"version": version + 1})

    swapper = threading.Thread(target=swap_catalogs)
    swapper.start()
    for number in range(count):
        change_epoch_record(store, lambda record, number=number: epochs.pin(record, f"reader {number}", 0, 5))
    swapper.join()

    assert len(store.read_epoch_record().pins) == store.read_frontier().catalog_version == count


def test_one_pipeline_at_a_time_has_the_claim(subject: Subject) -> None:
    other = open_store(subject.store.url)
    assert live_holder(other) is None
    first = subject.store.claim(take_over=False)
    with pytest.raises(PipelineRunning, match=f"pid {os.getpid()}"):
        other.claim(take_over=False)
    second = other.claim(take_over=True)
    first.release()

    assert live_holder(other).pid == os.getpid()  # the one who was taken over has nothing to give back
    second.release()
    assert not second.is_held and live_holder(other) is None
    other.close()
    subject.store.claim(take_over=False).release()


def test_a_store_that_is_closed_says_so(subject: Subject) -> None:
    subject.store.close()
    subject.store.close()

    with pytest.raises(InputError, match="closed"):
        subject.store.read_epoch_record()
