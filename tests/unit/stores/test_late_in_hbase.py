"""Requests whose reply got lost and that HBase does later: they undo nothing that was done since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.simulation.processes import ProcessStore, calm_process
from viewkeeper.errors import CorruptStore, PipelineRunning, StoreUnavailable
from viewkeeper.stores.hbase.client import Connections
from viewkeeper.stores.hbase.store_tables import MetaTable
from viewkeeper.stores.hbase.wal.wal_log import LogState

OLD_SECONDS = 3_700  # a plan stays for an hour
PLANS = {"a": {"nodes": ["a"]}, "b": {"nodes": ["b"]}}


@pytest.fixture
def store() -> Iterator[ProcessStore]:
    with calm_process() as store:
        yield store


def test_a_look_at_the_log_that_is_noted_late_does_not_hide_a_later_one(
    store: ProcessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, sent, send = LogState(store._rows), list[tuple[Any, ...]](), Connections._ask_once
    state.look(1)
    with monkeypatch.context() as patch:
        patch.setattr(Connections, "_ask_once", lambda self, requests: (sent.extend(requests), send(self, requests))[1])
        state.look(2)
    state.look(3)
    for request in sent:
        send(store._site.connections, [request])
    assert state.looked() == 3


def test_a_plan_that_is_kept_again_outlives_what_emptied_it_before(
    store: ProcessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[Any, ...]] = []
    send = Connections._ask_once
    store.keep_json("plan", "a", PLANS["a"])
    store.hbase.pass_time(2 * OLD_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(Connections, "_ask_once", lambda self, requests: (sent.extend(requests), send(self, requests))[1])
        store.keep_json("plan", "b", PLANS["b"])
    assert store._rows.read(b"plan/a").get("plan") == b""
    store.keep_json("plan", "a", PLANS["a"])
    for request in sent:
        send(store._site.connections, [request])
    assert store.read_json("plan", "a") == PLANS["a"]


def test_a_claim_that_is_put_late_keeps_nobody_away(store: ProcessStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put = MetaTable.swap
    held: list[tuple[Any, ...]] = []

    def lost(*asked: Any) -> bool:
        held.append(asked)
        raise StoreUnavailable("no reply")

    with monkeypatch.context() as patch, pytest.raises(PipelineRunning):
        patch.setattr(MetaTable, "swap", lost)
        store.claim(take_over=False)
    assert put(*held[0])
    assert not store.holder().is_live
    claim = store.claim(take_over=False)
    assert store.holder().is_live
    with monkeypatch.context() as patch:
        patch.setattr(MetaTable, "swap", lost)
        claim.release()
    store.claim(take_over=False).release()


def test_a_plan_stays_that_another_pipeline_is_about_to_use(store: ProcessStore) -> None:
    store.keep_json("plan", "a", PLANS["a"])
    store.hbase.pass_time(OLD_SECONDS / 2)
    store.keep_json("plan", "b", PLANS["b"])
    assert (store.read_json("plan", "a"), store.read_json("plan", "b")) == (PLANS["a"], PLANS["b"])
    store.hbase.pass_time(OLD_SECONDS)
    store.keep_json("plan", "b", PLANS["b"])
    with pytest.raises(CorruptStore, match="the store lacks plan a of the epoch"):
        store.read_json("plan", "a")
