"""Touched files: in how many files of src the code lies that one operation runs.

In: nothing; `python -m tests.support.touched_files` makes small stores and prints the figures as JSON. Out: for each
operation the files that run on any thread. Always: counted in a process of its own after the same operation went before, so
that neither imports nor caches of other tests change a figure.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import viewkeeper as vk
from tests.support.running import keep_up
from tests.support.source_tree import PACKAGE

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

SCHEMES = ("embedded", "memory")
TABLES = (
    "CREATE TABLE orders (id STRING PRIMARY KEY, customer STRING, amount INT)",
    "CREATE TABLE customers (id STRING PRIMARY KEY, city STRING)",
)
VIEWS = {
    "selection": "SELECT id, amount FROM orders WHERE amount > {0}",
    "grouping": "SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders WHERE amount > {0} GROUP BY customer",
    "join": "SELECT o.id, c.city FROM orders o JOIN customers c ON o.customer = c.id WHERE o.amount > {0}",
}


def files_touched(work: Callable[[], object]) -> frozenset[str]:
    """The files of src in which a function runs while `work` does, by their paths in the package."""
    seen = set[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    gc.collect()  # so that no finalizer of what is over runs in between
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    start = f"{PACKAGE}/"
    return frozenset(path.removeprefix(start) for path in seen if path.startswith(start))


def touched_by_each_operation() -> dict[str, frozenset[str]]:
    """`scheme operation` with the files of each, over fresh stores."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for scheme in SCHEMES:
            with vk.connect(f"{scheme}:{folder}/{scheme}") as db:
                found |= {f"{scheme} {name}": files for name, files in _operations(db).items()}
    return found


def _operations(db: Database) -> dict[str, frozenset[str]]:
    for statement in TABLES:
        db.execute(statement)
    found = {f"create {name}": _create(db, name) for name in ("grouping", "join")}
    db.execute(_statement("selection", 0))
    coordinator, orders, customers = keep_up(db), db.table("orders"), db.table("customers")
    customers.put("c1", {"city": "Basel"})

    def put(number: int) -> None:
        orders.put(f"o{number}", {"customer": "c1", "amount": 10 + number})

    put(1)
    found["put"] = files_touched(lambda: put(2))
    coordinator.catch_up()
    put(3)
    found["epoch"] = files_touched(coordinator.catch_up)
    orders.get("o1")
    found["table get"] = files_touched(lambda: orders.get("o2"))
    grouping = db.view("grouping_0")
    grouping.get("c1")
    found["view get"] = files_touched(lambda: grouping.get("c1"))
    assert dict(grouping.get("c1") or {}) == {"customer": "c1", "total": 36, "n": 3}
    return found


def _create(db: Database, name: str) -> frozenset[str]:
    """A view of the same kind goes before, and is gone when the measured one comes."""
    db.execute(_statement(name, 1))
    db.execute(f"DROP MATERIALIZED VIEW {name}_1")
    return files_touched(lambda: db.execute(_statement(name, 0)))


def _statement(name: str, bound: int) -> str:
    return f"CREATE MATERIALIZED VIEW {name}_{bound} AS {VIEWS[name].format(bound)}"


if __name__ == "__main__":
    print(json.dumps({name: sorted(files) for name, files in touched_by_each_operation().items()}, indent=1))
