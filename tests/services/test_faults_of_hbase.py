"""A store in HBase under faults: replies that get lost, requests that arrive late, a Thrift server that is killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.contract.conftest import Subject
from tests.contract.steps import VIEW, apply, at, rows_of
from tests.support.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.hbase_stores import new_store
from tests.support.services.configuration import ADDRESS
from tests.support.services.hbase import Cluster
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.cas import swap_catalog, swap_record
from viewkeeper.errors import Fenced, StoreUnavailable
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.positions import Cut
from viewkeeper.model.read_frontier import ReadTimestamp
from viewkeeper.ports.meta import live_holder
from viewkeeper.ports.records import VersionWrite
from viewkeeper.stores.hbase import records, thrift_cells
from viewkeeper.stores.hbase.store import HBaseStore
from viewkeeper.stores.open import open_store

FAULTS = int(os.environ.get("VIEWKEEPER_FAULTS", "50"))  # how many at least
KEYS = [b"key-%d" % number for number in range(12)]


@pytest.fixture
def calm(hbase: Cluster) -> Iterator[HBaseStore]:
    with new_store(hbase) as store:
        yield store


@pytest.fixture
def proxy(hbase: Cluster) -> Iterator[FaultyProxy]:
    faults = {"seed": 7, "lost": 0.12, "late": 0.06, "late_seconds": 1.0}
    with faulty_proxy(hbase.layout.thrift_ports()[0], **faults) as opened:
        yield opened


@pytest.fixture
def shaky(calm: HBaseStore, proxy: FaultyProxy) -> Iterator[HBaseStore]:
    """The same store by way of the proxy; it believes that requests are gone soon."""
    url = f"hbase://{ADDRESS}:{proxy.port}/{calm._site.address.namespace}?timeout=20&late=1"
    with closing(persist(open_store, url)) as store:
        yield store


def persist(step: Callable[..., Any], *arguments: object) -> Any:
    """As whoever runs a pipeline does: what failed is run again."""
    while True:
        try:
            return step(*arguments)
        except StoreUnavailable:
            pass


def commit_one(store: HBaseStore, number: int, rows: dict[bytes, bytes | None]) -> EpochRecord:
    """An epoch from its begin to its commit, as a coordinator and a task run it; a begin may be done late."""

    def begin(record: EpochRecord) -> EpochRecord:
        return record if record.last == number else epochs.begin(record, "me", Cut({}, number, 0), "plan")

    def commit(record: EpochRecord) -> EpochRecord:
        return record if record.committed == number else epochs.commit(record, "me", number, {}, frozenset())

    epoch = persist(swap_record, store, begin).inflight
    persist(store.admit, epoch)
    persist(apply, Subject(store), epoch, rows)
    return persist(swap_record, store, commit)


def test_lost_replies_and_late_requests_change_no_state(
    calm: HBaseStore, proxy: FaultyProxy, shaky: HBaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every readable epoch is as a dict of it would be; tombstones are purged meanwhile."""
    monkeypatch.setattr(records, "PUT_SECONDS", 0.5)
    source, states = random.Random(3), [dict[bytes, bytes]()]
    persist(swap_record, shaky, lambda record: epochs.take_over(record, "me"))
    while proxy.counts.total() < FAULTS or len(states) < 20:
        chosen = source.sample(KEYS, 5)
        rows = {key: source.choice([None, b"%d" % len(states)]) for key in chosen}
        record = commit_one(shaky, len(states), rows)
        assert record.committed == len(states)
        states.append({key: row for key, row in (states[-1] | rows).items() if row is not None})
        persist(lambda record=record: shaky.purge(record, records_max=50))
        for epoch in range(record.floor, record.committed + 1):
            held = calm.hold(ReadTimestamp(epoch, (), calm.read_frontier()), [0])
            assert dict(held.scan([0], VIEW, b"", None)) == states[epoch]

    assert min(proxy.counts["lost"], proxy.counts["late"]) > FAULTS // 8
    assert len({len(state) for state in states}) > 3


def _with_one_more(catalog: Catalog) -> Catalog:
    return replace(catalog, version=catalog.version + 1, next_id=catalog.next_id + 1)


def test_swaps_whose_replies_get_lost_are_each_done_once(
    calm: HBaseStore, proxy: FaultyProxy, shaky: HBaseStore
) -> None:
    count = 30
    for number in range(count):
        persist(swap_catalog, shaky, _with_one_more)
        persist(shaky.keep_json, "note", "n", {"n": number})
    catalog = Catalog.from_json(calm.read_catalog())

    assert proxy.counts.total() > 10
    assert catalog.version == catalog.next_id - 1 >= count  # one that failed and was done all the same is repeated
    assert calm.read_frontier().catalog_version == catalog.version
    assert calm.read_json("note", "n") == {"n": count - 1}


def test_a_thrift_server_that_is_killed_in_the_middle_of_writes_costs_nothing_but_time(
    hbase: Cluster, calm: HBaseStore
) -> None:
    subject, written = Subject(calm), threading.Event()
    keys = [b"%06d" % number for number in range(30_000)]
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for start in range(0, len(keys), 1_000):
                apply(subject, at(1), {key: key for key in keys[start : start + 1_000]})
                written.set()
        except BaseException as error:
            failures.append(error)
            written.set()

    subject.begin(at(1))
    writer = threading.Thread(target=write)
    writer.start()
    written.wait()
    for name in [name for name in hbase.layout.names() if name.startswith("thrift-")]:
        hbase.kill(name)
        hbase.run(name)
    writer.join()
    hbase.wait_until_serving()

    assert failures == []
    assert rows_of(subject, at(2), keys) == keys


def test_a_task_that_goes_on_after_its_epoch_is_fenced_between_two_batches(
    calm: HBaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Puts come no later than T after a VALIDATE."""
    monkeypatch.setattr(records, "PUT_SECONDS", 0.001)
    monkeypatch.setattr(thrift_cells, "BATCH_RECORDS", 10)
    subject, keys = Subject(calm), [b"%05d" % number for number in range(5_000)]
    subject.begin(at(1))
    apply(subject, at(1), {b"first": b"1"})  # the table is made
    outcome: list[object] = []

    def write() -> None:
        try:
            found = calm.read_versions(VIEW, pa.array(keys, pa.binary()), np.zeros(len(keys), int), at(1))
            calm.write_versions([VersionWrite(VIEW, found, np.arange(len(keys)), found.keys)], at(1))
        except Fenced as error:
            outcome.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while calm.get_record(0, VIEW, keys[0], ReadTimestamp(1, (), calm.read_frontier())) is None:
        pass
    subject.begin(at(2))
    writer.join()

    assert [type(error) for error in outcome] == [Fenced]
    there = rows_of(subject, at(2), keys)
    assert there[0] == keys[0] and there[-1] is None


def test_a_server_that_does_not_reply_is_skipped_and_none_at_all_is_told(hbase: Cluster, calm: HBaseStore) -> None:
    port, namespace = hbase.layout.thrift_ports()[0], calm._site.address.namespace
    store = open_store(f"hbase://{ADDRESS}:1,{ADDRESS}:{port},{ADDRESS}:2/{namespace}")
    for _ in range(20):
        assert store.read_epoch_record().version == 0
    store.close()

    with pytest.raises(StoreUnavailable, match=f"no answer from the Thrift server {ADDRESS}:[12]"):
        open_store(f"hbase://{ADDRESS}:1,{ADDRESS}:2/{namespace}?patience=0.3")


def test_a_forked_process_asks_over_connections_of_its_own(calm: HBaseStore) -> None:
    calm.read_epoch_record()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if all(calm.read_epoch_record().version == 0 for _ in range(50)) else 1)
    seen = [calm.read_epoch_record().version for _ in range(50)]

    assert os.waitpid(pid, 0)[1] == 0
    assert set(seen) == {0}


def test_the_claim_of_a_process_that_died_is_free_and_of_many_who_want_it_one_gets_it(calm: HBaseStore) -> None:
    steps = f"open_store({calm.url!r}).claim(take_over=False); os._exit(9)"
    code = f"import os; from viewkeeper.stores.open import open_store; {steps}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    holder = calm.holder()
    assert holder is not None and holder.pid != os.getpid() and holder.host
    assert live_holder(calm) is None

    start, claims = threading.Barrier(6), list[object]()

    def take() -> None:
        start.wait()
        try:
            claims.append(calm.claim(take_over=False))
        except Exception as error:
            claims.append(type(error).__name__)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(map(str, claims)).count("PipelineRunning") == 5
    assert live_holder(calm).pid == os.getpid()
