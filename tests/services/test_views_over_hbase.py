"""Views over tables of a real HBase, whose clients go on writing: every view equals its recomputation."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support.faulty_proxy import faulty_proxy
from tests.support.foreign import recomputed
from tests.support.hbase_clients import Clients, Row
from tests.support.hbase_stores import drop_namespace, new_url
from tests.support.oracle import bag_of
from tests.support.running import ManagersRunner
from tests.support.services.admin import Admin
from tests.support.services.hbase import Cluster
from tests.support.services.waiting import say_nothing, wait_until
from tests.support.spark_local import start_local
from viewkeeper import failpoints
from viewkeeper.coordinator.backfill import reset_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import StoreError
from viewkeeper.settings import EngineSettings, EpochLimits
from viewkeeper.stores.hbase import records
from viewkeeper.stores.hbase.thrift_cells import thrift

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = {
    "everything": "SELECT k, g, x FROM t",
    "some": "SELECT k, x + 1 AS y FROM t WHERE x > 3",
    "by_x": "SELECT x, k, g FROM t WHERE x IS NOT NULL",
    "sums": "SELECT g, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a FROM t GROUP BY g",
    "ends": "SELECT g, MIN(x) AS lo, MAX(x) AS hi FROM t GROUP BY g",
    "total": "SELECT COUNT(*) AS n, SUM(x) AS s FROM t",
    "kinds": "SELECT DISTINCT g FROM u",
    "pairs": "SELECT t.k, u.k AS o, u.x FROM t JOIN u ON t.g = u.g WHERE u.x > 5",
    "left_pairs": "SELECT t.k, u.k AS o FROM t LEFT JOIN u ON t.x = u.x AND u.g = 'a'",
    "grouped": "SELECT t.g, COUNT(*) AS n, SUM(u.x) AS s FROM t JOIN u ON t.k = u.k GROUP BY t.g",
    "alone": "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g)",
    "both": "SELECT k FROM t WHERE x > 5 UNION ALL SELECT k FROM u WHERE x > 5",
}
ATTEMPTS_MAX = 5
FAULTS = int(os.environ.get("VIEWKEEPER_FAULTS", "50"))


@contextmanager
def connected(url: str, *, direct: str = "") -> Iterator[vk.Database]:
    """`direct`: the same store past a proxy."""
    try:
        vk.connect(direct or url).close()
        with vk.connect(url) as db:
            yield db
    finally:
        drop_namespace(direct or url)


def url_of(hbase: Cluster, **more: object) -> str:
    options = "&".join(f"{name}={value}" for name, value in more.items())
    return new_url(hbase, f"partitions=4&late=60&{options}".rstrip("&"))


def work(db: vk.Database, draw: random.Random, *, steps: int) -> None:
    """Some epochs, of any size, by any number of managers; each may find the store troubled, and is tried again."""
    for _ in range(steps):
        runner = ManagersRunner(db.store, draw.choice((1, 3)), seed=draw.random())
        limits = EpochLimits(changes=draw.choice((5, 200, 100_000)), rows=draw.choice((3, 1_000)))
        Coordinator(db.store, runner, limits=limits).step()
        if draw.random() < 0.3:
            collect_garbage(db.store)


def catch_up(db: vk.Database, draw: random.Random) -> None:
    Coordinator(db.store, ManagersRunner(db.store, 2, seed=draw.random())).catch_up()


def compare(db: vk.Database, clients: Clients) -> None:
    """Every view with what DuckDB makes of the rows that clients see.

    HBase may still do a write to which a client got no reply; then another epoch takes it in before views are judged.
    """
    for attempt in range(ATTEMPTS_MAX):
        rows = {name: clients.rows(name) for name in "tu"}
        wrong = differences(db, rows)
        is_quiet = {name: clients.rows(name) for name in "tu"} == rows
        if is_quiet and (not wrong or attempt > 0 or not clients.without_reply):
            keys = {value for sides in wrong.values() for side in sides.values() for row in side for value in row}
            assert not wrong, "\n".join([f"{wrong}", *clients.cells("t", keys), *clients.cells("u", keys)])
            return
        catch_up(db, random.Random(attempt))
    raise AssertionError("rows change though nobody writes")


def differences(db: vk.Database, rows: dict[str, list[Row]]) -> dict[str, dict[str, Counter[tuple[object, ...]]]]:
    """Of each wrong view, the rows that it lacks, and those that it has without need."""
    found = {}
    for view in db.catalog().views:
        expected = recomputed(TEXTS[view.name], rows)
        bag = bag_of(tuple(row.values()) for row in db.view(view.name).scan())
        if bag != expected:
            found[view.name] = {"lacks": expected - bag, "has": bag - expected}
    return found


def test_every_view_equals_its_recomputation_while_clients_write_during_fill_and_upkeep(hbase: Cluster) -> None:
    draw = random.Random(1)
    clients = Clients(hbase, seed=1)
    clients.write(300)
    with connected(url_of(hbase)) as db:
        for name in "tu":
            db.execute(clients.ddl(name))
        waiting = draw.sample(sorted(TEXTS.items()), len(TEXTS))
        while waiting:
            with clients.writing():
                for name, text in [waiting.pop() for _ in range(3)]:
                    db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
                    work(db, draw, steps=4)
            catch_up(db, draw)
            compare(db, clients)
        assert clients.writes > 500


def test_what_clients_write_between_the_first_staged_rows_and_the_first_cut_is_in_the_views(hbase: Cluster) -> None:
    draw, clients = random.Random(6), Clients(hbase, seed=6)
    clients.write(100)
    staged: list[str] = []

    def write(point: str) -> None:
        if point == "stage.ready":  # of each table, and once more after a rebuild
            staged.append(point)
            clients.write(40)

    failpoints.hook(write)
    try:
        with connected(url_of(hbase)) as db:
            for table, view in (("t", "everything"), ("u", "pairs")):
                db.execute(clients.ddl(table))
                db.execute(f"CREATE MATERIALIZED VIEW {view} AS {TEXTS[view]}")
                catch_up(db, draw)
                compare(db, clients)
            reset_views(db.store)
            catch_up(db, draw)
            compare(db, clients)
    finally:
        failpoints.hook(None)
    assert len(staged) == 4


def test_views_are_right_after_servers_die_regions_move_split_and_merge_and_logs_roll(
    hbase: Cluster, admin: Admin
) -> None:
    """Paper 1, table 1, on a live cluster: each event comes in the midst of writes and epochs."""
    draw, clients = random.Random(2), Clients(hbase, seed=2, compacted=True)
    table = clients.tables["t"]

    def move() -> None:
        for region in admin.regions(table):
            admin.move(region, draw.choice(admin.servers()))

    def kill() -> None:
        hbase.kill("regionserver-1")
        hbase.run("regionserver-1")

    def split() -> None:
        admin.split(table, b"d")

    def roll() -> None:
        for server in admin.servers():
            admin.roll(server)

    def restart_thrift() -> None:
        hbase.kill("thrift-1")
        hbase.run("thrift-1")
        hbase.wait_until_serving()

    events = [move, roll, split, lambda: admin.merge(table), kill, lambda: admin.flush(table), restart_thrift, move]
    with connected(url_of(hbase)) as db:
        clients.write(100)
        for name in "tu":
            db.execute(clients.ddl(name))
        for name, text in TEXTS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        catch_up(db, draw)
        for event in events:
            with clients.writing():
                work(db, draw, steps=1)
                event()
                hbase.wait_until_serving()
                work(db, draw, steps=3)
            catch_up(db, draw)
            compare(db, clients)


def test_views_are_right_though_replies_are_lost_and_late(hbase: Cluster) -> None:
    draw, clients = random.Random(3), Clients(hbase, seed=3)
    clients.write(100)
    port = hbase.layout.thrift_ports()[0]
    with faulty_proxy(port, seed=3, lost=0.06, late=0.04, late_seconds=1.5) as proxy:
        direct = url_of(hbase, timeout=20)
        with connected(direct.replace(f":{port}", f":{proxy.port}"), direct=direct) as db:
            for name in "tu":
                insist(lambda name=name: db.execute(clients.ddl(name).replace("TABLE", "TABLE IF NOT EXISTS", 1)))
            for name, text in list(TEXTS.items())[::2]:
                insist(lambda name=name, text=text: db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {text}"))
            while proxy.counts.total() < FAULTS:
                with clients.writing(1):
                    insist(lambda: work(db, draw, steps=2))
                insist(lambda: catch_up(db, draw))
                insist(lambda: compare(db, clients))


def insist(step: object, attempts: int = 20) -> None:
    """What an operator, or `viewkeeper run`, does when the store was not reached: the same again."""
    for attempt in range(attempts):
        try:
            step()
        except StoreError:
            if attempt == attempts - 1:
                raise
        else:
            return


@pytest.mark.parametrize("kind", ["DELETE_COLUMN", "DELETE_FAMILY_VERSION"])
def test_a_deleted_version_uncovers_the_one_below(hbase: Cluster, kind: str) -> None:
    draw, clients, types = random.Random(4), Clients(hbase, seed=4), hbase.types
    with connected(url_of(hbase)) as db, hbase.client() as client:
        db.execute(clients.ddl("t"))
        db.execute("CREATE MATERIALIZED VIEW everything AS SELECT k, g, x FROM t")
        table = clients.tables["t"].encode()
        for stamp, value in ((10, b"1"), (20, b"2")):
            client.put(
                table, types.TPut(row=b"r", columnValues=[types.TColumnValue(b"f", b"x", value)], timestamp=stamp)
            )
        catch_up(db, draw)
        assert db.view("everything").get("r")["x"] == 2
        for stamp, left in ((20, 1), (10, None)):
            column = types.TColumn(b"f", None if "FAMILY" in kind else b"x", timestamp=stamp)
            delete = types.TDelete(row=b"r", columns=[column], deleteType=getattr(types.TDeleteType, kind))
            client.deleteSingle(table, delete)
            catch_up(db, draw)
            catch_up(db, draw)
            found = db.view("everything").get("r")
            assert (found and found["x"]) == left


def test_what_does_not_fit_into_hbase_is_left_out_set_aside_or_stops_its_view_alone(hbase: Cluster) -> None:
    draw, clients, types = random.Random(5), Clients(hbase, seed=5), hbase.types
    table = clients.tables["t"]
    with connected(url_of(hbase)) as db, hbase.client() as client:

        def put(row: str, **cells: str) -> None:
            values = [types.TColumnValue(b"f", name.encode(), value.encode()) for name, value in cells.items()]
            client.put(table.encode(), types.TPut(row=row.encode(), columnValues=values))

        options = f"USING hbase OPTIONS (table '{table}')"
        db.execute(f"CREATE TABLE t (k STRING PRIMARY KEY, g STRING, h STRING, x INT) {options}")
        db.execute("CREATE MATERIALIZED VIEW plain AS SELECT k, x FROM t")
        db.execute("CREATE MATERIALIZED VIEW grouped AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
        put("good", g="a", x="1")
        catch_up(db, draw)
        put("k" * 32_767, g="a", x="1")
        put("group", g="y" * 40_000, x="2")
        put("wide", g="a" * (6 << 20), x="3")
        put("wide", h="b" * (6 << 20))
        put("later", g="b", x="4")
        catch_up(db, draw)

        assert {row["k"]: row["x"] for row in db.view("plain").scan()} == {"good": 1, "group": 2, "later": 4}
        grouped = next(view for view in db.status().views if view.name == "grouped")
        assert "a key of 40,0" in (grouped.stopped or "")
        put("wide", g="c", h="d")
        client.deleteSingle(table.encode(), types.TDelete(row=b"group"))
        catch_up(db, draw)
        db.rebuild("grouped")
        assert {row["k"]: row["x"] for row in db.view("plain").scan()} == {"good": 1, "later": 4, "wide": 3}
        assert {row["g"]: row["n"] for row in db.view("grouped").scan()} == {"a": 1, "b": 1, "c": 1}


def test_groups_that_are_gone_stay_gone_after_purge_and_major_compaction(
    hbase: Cluster, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PUT_SECONDS", 0.1)
    draw, clients, types = random.Random(6), Clients(hbase, seed=6), hbase.types
    clients.write(200)
    with connected(new_url(hbase, "partitions=2&timeout=1&late=0.1")) as db, hbase.client() as client:
        db.execute(clients.ddl("t"))
        for name in ("everything", "sums", "ends"):
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {TEXTS[name]}")
        catch_up(db, draw)
        assert rows_in_hbase(db) > 40
        table = clients.tables["t"].encode()
        for key, *_ in clients.rows("t"):
            client.deleteSingle(table, types.TDelete(row=key.encode()))

        def is_nothing_left() -> bool:
            """Each round is one epoch more, of one row."""
            client.put(
                table, types.TPut(row=b"z", columnValues=[types.TColumnValue(b"f", b"x", b"%d" % draw.randrange(9))])
            )
            catch_up(db, draw)
            collect_garbage(db.store)
            for name in tables_of(db):
                admin.compact(name.decode())
            return rows_in_hbase(db) == 3

        assert wait_until(is_nothing_left, seconds_max=90, state=str, tell=say_nothing)
        compare(db, clients)
        clients.write(100)
        catch_up(db, draw)
        compare(db, clients)


def tables_of(db: vk.Database) -> list[bytes]:
    """The tables of HBase that hold the rows of views."""
    site = db.store._site
    names = site.connections.ask("getTableNamesByNamespace", site.address.namespace)
    return [b"%b:%b" % (name.ns, name.qualifier) for name in names if name.qualifier.startswith(b"view.")]


def rows_in_hbase(db: vk.Database) -> int:
    """Of views: those that are deleted too, as long as anything of them is kept."""
    scan = thrift().TScan(attributes={b"_raw_": b"\xff"})
    return sum(len(db.store._site.connections.ask("getScannerResults", name, scan, 10_000)) for name in tables_of(db))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two slots."""
    started = start_local(tmp_path_factory.mktemp("failpoints"), tmp_path_factory.mktemp("warehouse"))
    yield started
    started.stop()


def test_spark_workers_keep_views_fresh_and_a_check_finds_what_no_log_told(
    hbase: Cluster, session: SparkSession
) -> None:
    clients, types = Clients(hbase, seed=5), hbase.types
    clients.write(200)
    settings = EngineSettings(small_work_max=0)
    with (
        connected(url_of(hbase)) as db,
        db.pipeline(spark=session, view_managers=3, settings=settings) as pipeline,
    ):
        for name in "tu":
            db.execute(clients.ddl(name))
        for name, text in TEXTS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        for seed in range(3):
            clients.write(100, seed=seed)
            pipeline.run_available()
            compare(db, clients)
        assert not db.check(spark=session).findings
        value = [types.TColumnValue(b"f", b"x", b"1")]
        with hbase.client() as client:
            put = types.TPut(row=b"z", columnValues=value, durability=types.TDurability.SKIP_WAL)
            client.put(clients.tables["t"].encode(), put)
        pipeline.run_available()
        assert {finding.key for finding in db.check(spark=session).findings} == {("z",)}


def test_spark_workers_stage_tables_and_look_at_logs(hbase: Cluster, session: SparkSession) -> None:
    clients, done = Clients(hbase, seed=7), Counter[str]()
    clients.write(300)
    settings = EngineSettings(spread_above_rows=0, spread_above_log_bytes=0)
    with connected(url_of(hbase)) as db, db.pipeline(spark=session, settings=settings) as pipeline:
        lent = db.store._lent

        def spread(work: Callable[..., bytes], pieces: Sequence[object], **size: int) -> list[bytes] | None:
            found = lent(work, pieces, **size)
            done[work.__name__] += found is not None
            return found

        db.store.use_executor(spread)
        for name in "tu":
            db.execute(clients.ddl(name))
        for name, text in TEXTS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        with clients.writing():
            pipeline.run_available()
        clients.write(100)
        pipeline.run_available()
        compare(db, clients)
        assert done["_stage"] >= 2, "each table is staged by a job"
        assert done["_look"] >= 1, "new changes are looked at by a job"
        assert all(table.foreign.staged == () for table in db.catalog().tables)
        pipeline.close()
        assert db.store._lent is None
