"""The contract of Admin: the clock, what an operator is told, and what a kind of store may not offer, over every store."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Subject
from viewkeeper.errors import NotOffered, PipelineRunning
from viewkeeper.stores.open import open_store


def test_the_clock_does_not_go_back_and_is_the_same_for_all(subject: Subject) -> None:
    other = open_store(subject.store.url)
    stamps = [store.now() for _ in range(5) for store in (subject.store, other)]
    other.close()

    assert stamps == sorted(stamps)


def test_a_new_store_has_nothing_to_report(subject: Subject) -> None:
    facts = subject.store.facts()

    assert (facts.log_entries, facts.changed_outside_log) == (0, {})
    assert facts.bytes_used >= 0
    assert [node.rows for node in facts.nodes] == [0] * len(facts.nodes)


def test_what_a_check_found_may_be_noted_at_any_time(subject: Subject) -> None:
    subject.store.note_as_logged([1, 2], subject.store.now())
    subject.store.distrust([1, 2])

    assert subject.store.facts().changed_outside_log == {}


def test_a_store_is_compacted_alone_or_says_that_it_is_not(subject: Subject) -> None:
    try:
        with subject.store.alone() as compact:
            compact(None)
    except NotOffered as error:
        assert error.hint
    else:
        with subject.store.alone(), pytest.raises(PipelineRunning):
            subject.store.claim(take_over=False)
    subject.store.claim(take_over=False).release()


def test_nodes_come_and_go_or_the_store_says_what_else_to_use(subject: Subject) -> None:
    before = len(subject.store.facts().nodes)
    try:
        added = subject.store.add_node()
    except NotOffered as error:
        assert error.hint and before == 0
        with pytest.raises(NotOffered):
            subject.store.remove_node(0)
        return
    assert len(subject.store.facts().nodes) == before + 1
    assert subject.store.remove_node(added.node).node == added.node


def test_it_is_the_store_at_its_url(subject: Subject) -> None:
    assert subject.store.is_current()
