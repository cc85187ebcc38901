"""DuckDB inside a view manager: statements over few rows are planned once, and answer for the rows of each call."""

from __future__ import annotations

import itertools
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest

from viewkeeper.operators import duck
from viewkeeper.operators.duck import FEW_ROWS, run_row_by_row, run_sql

SQL = "SELECT x + 1 AS y FROM rows"


def answers(*tables: pa.Table) -> list[list]:
    return [run_sql(SQL, rows=table)["y"].to_pylist() for table in tables]


def test_a_statement_answers_for_the_rows_of_each_call_few_or_many() -> None:
    few, other, many = (pa.table({"x": list(range(count))}) for count in (1, 3, FEW_ROWS + 1))

    assert answers(few, other, many, few) == [[1], [1, 2, 3], list(range(1, FEW_ROWS + 2)), [1]]


def test_one_text_over_relations_of_other_types_is_another_statement() -> None:
    small, wide = pa.table({"x": pa.array([1], pa.int32())}), pa.table({"x": pa.array([1.5]), "z": ["a"]})

    assert answers(small, wide, small) == [[2], [2.5], [2]]
    assert run_sql(SQL, rows=small).schema == pa.schema({"y": pa.int32()})


def test_after_a_row_that_fails_a_statement_goes_on() -> None:
    sql = "SELECT CAST(x AS INTEGER) AS y FROM rows"
    with pytest.raises(duckdb.ConversionException):
        run_sql(sql, rows=pa.table({"x": ["a"]}))

    assert run_sql(sql, rows=pa.table({"x": ["7"]}))["y"].to_pylist() == [7]


def test_so_many_statements_are_kept_and_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duck, "STATEMENTS_MAX", 2)
    statements = duck._Statements()
    rows = pa.table({"x": [1]})
    for number in (1, 2, 3, 2, 1):
        assert statements.run(f"SELECT x + {number} AS y FROM rows", {"rows": rows})["y"].to_pylist() == [1 + number]

    assert [key[0] for key in statements._kept] == [f"SELECT x + {number} AS y FROM rows" for number in (2, 1)]
    assert all(fed.rows is None for _, relations in statements._kept.values() for fed in relations.values())


def test_a_process_that_asked_ends_without_a_word() -> None:
    asks = 'run_sql("SELECT x FROM rows", rows=pa.table({"x": [1]}))'
    script = f"import pyarrow as pa\nfrom viewkeeper.operators.duck import run_sql\n{asks}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("sizes", [(10, 65), (63, 5_000), (64, 63, 100), (2_048, 1, 2_048, 5)])
def test_rows_are_in_the_order_of_the_relation_though_duckdb_holds_chunks_back(sizes: tuple[int, ...]) -> None:
    ends = list(itertools.accumulate(sizes, initial=0))
    numbers = [list(range(start, stop)) for start, stop in itertools.pairwise(ends)]
    rows = pa.concat_tables([pa.table({"ord": [7 * one for one in part], "x": part}) for part in numbers])
    sql = "SELECT x IN (0, 2, 4, 6, 8, 10, 70, 71) AS inside, x AS x FROM rows"

    found = run_row_by_row(sql, rows=rows)

    assert found["x"].to_pylist() == rows["x"].to_pylist()
    assert found["inside"].to_pylist() == [x in (0, 2, 4, 6, 8, 10, 70, 71) for x in rows["x"].to_pylist()]
    assert found.column_names == ["inside", "x"]
