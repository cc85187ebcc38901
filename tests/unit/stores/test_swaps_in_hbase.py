"""Swaps of epoch record and catalog in HBase: which requests they take, and what readers find after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.small_hbase import SmallHBase
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.cas import StoredState
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.ports.meta import change_epoch_record

SWAP, READ = "checkAndMutate", "get"


@pytest.fixture
def hbase(tmp_path: Path) -> Iterator[SmallHBase]:
    made = SmallHBase(tmp_path)
    with made.replying():
        yield made


@pytest.fixture
def state(hbase: SmallHBase) -> Iterator[StoredState]:
    with vk.connect(hbase.url) as db:
        held = StoredState(db.store)
        held.look()
        yield held


def asked(hbase: SmallHBase, act: Callable[[], object]) -> list[str]:
    """The requests that something takes."""
    found = list[str]()
    hbase.reached = lambda request, table: found.append(request)
    act()
    hbase.reached = lambda request, table: None
    return found


def own(record: EpochRecord) -> EpochRecord:
    return epochs.take_over(record, "me")


def widen(catalog: Catalog) -> Catalog:
    return replace(catalog, version=catalog.version + 1, next_id=catalog.next_id + 1)


def test_a_swap_by_what_is_held_is_one_request(hbase: SmallHBase, state: StoredState) -> None:
    for _ in range(2):
        assert asked(hbase, lambda: state.swap_record(own)) == [SWAP]
        assert asked(hbase, lambda: state.swap_catalog(widen)) == [SWAP]


def test_a_swap_beside_one_of_the_other_value_finds_out_and_is_done(hbase: SmallHBase, state: StoredState) -> None:
    with vk.connect(hbase.url) as other:
        other.change_catalog(widen)
        assert asked(hbase, lambda: state.swap_record(own)) == [SWAP, READ, SWAP]
        assert asked(hbase, lambda: state.swap_record(own)) == [SWAP]
        state.look()
        change_epoch_record(other.store, own)
        assert asked(hbase, lambda: state.swap_catalog(widen)) == [SWAP, READ, READ, SWAP]
        frontier, record = other.store.read_frontier(), other.store.read_epoch_record()
    assert (frontier.catalog_version, record.version) == (state.catalog.version, state.record.version + 1)


def test_a_swap_by_a_stale_value_is_refused_and_made_again(hbase: SmallHBase, state: StoredState) -> None:
    with vk.connect(hbase.url) as other:
        pinned = change_epoch_record(other.store, lambda record: epochs.pin(record, "me", 0, 1 << 62))
        assert not state._store.swap_epoch_record(state.record.version, own(state.record))
        assert asked(hbase, lambda: state.swap_record(own)) == [SWAP, READ, READ, SWAP]
        assert (state.record.pins, state.record.version) == (pinned.pins, pinned.version + 1)
        found = other.change_catalog(widen)
        assert asked(hbase, lambda: state.swap_catalog(widen)) == [SWAP, READ, READ, SWAP]
    assert state.catalog.next_id == found.next_id + 1


def test_what_readers_find_after_a_swap_of_the_catalog_is_of_the_newest_record(
    hbase: SmallHBase, state: StoredState
) -> None:
    before = state.record
    state.swap_record(own)
    with vk.connect(hbase.url) as other:
        stopped = replace(other.store.read_epoch_record(), stopped={7: "why"}, version=before.version + 2)
        assert other.store.swap_epoch_record(before.version + 1, stopped)
        state.swap_catalog(widen)
        assert other.store.read_frontier().stopped == {7}
