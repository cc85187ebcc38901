"""Some weeks of flights: eighteen everyday views equal DuckDB's answers after the fill and after changes."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import viewkeeper as vk
from tests.support.flights import VIEWS, create_tables, create_views, load_tables, read_tables
from tests.support.running import HereRunner, ManagersRunner
from tests.support.tiers import examples
from viewkeeper.client.database import Database
from viewkeeper.coordinator.coordinator import Coordinator

ROUNDS = examples(4, deep=6)
DAY = dt.datetime(2013, 2, 8, 23, tzinfo=dt.UTC)


def _january(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    flights = tables["flights"]
    return tables | {
        "flights": flights.filter(pc.less(flights["time_hour"], pa.scalar(DAY, pa.timestamp("us", "UTC"))))
    }


def _expected(db: Database) -> dict[str, Counter]:
    """Every view's rows by DuckDB, over what the tables hold now."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in read_tables():
            connection.register(name, db.table(name).to_arrow())
        connection.execute(f"CREATE VIEW dests AS {VIEWS['dests']}")
        in_duckdb = {name: sql.replace("LEFT ANTI JOIN", "ANTI JOIN") for name, sql in VIEWS.items()}
        in_duckdb["by_tailnum"] = "SELECT tailnum, time_hour, carrier, flight FROM flights"
        return {name: _rows(connection.sql(sql).fetchall()) for name, sql in in_duckdb.items()}


def _rows(rows: list[tuple]) -> Counter:
    """A bag of rows; averages of DOUBLE to nine digits, in which order they are added is each engine's own."""
    return Counter(tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row) for row in rows)


def _change(db: Database, source: random.Random) -> None:
    flights = db.table("flights")
    some = source.sample(list(flights.scan(limit=2_000)), 60)
    for row in some[:20]:
        flights.delete(row["time_hour"], row["carrier"], row["flight"])
    for row in some[20:]:
        changed = {"dep_delay": source.choice([None, -3, 20, 300]), "dest": source.choice(["IAH", "ORD", "ANC"])}
        flights.put(row["time_hour"], row["carrier"], row["flight"], changed | {"tailnum": some[0]["tailnum"]})
    db.table("planes").delete(some[1]["tailnum"])
    db.table("airlines").put(source.choice(["UA", "AA", "B6"]), {"name": f"Airline {source.random()}"})
    weather = next(iter(db.table("weather").scan("JFK", limit=1)))
    db.table("weather").put(
        "JFK", weather["time_hour"], {"wind_dir": source.randrange(360), "wind_speed": source.random()}
    )


def test_eighteen_everyday_views_equal_duckdb_through_changes(tmp_path: Path) -> None:
    source = random.Random(13)
    with vk.connect(f"embedded:{tmp_path / 'store'}?sync=off") as db:
        create_tables(db)
        load_tables(db, _january(read_tables()))
        create_views(db)
        for number in range(ROUNDS):
            runner = ManagersRunner(db.store, 3, seed=number) if number % 3 == 2 else HereRunner(db.store)
            Coordinator(db.store, runner).catch_up()
            expected = _expected(db)

            kept = {name: _rows([tuple(row.values()) for row in db.view(name).scan()]) for name in expected}
            assert [name for name in expected if kept[name] != expected[name]] == [], f"in round {number}"
            assert all(expected.values())
            _change(db, source)
