"""`check` finds what is wrong, names it, and finds nothing where all is well."""

from __future__ import annotations

import datetime as dt
import random
import threading
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support import troubled
from tests.support.planting import chain_of, change_record, change_stored, view_keys
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.keys import encode_key, partition_of
from viewkeeper.settings import EpochLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.database import Database

VIEWS = """
CREATE TABLE orders (id STRING PRIMARY KEY, region STRING, amount BIGINT, price DECIMAL(12,3), day DATE, at TIMESTAMP);
CREATE MATERIALIZED VIEW revenue AS
  SELECT region, COUNT(*) AS n, SUM(amount) AS total, AVG(price) AS mean, SUM(price) AS sum FROM orders GROUP BY region;
CREATE MATERIALIZED VIEW big AS SELECT amount + 1, at FROM orders WHERE amount > 20;
CREATE INDEX by_region ON orders (region) INCLUDE (amount);
CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a FROM orders;
CREATE MATERIALIZED VIEW by_day AS SELECT COUNT(amount) AS c FROM orders GROUP BY day, amount % 3;
CREATE MATERIALIZED VIEW aliased AS SELECT amount + 1 AS more, COUNT(*) AS n FROM orders GROUP BY more
"""


@pytest.fixture
def shop(tmp_path: Path) -> Database:
    database = vk.connect(f"embedded:{tmp_path / 'shop'}?nodes=2&sync=off")
    database.execute(VIEWS)
    database.table("orders").put_many([order(i) for i in range(120)])
    Coordinator(database.store, HereRunner(database.store)).catch_up()
    return database


def order(number: int) -> dict[str, object]:
    return {
        "id": f"o{number}",
        "region": ["eu", "us", None][number % 3],
        "amount": number if number % 7 else None,
        "price": Decimal(number) / 4,
        "day": dt.date(2020, 1, 1 + number % 28),
        "at": dt.datetime(2020, 1, 1, number % 24, tzinfo=dt.UTC),
    }


def test_all_is_well_while_writes_wait_behind_the_committed_epoch(shop: Database, spark: SparkSession) -> None:
    shop.table("orders").delete("o1")
    shop.table("orders").put("o2", {"region": "moon", "amount": -1})
    report = shop.check(spark=spark)
    assert report.findings == ()
    assert report.ok and report.epoch == 1
    assert set(report.views) == {"revenue", "big", "by_region", "total", "by_day", "aliased"}
    assert report.records > 300


def test_each_planted_error_is_named_and_nothing_else(shop: Database, spark: SparkSession) -> None:
    eu = chain_of(shop, "revenue", ("eu",))
    change_record(shop, "revenue", ("eu",), None)
    change_record(shop, "revenue", ("us",), eu)
    change_record(shop, "by_region", ("mars", "o7"), chain_of(shop, "by_region", ("us", "o1")))
    report = shop.check(spark=spark)
    assert not report
    found = {(finding.view, finding.key, finding.kind) for finding in report.findings}
    assert found == {
        ("revenue", ("eu",), "missing"),
        ("revenue", ("us",), "wrong"),
        ("by_region", ("mars", "o7"), "extra"),
    }
    (changed,) = [finding for finding in report.findings if finding.kind == "wrong"]
    assert changed.expected["total"] != changed.found["total"]


@pytest.mark.parametrize("log", ["on", "off"])
def test_a_store_in_memory_is_judged_too(spark: SparkSession, log: str) -> None:
    """Spark cannot reach it; a check writes what it compares to files."""
    with vk.connect(f"memory:?nodes=2&before_images={log}") as shop:
        shop.execute(VIEWS)
        shop.table("orders").put_many([order(i) for i in range(120)])
        Coordinator(shop.store, HereRunner(shop.store)).catch_up()
        shop.table("orders").put("o2", {"region": "moon", "amount": -1})
        report = shop.check(spark=spark)
        assert report.ok and report.records > 300
        us, eu = (encode_key(shop.view("revenue").definition.node.key, (region,)) for region in ("us", "eu"))
        partition, table = partition_of(us, shop.store.partitions), shop.view("revenue").definition.node.table
        chain = shop.store.partition(partition_of(eu, shop.store.partitions)).get(table, eu)
        change_stored(shop, table, partition, us, chain)
        (finding,) = shop.check(spark=spark).findings

        assert (finding.view, finding.key, finding.kind) == ("revenue", ("us",), "wrong")


def test_an_unknown_view_is_refused_before_spark_is_asked(shop: Database) -> None:
    with pytest.raises(vk.UnknownName, match="nowhere"):
        shop.check(["nowhere"])


ERRORS = 20
JUDGED = """
CREATE TABLE t (k STRING PRIMARY KEY, x INT, y BIGINT, f DOUBLE);
CREATE MATERIALIZED VIEW sums AS SELECT x, COUNT(*) AS n, SUM(f) AS s, AVG(y) AS a FROM t GROUP BY x;
CREATE MATERIALIZED VIEW ends AS SELECT x, MIN(y) AS lo, MAX(f) AS hi, COUNT(DISTINCT y) AS n FROM t GROUP BY x;
CREATE MATERIALIZED VIEW shown AS SELECT x, AVG(f) AS a FROM t GROUP BY x HAVING COUNT(*) > 1;
CREATE MATERIALIZED VIEW pairs AS SELECT DISTINCT x, y % 3 AS m FROM t;
CREATE MATERIALIZED VIEW some AS SELECT x, COUNT(*) FILTER (WHERE y > 3) AS n, SUM(f) FILTER (WHERE y > 3) + 1 AS s FROM t
  GROUP BY x;
CREATE MATERIALIZED VIEW wide AS SELECT x, SUM(y) AS s FROM t WHERE f IS NOT NULL GROUP BY x;
CREATE MATERIALIZED VIEW one AS SELECT COUNT(*) AS n, SUM(f) AS s FROM t;
CREATE MATERIALIZED VIEW rows AS SELECT y + 1 AS more, f FROM t WHERE x < 150
"""
TIED = (1e308, -1e308, 0.1, 0.2, 0.3, float("nan"), float("inf"), -0.0, 5e-324, None)


def make_judged(path: Path, log: str, doubles: tuple = TIED) -> Database:
    """Rows whose sums depend on the order in which an engine adds them, rows on which a view fails, groups that overflow."""
    database = vk.connect(f"embedded:{path}?nodes=2&sync=off&before_images={log}")
    database.execute(JUDGED)
    rows = []
    for i in range(1_500):
        double = doubles[i % len(doubles)] if i % 3 else i / 7
        rows.append({"k": f"k{i}", "x": i % 200, "y": 2**62 if i % 200 == 7 else i % 11, "f": double})
    rows += [{"k": f"big{i}", "x": i, "y": 2**63 - 1, "f": 1.5} for i in range(3)]
    database.table("t").put_many(rows)
    Coordinator(database.store, HereRunner(database.store)).catch_up()
    return database


@pytest.mark.parametrize(
    "log", [pytest.param("on", id="before-images", marks=pytest.mark.deep), pytest.param("off", id="plain log")]
)
def test_there_is_no_false_alarm_while_writes_and_epochs_go_on(tmp_path: Path, spark: SparkSession, log: str) -> None:
    database = make_judged(tmp_path / "s", log)
    table, stop = database.table("t"), threading.Event()
    coordinator = Coordinator(database.store, HereRunner(database.store), limits=EpochLimits(changes=50))

    def write() -> None:
        choose = random.Random(1)
        while not stop.is_set():
            key = f"k{choose.randrange(2_000)}"
            if choose.random() < 0.2:
                table.delete(key)
            else:
                table.put(key, {"x": choose.randrange(200), "y": choose.randrange(9), "f": choose.choice(TIED)})
            coordinator.step()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [database.check(spark=spark, since=since) for since in (None, "last", "last")]
    finally:
        stop.set()
        writer.join()

    assert [report.findings for report in reports] == [(), (), ()]
    assert reports[0].epoch < reports[1].epoch < reports[2].epoch <= database.epoch
    assert reports[1].since == (dict.fromkeys(reports[0].views, reports[0].epoch) if log == "on" else {})
    assert set(reports[0].views) == {"sums", "ends", "shown", "pairs", "some", "wide", "one", "rows"}
    assert database.status().views[-1].set_aside.count == 3
    assert [view.degraded.count for view in database.status().views if view.name == "wide"] != [0]


@pytest.mark.parametrize("log", ["on", "off"], ids=["before-images", "plain log"])
def test_twenty_planted_errors_of_each_kind_are_found_and_no_others(
    tmp_path: Path, spark: SparkSession, log: str
) -> None:
    database = make_judged(tmp_path / "s", log, doubles=(0.1, 0.2, 0.3, -0.0, None))
    choose = random.Random(3)
    views = ("sums", "ends", "pairs", "some", "rows")
    keys = {view: view_keys(database, view) for view in views}
    missing = choose.sample([(view, key) for view in views for key in keys[view]], ERRORS)
    rest = [(view, key) for view in views for key in keys[view] if view != "pairs" and (view, key) not in missing]
    wrong = choose.sample(rest, ERRORS)  # a record of `pairs` holds nothing but its key
    extra = [(("sums", "some")[number % 2], (1_000 + number,)) for number in range(ERRORS)]
    others = {record: differing(database, *record, keys[record[0]]) for record in wrong}
    for view, key in missing:
        change_record(database, view, key, None)
    for view, key in wrong:
        change_record(database, view, key, others[view, key])
    for view, key in extra:
        change_record(database, view, key, chain_of(database, view, (5,)))
    database.table("t").put("later", {"x": 1, "y": 1, "f": 1.0})  # waits behind the committed epoch
    report = database.check(list(views), spark=spark)

    for kind, planted in (("missing", missing), ("wrong", wrong), ("extra", extra)):
        assert sorted((f.view, f.key) for f in report.findings if f.kind == kind) == sorted(planted)


def test_errors_in_what_changed_since_the_last_check_are_found(shop: Database, spark: SparkSession) -> None:
    """By every kind of key: one that is not shown, of dates, of expressions, of an index, and none."""
    assert shop.check(spark=spark).ok
    shop.table("orders").put_many([order(i) | {"region": "us", "amount": i % 5} for i in range(30, 40)])
    Coordinator(shop.store, HereRunner(shop.store)).catch_up()
    shop.table("orders").delete("o77")  # waits behind the committed epoch
    assert shop.check(spark=spark, since="last").ok
    shop.table("orders").put("o5", {"amount": 1_000, "day": dt.date(2020, 3, 3), "region": "us"})
    Coordinator(shop.store, HereRunner(shop.store)).catch_up()
    planted = [
        ("revenue", ("us",)),
        ("big", ("o5",)),
        ("by_region", ("us", "o5")),
        ("total", ()),
        ("aliased", (1_001,)),
    ]
    for view, key in planted:
        change_record(shop, view, key, None)
    day = dt.date(2020, 3, 3)
    change_record(shop, "by_day", ((day - dt.date(1970, 1, 1)).days, 1), None)
    planted.append(("by_day", (day, 1)))
    change_record(shop, "big", ("o44",), None)  # no change has touched it
    report = shop.check(spark=spark, since="last")

    assert {(found.view, found.key, found.kind) for found in report.findings} == {(*one, "missing") for one in planted}
    assert set(report.since) == {view for view, _ in planted} and report.notes == ()


def differing(database: Database, view: str, key: tuple, others: list[tuple]) -> bytes:
    """The record of another key that shows other values."""
    shown = {name: repr(value) for name, value in database.view(view).get(*key).items() if name != "x"}
    for other in others:
        values = database.view(view).get(*other)
        if all(repr(values[name]) != shown[name] for name in shown):
            return chain_of(database, view, other)
    raise LookupError(key)


def test_what_spark_stops_at_though_the_view_has_an_answer_is_asked_with_care(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A FILTER that guards a division, a sum that leaves 64 bits on its way, and the one record that does not fit."""
    database = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    database.execute("""
      CREATE TABLE t (id INT PRIMARY KEY, g STRING, i BIGINT, d DOUBLE);
      CREATE MATERIALIZED VIEW guarded AS SELECT g, SUM(10 / i) FILTER (WHERE i <> 0) AS s FROM t GROUP BY g;
      CREATE MATERIALIZED VIEW over AS SELECT g, SUM(i) AS s FROM t GROUP BY g;
      CREATE MATERIALIZED VIEW single AS SELECT SUM(i) AS s, COUNT(*) AS n FROM t WHERE i > 0;
      CREATE MATERIALIZED VIEW plain AS SELECT g, COUNT(*) AS n FROM t GROUP BY g
    """)
    rows = [(1, "a", 2**63 - 1, 1.0), (2, "a", 1, 0.0), (3, "a", -5, 2.0), (4, "b", 0, 1.0)]
    database.table("t").put_many([dict(zip(("id", "g", "i", "d"), row, strict=True)) for row in rows])
    Coordinator(database.store, HereRunner(database.store)).catch_up()
    report = database.check(spark=spark)

    assert report.findings == () and report.ok
    assert set(report.views) == {"guarded", "over", "single", "plain"} and report.notes == ()
    assert database.view("over").get("a") == {"g": "a", "s": 2**63 - 5}
    assert database.view("single").get() == {"s": None, "n": 2}


def test_rows_set_aside_and_degraded_groups_are_judged_in_views_of_every_shape(
    tmp_path: Path, spark: SparkSession
) -> None:
    database = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    troubled.make_tables(database)
    troubled.make_trouble(database, troubled.ROWS | troubled.GROUPS)
    Coordinator(database.store, HereRunner(database.store)).catch_up()
    well = [view.name for view in database.status().views if not view.set_aside.count and not view.degraded.count]
    change_record(database, "too_large", ("q",), chain_of(database, "too_large", ("p",)))
    report = database.check(spark=spark)

    assert well == ["some"] and report.notes == ()
    assert [(finding.view, finding.key) for finding in report.findings] == [("too_large", ("q",))]
    assert set(report.views) == {*troubled.ROWS, *troubled.GROUPS}


def test_averages_of_integers_beyond_2_to_the_53_are_judged_exactly(tmp_path: Path, spark: SparkSession) -> None:
    """Spark's own AVG adds doubles up: of these it makes 0, and what is left out, kept or grouped by it is another row."""
    database = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    database.execute("""
      CREATE TABLE t (id INT PRIMARY KEY, g STRING, i BIGINT, d DECIMAL(10,2));
      CREATE MATERIALIZED VIEW grouped AS SELECT g, AVG(i) AS a, AVG(d) AS d FROM t GROUP BY g;
      CREATE MATERIALIZED VIEW filtered AS SELECT AVG(i) FILTER (WHERE id > 0) * 3 AS a FROM t;
      CREATE MATERIALIZED VIEW kept AS SELECT g FROM t GROUP BY g HAVING AVG(i) > 0.1;
      CREATE MATERIALIZED VIEW rounded AS
        SELECT a.g, CAST(AVG(b.i) * 3 AS BIGINT) AS n FROM t a JOIN t b ON a.g = b.g GROUP BY a.g;
      CREATE MATERIALIZED VIEW above AS SELECT a, COUNT(*) AS n FROM grouped GROUP BY a;
      CREATE MATERIALIZED VIEW top AS SELECT g, AVG(i) AS a FROM t GROUP BY g ORDER BY a DESC, g LIMIT 2
    """)
    rows = [(1, "a", 2**62), (2, "a", 1), (3, "a", -(2**62)), (4, "b", 2**53 + 1), (5, "b", 0), (6, "c", None)]
    database.table("t").put_many([{"id": id, "g": g, "i": i, "d": Decimal(id) / 4} for id, g, i in rows])
    Coordinator(database.store, HereRunner(database.store)).catch_up()
    report = database.check(spark=spark)

    assert report.notes == () and report.findings == ()
    assert report.ok and len(report.views) == 6
    assert database.view("grouped").get("a")["a"] == 1 / 3
    assert [row["g"] for row in database.view("kept").scan()] == ["a", "b"]


def test_variances_and_aggregates_of_distinct_values_are_judged(tmp_path: Path, spark: SparkSession) -> None:
    """Spark's own may be off as far as its way of computing them in doubles lets it, and no further."""
    database = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    columns = {"i": "INT", "y": "BIGINT", "d": "DECIMAL(38,6)", "f": "DOUBLE"}
    spread = [f"{name}({c}) AS {name}_{c}" for c in columns for name in ("STDDEV", "STDDEV_POP", "VAR_SAMP", "VAR_POP")]
    once = [f"{name}(DISTINCT {c}) AS {name}_of_{c}" for c in columns for name in ("SUM", "AVG", "VARIANCE")]
    database.execute(f"""
      CREATE TABLE t (id INT PRIMARY KEY, g INT, {", ".join(f"{name} {type_}" for name, type_ in columns.items())});
      CREATE MATERIALIZED VIEW grouped AS SELECT g, {", ".join(spread + once)} FROM t GROUP BY g;
      CREATE MATERIALIZED VIEW filtered AS
        SELECT STDDEV(i) FILTER (WHERE id > 3) * 2 AS s, SUM(DISTINCT y) FILTER (WHERE id > 9) AS u FROM t;
      CREATE MATERIALIZED VIEW kept AS SELECT g FROM t GROUP BY g HAVING STDDEV_SAMP(i) > 1 AND AVG(DISTINCT y) <> 0;
      CREATE MATERIALIZED VIEW fallible AS SELECT g, VAR_POP(100 div i) AS v, SUM(DISTINCT 100 div i) AS s FROM t GROUP BY g;
      CREATE MATERIALIZED VIEW above AS SELECT MAX(VAR_SAMP_i) AS most, STDDEV_POP(g) AS s FROM grouped
    """)
    source = random.Random(4)
    values = {
        "i": (0, 3, 2**31 - 1, None),
        "y": (2**62, -(2**40), 7, None),
        "d": (Decimal("0.000001"), Decimal(10) ** 20, Decimal("-7.5"), None),
        "f": (0.1, 1e150, -0.0, 0.0, 1e-200, None),
    }
    rows = [{"id": k, "g": k % 5} | {c: source.choice(chosen) for c, chosen in values.items()} for k in range(80)]
    rows += [
        {"id": 90, "g": 6, "f": float("inf"), "i": 1},
        {"id": 91, "g": 7, "f": float("nan")},
        {"id": 92, "g": 7, "f": 1.0},
    ]
    database.table("t").put_many(rows)
    Coordinator(database.store, HereRunner(database.store)).catch_up()
    report = database.check(spark=spark)
    assert report.notes == () and report.findings == () and len(report.views) == 5

    change_record(database, "grouped", (1,), chain_of(database, "grouped", (6,)))
    (finding,) = database.check(["grouped"], spark=spark).findings
    wrong = {name for name in finding.expected if finding.expected[name] != finding.found[name]}
    assert (finding.key, finding.kind) == ((1,), "wrong") and {"STDDEV_i", "SUM_of_d"} <= wrong
