"""Every DuckDB connection that the product makes is confined before it runs anything but settings, and stays so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.check.compare import Shape, compare
from viewkeeper.codegen.confined import connect_confined
from viewkeeper.operators.duck import connect

REAL = duckdb.connect
ESCAPES = (
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_blob('{folder}/*')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT getenv('HOME')",
    "SELECT * FROM a_variable_of_python",
    "ATTACH '{folder}/other.db'",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "EXPORT DATABASE '{folder}/all'",
    "CREATE PERSISTENT SECRET s (TYPE s3)",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/x.duckdb_extension'",
    "SELECT * FROM read_parquet('https://127.0.0.1:9/x.parquet')",
    "SET threads = 2",
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']",
    "SET lock_configuration = false",
    "SET temp_directory = '{folder}'",
    "PRAGMA enable_profiling",
)


def ways_out(connection: duckdb.DuckDBPyConnection, folder: Path) -> list[str]:
    """The statements that a confined connection runs though it should not."""
    a_variable_of_python = pa.table({"x": [1]})
    assert len(a_variable_of_python) == 1
    folder.mkdir(exist_ok=True)
    (folder / "secret.csv").write_text("a\nb\n")
    before = sorted(folder.iterdir())
    open_ones = [statement for statement in ESCAPES if runs(connection, statement, folder)]
    assert sorted(folder.iterdir()) == before
    return open_ones


def runs(connection: duckdb.DuckDBPyConnection, statement: str, folder: Path) -> bool:
    try:
        connection.execute(statement.format(file=folder / "secret.csv", folder=folder)).fetchall()
    except duckdb.Error:
        return False
    return True


class Watched:
    """A connection that records what it runs before its settings are locked, and which ways out it has when it ends."""

    def __init__(self, folder: Path, **options: object) -> None:
        self._real, self._folder, self.early, self.open_ones = REAL(**options), folder, [], None

    def __getattr__(self, name: str) -> object:
        found = getattr(self._real, name)
        if name not in ("execute", "sql", "query", "read_parquet", "read_csv"):
            return found

        def run(*arguments: object, **options: object) -> object:
            if self._real.execute("SELECT current_setting('lock_configuration')").fetchall() == [(False,)]:
                self.early.append(arguments[0])
            return found(*arguments, **options)

        return run

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.open_ones = ways_out(self._real, self._folder)
        self._real.close()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Watched]]:
    """The connections that the product makes within the test."""
    watched: list[Watched] = []

    def connect_watched(**options: object) -> Watched:
        watched.append(Watched(tmp_path / "outside", **options))
        return watched[-1]

    monkeypatch.setattr(duckdb, "connect", connect_watched)
    yield watched


def require_confined(made: list[Watched], count: int) -> None:
    assert len(made) == count
    for one in made:
        assert all(part.strip().startswith(("SET", "PRAGMA")) for text in one.early for part in text.split(";"))
        assert one.open_ones == []


def test_the_escapes_of_this_test_work_where_nothing_is_confined(tmp_path: Path) -> None:
    """Those that leave nothing outside the test's folder: else this file would prove nothing."""
    local = [statement for statement in ESCAPES if "{f" in statement and not statement.startswith(("LOAD", "SET"))]
    (tmp_path / "secret.csv").write_text("a\nb\n")
    with REAL() as free:
        assert [statement for statement in local if not runs(free, statement, tmp_path)] == []


@pytest.mark.parametrize(
    "make", [connect_confined, connect, lambda: connect(optimizes=False), lambda: connect_confined().cursor()]
)
def test_a_confined_connection_has_no_way_out(make: object, tmp_path: Path) -> None:
    with make() as connection:
        assert ways_out(connection, tmp_path / "outside") == []
        assert connection.execute("SELECT current_setting('temp_directory')").fetchone() == ("",)


def test_those_of_a_definition_and_of_a_select_are_confined(made: list[Watched]) -> None:
    db = vk.connect("memory:")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, s STRING)")
    db.table("t").put(1, {"s": "a"})
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, CAST('7' AS INT) + k AS n FROM t")
    keep_up(db)
    assert db.execute("SELECT k + CAST('1' AS INT) AS n FROM t").rows == ((2,),)
    require_confined([one for one in made if one.open_ones is not None], 3)


def test_those_of_a_check_are_confined(made: list[Watched], tmp_path: Path) -> None:
    for side in ("expected", "found", "scratch"):
        (tmp_path / side).mkdir()
        pq.write_table(pa.table({"c0": [1, 2]}), tmp_path / side / "0.parquet")
    shape = Shape("v", ["k"], frozenset(), (0,), (0,), {}, is_near=False)
    assert compare(shape, tmp_path / "expected", tmp_path / "found", tmp_path / "scratch") == (2, [])
    require_confined(made, 1)


@pytest.mark.parametrize("name", ["rows.csv", "a[b]*.csv", "it's.csv"])
def test_those_of_a_load_read_their_files_alone(made: list[Watched], tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("k,s\n1,a\n2,b\n")
    db = vk.connect("memory:")
    assert db.load("t", tmp_path / name, create=True, key="k").rows == 2
    require_confined([one for one in made if one.open_ones is not None], 1)
