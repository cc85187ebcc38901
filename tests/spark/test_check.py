"""`check` finds what is wrong, names it, and finds nothing where all is well."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper.flow.coordinator import Coordinator
from viewkeeper.model.keys import encode_key
from viewkeeper.stores.embedded import tree

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


def record_place(database: Database, view: str, *key: object) -> tuple[object, bytes]:
    """The place of a record, and the key under which it is stored there."""
    node = database.view(view).definition.node
    encoded = encode_key(node.key, key)
    place = database.store.place(database.store.place_of(encode_key(node.key[:1], key[:1])))
    return place, tree.table_prefix(node.table) + encoded


def test_all_is_well_while_writes_wait_behind_the_committed_epoch(shop: Database, spark: SparkSession) -> None:
    shop.table("orders").delete("o1")
    shop.table("orders").put("o2", {"region": "moon", "amount": -1})
    report = shop.check(spark=spark)
    assert report.findings == ()
    assert report.ok and report.epoch == 1
    assert set(report.views) == {"revenue", "big", "by_region", "total", "by_day", "aliased"}
    assert report.records > 300


def test_each_planted_error_is_named_and_nothing_else(shop: Database, spark: SparkSession) -> None:
    place, missing = record_place(shop, "revenue", "eu")
    other, extra = record_place(shop, "by_region", "mars", "o7")
    with place._environment.write("records") as transaction:
        chain = tree.get(transaction, missing)
        tree.delete(transaction, missing)
    us, wrong = record_place(shop, "revenue", "us")
    with us._environment.write("records") as transaction:
        tree.put(transaction, wrong, chain)
    with other._environment.write("records") as transaction:
        _, like = record_place(shop, "by_region", "us", "o1")
        tree.put(transaction, extra, record_chain(shop, like))
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


def record_chain(database: Database, key: bytes) -> bytes:
    for number in range(database.store.places):
        with database.store.place(number)._environment.read("records") as transaction:
            if chain := tree.get(transaction, key):
                return chain
    raise LookupError(key)


def test_an_unknown_view_is_refused_before_spark_is_asked(shop: Database) -> None:
    with pytest.raises(vk.UnknownName, match="nowhere"):
        shop.check(["nowhere"])
