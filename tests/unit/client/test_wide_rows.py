"""What is done with a row or a table takes steps that grow with its columns, not with their square: counted, not timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import viewkeeper as vk
from tests.support.steps import steps_of

FEW, MANY = 200, 400
Work = Callable[[Any, dict[str, int]], object]
WORKS: dict[str, Work] = {
    "put": lambda db, row: db.table("t").put(1, row),
    "a put with its key inside": lambda db, row: db.table("t").put({"k": 1, **row}),
    "a put of one column": lambda db, row: db.table("t").put(1, {"c1": 2}),
    "put_if": lambda db, row: db.table("t").put_if(1, row, expect=row),
    "put_many": lambda db, row: db.table("t").put_many([{"k": 1, **row}, {"k": 2, **row}]),
    "get": lambda db, row: db.table("t").get(1),
    "get of named columns": lambda db, row: db.table("t").get(1, columns=list(row)),
    "delete of columns": lambda db, row: db.table("t").delete(1, columns=list(row)),
    "INSERT": lambda db, row: db.execute(f"INSERT INTO t VALUES (1, {', '.join(map(str, row.values()))})"),
    "UPDATE": lambda db, row: db.execute(f"UPDATE t SET {', '.join(f'{c} = 1' for c in row)} WHERE k = 1"),
    "SELECT": lambda db, row: db.execute("SELECT * FROM t WHERE k = 1"),
    "DESCRIBE": lambda db, row: db.execute("DESCRIBE t"),
    "SHOW CREATE TABLE": lambda db, row: db.execute("SHOW CREATE TABLE t"),
    "EXPLAIN": lambda db, row: db.execute("EXPLAIN SELECT * FROM t WHERE c1 > 1"),
    "EXPLAIN of groups": lambda db, row: db.execute(f"EXPLAIN SELECT DISTINCT {', '.join(row)} FROM t"),
    "ALTER TABLE": lambda db, row: db.execute(f"ALTER TABLE t ADD COLUMNS ({', '.join(f'n{c} INT' for c in row)})"),
    "CREATE TABLE": lambda db, row: db.execute(create("u", list(row))),
}


def create(table: str, columns: list[str]) -> str:
    return f"CREATE TABLE {table} (k INT PRIMARY KEY, {', '.join(f'{name} INT' for name in columns)})"


def steps(work: str, width: int) -> int:
    row = {f"c{place}": place for place in range(width)}
    with vk.connect("memory:") as db:
        db.execute(create("t", list(row)))
        WORKS["put"](db, row)
        WORKS[work](db, row)  # once for what is loaded and remembered
        if work in ("ALTER TABLE", "CREATE TABLE"):
            row = {f"z{name}": value for name, value in row.items()}
            return steps_of(lambda: db.execute(create("v", list(row))) if work[0] == "C" else WORKS[work](db, row))
        return steps_of(lambda: WORKS[work](db, row))


@pytest.mark.parametrize("work", WORKS)
def test_twice_the_columns_take_about_twice_the_steps(work: str) -> None:
    few, many = steps(work, FEW), steps(work, MANY)

    assert many < 2.6 * few, f"{few} at {FEW} columns, {many} at {MANY}"
