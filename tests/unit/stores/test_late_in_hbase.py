"""Requests whose reply got lost and that HBase does later: they undo nothing that was done since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.simulation.processes import Processes, ProcessStore, WatchedHBase
from viewkeeper.errors import CorruptStore
from viewkeeper.stores.hbase.client import Connections

OLD_SECONDS = 3_700  # a plan stays for an hour
PLANS = {"a": {"nodes": ["a"]}, "b": {"nodes": ["b"]}}


@pytest.fixture
def hbase() -> Iterator[WatchedHBase]:
    hbase = WatchedHBase(1)
    with hbase.serving():
        yield hbase


@pytest.fixture
def store(hbase: WatchedHBase) -> Iterator[ProcessStore]:
    processes = Processes(hbase, "nodes=1", 1)
    yield processes.first
    processes.close()


def test_a_plan_that_is_kept_again_outlives_what_emptied_it_before(
    store: ProcessStore, hbase: WatchedHBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[Any, ...]] = []
    send = Connections._ask_once
    store.keep_plan("a", PLANS["a"])
    hbase.pass_time(2 * OLD_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(Connections, "_ask_once", lambda self, requests: (sent.extend(requests), send(self, requests))[1])
        store.keep_plan("b", PLANS["b"])
    assert store._rows.read(b"plan/a").get("plan") == b""
    store.keep_plan("a", PLANS["a"])
    for request in sent:
        send(store._site.connections, [request])
    assert store.read_plan("a") == PLANS["a"]


def test_a_plan_stays_that_another_pipeline_is_about_to_use(store: ProcessStore, hbase: WatchedHBase) -> None:
    store.keep_plan("a", PLANS["a"])
    hbase.pass_time(OLD_SECONDS / 2)
    store.keep_plan("b", PLANS["b"])
    assert (store.read_plan("a"), store.read_plan("b")) == (PLANS["a"], PLANS["b"])
    hbase.pass_time(OLD_SECONDS)
    store.keep_plan("b", PLANS["b"])
    with pytest.raises(CorruptStore, match="is not there"):
        store.read_plan("a")
