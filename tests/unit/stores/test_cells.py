"""Cells and the network to them: what a late put can and cannot do, when tombstones go, and what a seed fixes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import viewkeeper as vk
from tests.contract.conftest import Subject
from tests.contract.steps import VIEW, apply, at
from viewkeeper.stores.memory.simulated_cells import LATE_TICKS, PUT_TICKS, HostileNetwork, Put
from viewkeeper.stores.open import open_store
from viewkeeper.stores.version_chains import versions_of

QUERY = "SELECT x, COUNT(*) AS n, MIN(y) AS lo FROM t GROUP BY x"


@pytest.fixture
def subject() -> Subject:
    return Subject(open_store("memory:?cells=on"))


def cells_of(subject: Subject, key: bytes) -> list[tuple[int, bytes | None]]:
    return list(versions_of(subject.store._contents.cells[0].pairs(VIEW).get(key) or b""))


def let_time_pass(subject: Subject, ticks: int) -> None:
    for _ in range(ticks):
        subject.store.read_epoch_record()


def test_a_put_that_lands_late_takes_its_place_among_the_cells(subject: Subject) -> None:
    for epoch, row in ((1, b"1"), (3, b"3"), (4, None)):
        subject.begin(at(epoch))
        apply(subject, at(epoch), {b"a": row})
    partition = subject.store._contents.cells[0]
    for _ in range(2):
        partition.put([Put(VIEW, b"a", 2, b"2", indexed=False), Put(VIEW, b"a", 1, b"1", indexed=False)])

    assert cells_of(subject, b"a") == [(4, None), (3, b"3"), (2, b"2"), (1, b"1")]


def test_a_tombstone_stays_until_no_put_can_be_under_way(subject: Subject) -> None:
    """V3: T + R after a later epoch began, whatever the floor."""
    for epoch, row in ((1, b"1"), (2, None), (3, b"3")):
        subject.begin(at(epoch, floor=max(0, epoch - 1)))
        apply(subject, at(epoch, floor=max(0, epoch - 1)), {b"a": row, b"b": row} if epoch < 3 else {b"b": row})
        subject.end(aborted=())
    assert (cells_of(subject, b"a"), cells_of(subject, b"b")) == ([(2, None)], [(3, b"3"), (2, None)])
    let_time_pass(subject, PUT_TICKS + LATE_TICKS)
    record = subject.store.read_epoch_record()

    assert subject.store.purge(record, records_max=10) == 2
    assert (cells_of(subject, b"a"), cells_of(subject, b"b")) == ([], [(3, b"3")])


def test_a_put_is_issued_within_its_deadline_and_lands_soon_after() -> None:
    """Less than T + R after its VALIDATE; one that is acknowledged has landed."""
    network, validated = HostileNetwork(5), 0
    landed: list[tuple[int, int, int]] = []

    def validate() -> int:
        nonlocal validated
        if network.now >= validated + PUT_TICKS:
            validated = network.now
        return validated

    def landing(number: int) -> Callable[[], None]:
        return lambda: landed.append((number, network.now, validated))

    sent = {}
    for number in range(2_000):
        try:
            network.put(landing(number), validate)
            assert any(number == known for known, _, _ in landed[-3:])
        except vk.StoreUnavailable:
            network.counts["given up"] += 1
        sent[number] = validated
    delays = [now - sent[number] for number, now, _ in landed if number in sent]

    assert PUT_TICKS + LATE_TICKS // 2 < max(delays)
    assert max(delays) < PUT_TICKS + LATE_TICKS + PUT_TICKS // 2  # the last leap of time lands more than one
    assert all(network.counts[fate] for fate in ("lost", "late", "twice"))


def test_a_swap_that_is_under_way_when_its_sender_closes_is_no_trouble_to_others() -> None:
    for seed in range(200):
        with vk.connect(f"memory:?cells=on&seed={seed}") as other:
            sender = open_store(other.url)
            try:
                sender.swap_catalog(0, {"version": 1})
            except vk.StoreUnavailable:
                sender.close()
                for _ in range(LATE_TICKS):
                    other.store.read_epoch_record()


def counts_of(seed: int) -> dict[str, int]:
    network = HostileNetwork(seed)
    for _ in range(100):
        network.cast(lambda: None)
    return dict(network.counts)


def test_a_seed_fixes_what_befalls_requests() -> None:
    assert counts_of(1) == counts_of(1) != counts_of(2)


@pytest.mark.parametrize("options", ["cells=on", "cells=on&seed=11"])
def test_a_pipeline_in_the_background_outlives_a_store_that_does_not_answer(options: str) -> None:
    with vk.connect(f"memory:?{options}") as db:
        statements = ["CREATE TABLE t (k INT PRIMARY KEY, x STRING, y INT)", f"CREATE MATERIALIZED VIEW v AS {QUERY}"]
        while statements:
            try:
                db.execute(statements[0])
            except vk.StoreUnavailable:
                continue
            statements.pop(0)
        with db.pipeline() as pipeline:
            pipeline.start()
            for number in range(40):
                token = db.table("t").put(number % 7, {"x": "ab"[number % 2], "y": number})
            pipeline.wait_for(token, timeout=60)
        last = {number % 7: number for number in range(40)}
        groups = {x: [n for n in last.values() if "ab"[n % 2] == x] for x in "ab"}

        assert list(db.view("v").scan()) == [{"x": x, "n": len(ys), "lo": min(ys)} for x, ys in groups.items()]


@pytest.mark.parametrize(
    ("url", "fact"),
    [
        ("memory:s?seed=1", "a seed is for a store of cells"),
        ("memory:s?cells=on&seed=one", "seed=one is not a seed"),
        (f"memory:s?cells=on&seed={'9' * 19}", f"seed={'9' * 19} is not a seed"),
        ("memory:s?cells=yes", "use cells=on or cells=off"),
    ],
)
def test_options_that_say_nothing_are_refused(url: str, fact: str) -> None:
    with pytest.raises(vk.InputError, match=fact):
        vk.connect(url)


def test_what_a_store_of_cells_was_made_with_cannot_be_asked_for_otherwise() -> None:
    with vk.connect("memory:s?cells=on&seed=3"), vk.connect("memory:s") as again:
        assert (again.store.layout.cells, again.store.layout.seed) == (True, 3)
        with pytest.raises(vk.InputError, match="made with cells=on, not off"):
            vk.connect("memory:s?cells=off")
        with pytest.raises(vk.InputError, match="made with seed=3, not 4"):
            vk.connect("memory:s?cells=on&seed=4")


def test_a_seed_of_18_digits_is_kept_whole() -> None:
    with vk.connect(f"memory:?cells=on&seed={'9' * 18}") as db:
        assert db.store.layout.seed == 10**18 - 1
