"""Every aggregate, with FILTER, DISTINCT, inside of an expression and in HAVING, is kept up as Python computes it.

`tests/spark/test_aggregates_match_spark.py` holds the same views to Spark.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.aggregate_forms import COLUMNS, expected, random_row, views
from tests.support.running import keep_up

ROWS = 30


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY (k))")
        for name, query in views().items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        yield db


def wrong(db: vk.Database) -> dict[str, object]:
    """The views that do not hold what they should, with what they hold and what they lack."""
    found: dict[str, object] = {}
    for name, bag in expected(list(db.table("t").scan())).items():
        held = Counter(tuple(row.values()) for row in db.view(name).scan())
        asked = Counter(db.execute(views()[name]))  # the same text as a SELECT
        if held != bag or asked != bag:
            found[name] = views()[name], dict(held - bag), dict(bag - held), dict(asked - bag)
    return found


def test_every_aggregate_in_every_form_is_what_python_computes(db: vk.Database) -> None:
    source, table = random.Random(12), db.table("t")
    for place in range(ROWS):
        table.put(place, random_row(source))
    keep_up(db)
    assert wrong(db) == {}

    for place in source.sample(range(ROWS), 12):
        table.put(place, random_row(source))
    for place in source.sample(range(ROWS), 10):
        table.delete(place)
    keep_up(db)
    assert wrong(db) == {}
