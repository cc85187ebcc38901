"""TPC-H: its queries as views, equal to DuckDB's answers after every refresh; and the page that says which are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, ManagersRunner
from tests.support.source_tree import ROOT
from tests.support.tiers import examples
from tests.support.tpch import TpchModel, create_tables, generate, records, views
from tests.support.tpch_queries import CHANGES, QUERIES, REWRITTEN, WAYS_ROUND
from viewkeeper.client.database import Database
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import UnsupportedSql

PAGE = ROOT / "docs" / "tpch.md"
SCALE, SHARE, REFRESHES = 0.01, 0.001, examples(3, deep=10)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    return generate(tmp_path_factory.mktemp("tpch"), SCALE)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with vk.connect(f"embedded:{tmp_path / 'store'}?sync=off") as database:
        create_tables(database)
        yield database


def _refusal(db: Database, query: int) -> UnsupportedSql:
    with pytest.raises(UnsupportedSql) as refused:
        db.execute(f"CREATE MATERIALIZED VIEW refused AS {QUERIES[query]}")
    return refused.value


def test_every_query_is_kept_through_its_refreshes(db: Database, tables: dict[str, pa.Table]) -> None:
    model = TpchModel(tables)
    model.load(db)
    for query, sql in views().items():
        db.execute(f"CREATE MATERIALIZED VIEW q{query} AS {sql}")
    answers = {}
    for refresh in range(REFRESHES + 1):
        changed = model.refresh(db, SHARE) if refresh else 0
        runner = ManagersRunner(db.store, 3, seed=refresh) if refresh % 4 == 3 else HereRunner(db.store)
        Coordinator(db.store, runner).catch_up()
        before, answers = answers, {query: model.answer(query) for query in QUERIES}

        wrong = [query for query, answer in answers.items() if records(db, f"q{query}") != answer]
        assert wrong == [], f"after refresh {refresh} of {changed} rows"
    assert all(answers.values())
    assert before[1] != answers[1]
    asked = {query: Counter(db.execute(sql)) for query, sql in views().items()}
    assert [query for query, answer in answers.items() if asked[query] != answer] == []


def test_each_query_is_kept_or_refused(db: Database) -> None:
    assert list(QUERIES) == list(range(1, 23))
    assert CHANGES.keys() | REWRITTEN.keys() == QUERIES.keys()
    assert CHANGES.keys() & REWRITTEN.keys() == set()
    for query in CHANGES:
        db.execute(f"CREATE MATERIALIZED VIEW q{query} AS {QUERIES[query]}")
    for query in REWRITTEN:
        _refusal(db, query)


def test_the_page_says_what_became_of_each_query(db: Database) -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = []
    for query in QUERIES:
        if query in CHANGES:
            rows.append(f"| {query} | kept | {CHANGES[query]} |")
        else:
            rows.append(f"| {query} | refused: {_refusal(db, query).fact} | {WAYS_ROUND[query]} |")

    assert "\n".join(rows) in page
    for query, sql in REWRITTEN.items():
        assert f"Query {query}:\n\n```sql{sql}```\n" in page
