"""HBase costs: what does a change cost whom, and what does it cost that nothing happens?

In: sizes. Out: CPU seconds of each kind of process, requests and bytes for a change, in one process and on Spark; an
epoch without work; bytes of HBase's logs looked through in a second; what one stream more costs each look. Always:
counted, not estimated; streams are added as copies of real logs under other names, in a folder of their own.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks import live_run
from benchmarks.hbase_case import Base, Run, base_tables, require_views, run, store_over
from benchmarks.hbase_site import HBase, running
from benchmarks.options import Options
from benchmarks.views import V1
from viewkeeper.model.positions import Position
from viewkeeper.stores.hbase.client import Connections
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, Tail, scan_ahead
from viewkeeper.stores.hbase.wal.wal_files import WalFile, WalFolder
from viewkeeper.stores.hbase.wal.wal_reader import WalReader

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

ON_SPARK = 2
STREAMS = (1, 10, 100)
_IDLE_RUNS = 20
_LOOKS = 20


@dataclass(slots=True)
class Traffic:
    """Requests to Thrift servers, by name, and their bytes."""

    requests: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    received: int = 0


def measure(options: Options) -> dict[str, Any]:
    spark = live_run.session_with(ON_SPARK)
    with running() as hbase, base_tables(hbase, options.hbase_workload()) as base, store_over(base, [V1]) as db:
        run(base, db, base.write(options.hbase_changes // 10), spark, ON_SPARK)
        run(base, db, base.write(options.hbase_changes))
        with _counted() as traffic:
            here = run(base, db, base.write(options.hbase_changes))
        on_spark = run(base, db, base.write(options.hbase_changes), spark, ON_SPARK)
        idle = _idle(base, db)
        require_views(base, db, [V1], "costs")
        scan = _scan(hbase, base.names["r"])
    return {
        "rows": options.hbase_rows,
        "changes": here.changes,
        "seed": options.seed,
        "cpu_us_per_change": {"one process": _per_change(here), f"{ON_SPARK} managers": _per_change(on_spark)},
        "changes_per_second": {
            "one process": here.changes_per_second,
            f"{ON_SPARK} managers": on_spark.changes_per_second,
        },
        "requests": dict(traffic.requests),
        "bytes_sent_per_change": round(traffic.sent / here.changes),
        "bytes_received_per_change": round(traffic.received / here.changes),
        "idle": idle,
        "log_scan": scan,
        "look_ms_by_streams": _looks(hbase),
    }


def _per_change(ran: Run) -> dict[str, float]:
    return {kind: round(seconds / ran.changes * 1e6, 1) for kind, seconds in ran.cpu.items()}


@contextmanager
def _counted() -> Iterator[Traffic]:
    """Count what this process asks of Thrift servers."""
    from thriftpy2.transport import TSocket

    traffic, ask, read, write = Traffic(), Connections._ask_once, TSocket.read, TSocket.write

    def counted_ask(self: Connections, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        traffic.requests.update(name for name, *_ in requests)
        return ask(self, requests)

    def counted_read(self: Any, size: int) -> bytes:
        found = read(self, size)
        traffic.received += len(found)
        return found

    def counted_write(self: Any, data: bytes) -> None:
        traffic.sent += len(data)
        write(self, data)

    with (
        mock.patch.object(Connections, "_ask_once", counted_ask),
        mock.patch.object(TSocket, "read", counted_read),
        mock.patch.object(TSocket, "write", counted_write),
    ):
        yield traffic


def _idle(base: Base, db: Database) -> dict[str, Any]:
    """A call of the pipeline that finds nothing to do."""
    with db.pipeline() as pipeline:
        pipeline.run_available()
        servers, took = base.hbase.cpu_seconds(), []
        own = time.process_time()
        with _counted() as traffic:
            for _ in range(_IDLE_RUNS):
                began = time.perf_counter()
                pipeline.run_available()
                took.append(time.perf_counter() - began)
        own, now = time.process_time() - own, base.hbase.cpu_seconds()
    return {
        "ms": round(median(took) * 1000, 1),
        "requests": round(traffic.requests.total() / _IDLE_RUNS, 1),
        "driver_cpu_ms": round(own / _IDLE_RUNS * 1000, 1),
        **{f"{kind}_cpu_ms": round((now[kind] - servers[kind]) / _IDLE_RUNS * 1000, 1) for kind in now},
    }


def _scan(hbase: HBase, table: str) -> dict[str, float]:
    """All logs looked through from their beginning, for one table."""
    reader = WalReader(WalFolder.at(f"file://{hbase.cluster.layout.root}"), frozenset({table}))
    files = reader.folder.files()
    size, began, cpu = (
        sum(file.size for all_of in files.values() for file in all_of),
        time.perf_counter(),
        time.process_time(),
    )
    entries = 0
    for stream, all_of in files.items():
        entries += _look(reader, Tail(stream, Position(0), Position(0)), all_of).count
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "megabytes": round(size / 1e6, 1),
        "entries_of_the_table": entries,
        "megabytes_per_second": round(size / 1e6 / seconds, 1),
        "cpu_seconds_per_megabyte": round(cpu / (size / 1e6), 5),
    }


def _looks(hbase: HBase) -> dict[str, float]:
    """Milliseconds of a look at so many streams in which nothing has happened."""
    files = WalFolder.at(f"file://{hbase.cluster.layout.root}").files()
    newest = max((all_of[-1] for all_of in files.values()), key=lambda file: file.first)
    found = {}
    for count in STREAMS:
        with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
            for number in range(count):
                name = re.sub(r"%2C\d+%2C", f"%2C{10_000 + number}%2C", newest.name, count=1)
                target = Path(folder) / "WALs" / re.sub(r"%2C", ",", name.rpartition(".")[0])
                target.mkdir(parents=True)
                shutil.copy(newest.path, target / name)
            reader = WalReader(WalFolder.at(f"file://{folder}"), frozenset())
            tails = [Tail(stream, position, position) for stream, position in reader.last_entries().items()]
            took = []
            for _ in range(_LOOKS):
                began = time.perf_counter()
                streams = reader.folder.files()
                for tail in tails:
                    _look(reader, tail, streams[tail.stream])
                took.append(time.perf_counter() - began)
            found[str(count)] = round(median(took) * 1000, 3)
    return found


def _look(reader: WalReader, tail: Tail, files: list[WalFile]) -> Tail:
    """A look from the tail's end to that of its files."""
    tail.add(scan_ahead(reader, LookaheadRequest.on(tail, frozenset(reader.tables or ()), files, entries_max=1 << 60)))
    return tail


def tell(figures: Mapping) -> Iterator[str]:
    for way, cpu in figures["cpu_us_per_change"].items():
        told = ", ".join(f"{kind} {value:,.0f}" for kind, value in cpu.items() if value)
        yield f"{way}: {figures['changes_per_second'][way]:,} changes/s; CPU µs for a change: {told}"
    requests = sum(figures["requests"].values()) / figures["changes"]
    sizes = (figures["bytes_sent_per_change"], figures["bytes_received_per_change"])
    yield f"{requests:.4f} requests for a change, {sizes[0]} bytes sent, {sizes[1]} received"
    idle, scan = figures["idle"], figures["log_scan"]
    yield f"nothing to do: {idle['ms']} ms, {idle['requests']} requests, {idle['driver_cpu_ms']} ms of the driver's CPU"
    yield f"logs looked through: {scan['megabytes_per_second']} MB/s"
    yield "a look at streams without news: " + ", ".join(
        f"{n}: {ms} ms" for n, ms in figures["look_ms_by_streams"].items()
    )
