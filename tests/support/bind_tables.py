"""Small tables for tests of binding: with NULLs, repeated values, and names that several tables have.

In: nothing. Out: schemas, rows, and relations by name. Always: `empty` has no rows.
"""

from __future__ import annotations

import random
from decimal import Decimal

import duckdb

from viewkeeper.algebra.relations import Relation, Scan
from viewkeeper.errors import UnknownName, ViewKeeperError
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, INT, STRING, SqlType, decimal
from viewkeeper.plan.define import refuse_unkept
from viewkeeper.plan.optimize import optimize
from viewkeeper.sql.bind_query import bind_query


def _table(number: int, name: str, columns: dict[str, SqlType]) -> TableSchema:
    declared = tuple(Column(column, type_, nullable=column != "k") for column, type_ in columns.items())
    return TableSchema(TableId(number), name, declared, ("k",))


TABLES = {
    table.name: table
    for table in (
        _table(1, "a", {"k": INT, "x": INT, "y": INT, "s": STRING}),
        _table(2, "b", {"k": INT, "x": INT, "z": BIGINT}),
        _table(3, "c", {"k": INT, "x": INT, "w": STRING}),
        _table(4, "d", {"k": INT, "x": INT, "p": decimal(6, 2)}),
        _table(5, "empty", {"k": INT, "x": INT}),
    )
}
ROWS: dict[str, list[tuple[object, ...]]] = {
    "a": [
        (1, 1, 10, "r"),
        (2, 1, None, "s"),
        (3, 2, 20, None),
        (4, None, 20, "r"),
        (5, 3, 30, "t"),
        (6, 7, 5, "r"),
        (7, None, None, None),
    ],
    "b": [(1, 1, 10), (2, 1, 20), (3, 2, None), (4, None, 30), (5, 4, 30), (8, 7, 5)],
    "c": [(1, 1, "r"), (2, 2, "s"), (3, 2, None), (5, None, "r"), (9, 7, "u")],
    "d": [
        (1, 1, Decimal("1.50")),
        (2, 7, Decimal("10.00")),
        (4, None, None),
        (6, 3, Decimal("20.00")),
    ],
    "empty": [],
}


def rows_drawn(seed: int) -> dict[str, list[tuple[object, ...]]]:
    """Other rows for the same tables: few values, many NULLs."""
    draw = random.Random(seed)
    drawn: dict[str, list[tuple[object, ...]]] = {"empty": []}
    for name, table in TABLES.items():
        keys = draw.sample(range(12), draw.choice([5, 8, 11])) if name != "empty" else []
        drawn[name] = [(key, *(_value(draw, column.type) for column in table.columns[1:])) for key in keys]
    return drawn


def load(connection: duckdb.DuckDBPyConnection, rows: dict[str, list[tuple[object, ...]]]) -> None:
    """Make the tables, with these rows."""
    for name, table in TABLES.items():
        columns = ", ".join(f"{column.name} {column.type.duckdb}" for column in table.columns)
        connection.execute(f"CREATE TABLE {name} ({columns})")
        if rows[name]:
            marks = ", ".join("?" for _ in table.columns)
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows[name])


def scan_sql(scan: Scan) -> str:
    """What a relation reads of a table that is loaded."""
    shown = ", ".join(f"{column.name} AS c{place}" for place, column in enumerate(scan.columns))
    return f"SELECT {shown} FROM {scan.table.name}"


def _value(draw: random.Random, type_: SqlType) -> object:
    if draw.random() < 0.25:
        return None
    if type_ == STRING:
        return draw.choice("rstu")
    return Decimal(draw.randint(0, 8)) if type_.kind == "DECIMAL" else draw.randint(0, 8)


def relation_named(name: str) -> Relation:
    if name.lower() not in TABLES:
        raise UnknownName(f"there is no table {name}")
    return Scan(TABLES[name.lower()])


def bind(text: str) -> Relation:
    return bind_query(text, relation_named)


def planned(text: str) -> Relation:
    """What a view of that text computes."""
    relation = optimize(bind(text))
    refuse_unkept(relation)
    return relation


def cases(text: str) -> list[tuple[str, str]]:
    """Queries with what is expected of them: a query on one line, then the answer, then an empty line."""
    blocks = [block.strip("\n").partition("\n") for block in text.strip("\n").split("\n\n")]
    return [(query, answer) for query, _, answer in blocks]


def refusal(text: str) -> str:
    """The message by which a query is refused: the fact on one line, the hint on the next."""
    try:
        planned(text)
    except ViewKeeperError as error:
        return f"{type(error).__name__}: {error.fact}" + (f"\n{error.hint}" if error.hint else "")
    return "accepted"
