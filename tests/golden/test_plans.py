"""Golden plans: the views of a file, what their texts say, and the plan that is run; every view is also executed."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.golden.conftest import TABLES
from tests.support.plans import bound_text, with_deltas
from tests.support.running import keep_up
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.model.syntax import CreateIndex, CreateView
from viewkeeper.plan.define import define_index, define_view
from viewkeeper.plan.explain.explain import explain, plan_lines
from viewkeeper.plan.explain.plan_lines import OPERATOR, VIEW
from viewkeeper.plan.planner import physical_plan
from viewkeeper.sql.statement_parser import parse_statements

FILES = sorted((Path(__file__).parent / "plans").glob("*.plan"))
RULE = "\n----\n"

ORDERS = [
    (1, "eu", 3, "1.25", "1", 2.5, True, date(2024, 1, 1)),
    (2, "eu", None, "-0.05", None, None, None, None),
    (3, None, 7, None, "-5.5", -1.0, False, date(2024, 2, 29)),
    (4, "us", 0, "2.50", "0", 0.0, True, date(2023, 12, 31)),
    (5, "us", 12, "99999999.99", "3", 1e10, False, date(2024, 1, 1)),
    (6, "", -4, "0.01", "2", -0.0, None, None),
]
# Keys with one match, with several, and with none on either side; a NULL that must match nothing.
ROWS: dict[str, list[tuple[object, ...]]] = {
    "orders": ORDERS,
    "users": [(1, "ann"), (2, None), (7, "bob")],
    "shops": [(1, "eu", "north"), (2, "eu", "south"), (3, "us", "west"), (4, None, "moon"), (5, "asia", "east")],
    "items": [(1, 1, "pen", 2), (1, 2, "ink", 4), (3, 1, "pen", 5), (4, 1, None, 7), (9, 1, "cap", 1)],
    "payments": [(1, "card", date(2024, 1, 2)), (3, "cash", None), (8, "card", date(2024, 3, 1))],
    "archive": [(1, "eu", 3), (2, "eu", None), (3, "eu", 3), (4, "us", 5)],
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_plan_is_the_recorded_one(path: Path, catalog: Catalog, recording: bool) -> None:
    text = path.read_text(encoding="utf-8").split(RULE)[0].strip()
    catalog = _with_views(with_deltas(catalog) if "stored" in path.stem else catalog, text)
    found = RULE.join([text, bound_text(catalog), explain(catalog, None)]) + "\n"
    if recording:
        path.write_text(found, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_plan_has_the_nodes_that_an_epoch_runs(path: Path, catalog: Catalog) -> None:
    catalog = _with_views(catalog, path.read_text(encoding="utf-8").split(RULE)[0])
    printed = [line.stored for line in plan_lines(catalog, catalog.views) if line.kind in (OPERATOR, VIEW)]
    assert {table for table in printed if table is not None} == {node.table for node in physical_plan(catalog).nodes}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_view_is_what_the_query_says(path: Path, catalog: Catalog, tmp_path: Path) -> None:
    connection = duckdb.connect()
    database = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    database.execute(TABLES)
    for name in ROWS:
        connection.register(name, _rows(catalog, name))
        database.table(name).put_many(_rows(catalog, name))
    for view in _with_views(catalog, path.read_text(encoding="utf-8").split(RULE)[0]).views:
        query = view.text
        if view.kind == "INDEX":
            query = f"SELECT {', '.join(shown.column.name for shown in view.shown)} FROM orders"
        connection.execute(f"CREATE VIEW {view.name} AS {query}")
        expected = Counter(map(repr, connection.sql(f"FROM {view.name}").fetchall()))
        assert Counter(map(repr, _maintained(database, view))) == expected, view.name
        # the same text means the same when it is asked once, over the tables and over the view
        assert Counter(map(repr, database.execute(query))) == expected, view.name
        assert Counter(map(repr, database.execute(f"SELECT * FROM {view.name}"))) == expected, view.name


def _with_views(catalog: Catalog, text: str) -> Catalog:
    for statement in parse_statements(text):
        match statement:
            case CreateView(name=name, query_text=query):
                view, nodes = define_view(catalog, name, query)
            case CreateIndex(name=name, table=table, columns=columns, covered=covered):
                view, nodes = define_index(catalog, name, table, columns, covered)
            case _:
                raise AssertionError(f"{statement} does not belong in a golden plan")
        catalog = catalog.with_view(view, nodes)
    return catalog


def _rows(catalog: Catalog, name: str) -> pa.Table:
    columns = {}
    for place, column in enumerate(catalog.table(name).columns):
        values = [row[place] for row in ROWS[name]]
        if column.type.kind == "DECIMAL":
            values = [None if value is None else Decimal(str(value)) for value in values]
        columns[column.name] = pa.array(values, column.type.arrow)
    return pa.table(columns)


def _maintained(database: vk.Database, view: ViewDefinition) -> list[tuple[object, ...]]:
    """The view's rows as an epoch makes them from the rows of the tables."""
    database.execute(view.text if view.kind == "INDEX" else f"CREATE MATERIALIZED VIEW {view.name} AS {view.text}")
    keep_up(database)
    return [tuple(row.values()) for row in database.view(view.name).scan()]
