"""Loading: rows of files into a table.

In: CSV, JSON or Parquet files. Out: rows put, in bounded batches; or an error that names the line, or the two lines of
one key. Always: every value of every file is checked before the table is created and the first row is written; keys are
compared by value, as the table compares them, over all rows of all files; rows are put in the files' order, so of two
rows with one key the later wins, and an interrupted load can be repeated; memory does not grow with the files, for
DuckDB keeps the keys, on disk where they are many.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import duckdb
import pyarrow as pa

from viewkeeper.client.bulk_writes import ROWS_PER_TRANSACTION, Part, check_batch, put_rows
from viewkeeper.client.connection import Connection
from viewkeeper.errors import BadRow, DuplicateName, InputError, UnknownName
from viewkeeper.load.files import Reading, SourceFile, failure_of, match_columns, open_files, rows_of
from viewkeeper.load.inference import NULL_TEXTS, guess_null, infer_statement
from viewkeeper.load.text_values import lost_digits_of, misfit_of
from viewkeeper.model.positions import Token
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.syntax import CreateTable
from viewkeeper.sql.statement_parser import parse_statements

_ROW_BITS = 40  # a row's number among those of all files: the file's number, then the row's


def require_unique(connection: duckdb.DuckDBPyConnection, files: Sequence[SourceFile], schema: TableSchema) -> None:
    names = ", ".join(f"k{i}" for i in range(len(schema.key)))
    paths = [str(file.text.path) for file in files]
    rows = " UNION ALL ".join(_keys(file, number, schema) for number, file in enumerate(files))
    counted = f"SELECT count(*) AS n FROM ({rows}) GROUP BY {names}"
    ((keys, total),) = rows_of(connection.sql(f"SELECT count(*), sum(n)::BIGINT FROM ({counted})", params=paths))
    if not keys or keys == total:
        return
    groups = f"SELECT min(place, 2) AS places, {names} FROM ({rows}) GROUP BY {names} HAVING count(*) > 1"
    first = f"SELECT * FROM ({groups}) ORDER BY places[2] LIMIT 1"
    (((one, other), *key),) = rows_of(connection.sql(first, params=paths))
    shown = ", ".join(f"{name}={value}" for name, value in zip(schema.key, key, strict=True))
    fact = f"{total - keys:,} of {total:,} rows have the key of a row before them: {_where(files, one)} and"
    hint = "name more columns as the key; last_wins=True keeps the last row of each key"
    raise BadRow(f"{fact} {_where(files, other)} are both {shown}", f"nothing was written: {hint}")


def _keys(file: SourceFile, number: int, schema: TableSchema) -> str:
    indexes = match_columns(file, schema, ignore_unknown=True)
    keys = [f"{file.value(schema.column(name), indexes[name])} AS k{i}" for i, name in enumerate(schema.key)]
    return f"SELECT {number << _ROW_BITS} + row_number() OVER () - 1 AS place, {', '.join(keys)} FROM {file.relation}"


def _where(files: Sequence[SourceFile], index: int) -> str:
    file, record = files[index >> _ROW_BITS], index & ((1 << _ROW_BITS) - 1)
    return f"{file.label}, {file.place_of(record)}"


Progress = Callable[[int, int], None]  # rows written, rows in all


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded: `created` is the CREATE TABLE statement that was run, if one was.

    Of the rows, `added` have a key that was not in the table, and `replaced` were put over an existing row, from before
    or from the same files. `nulls` are the texts that were guessed to be NULL.
    """

    table: str
    rows: int
    added: int
    replaced: int
    seconds: float
    token: Token
    created: str | None = None
    nulls: tuple[str, ...] = ()


@contextlib.contextmanager
def open_load(paths: Sequence[str | os.PathLike[str]], reading: Reading, *, ignore_unknown: bool) -> Iterator[Load]:
    """The files, ready to be loaded, for the duration of the block."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
        try:
            with open_files(connection, paths, reading) as files:
                found = [guess_null(connection, file) for file in files] if reading.guess_null else files
                yield Load(connection, found, ignore_unknown=ignore_unknown)
        except RuntimeError as error:  # DuckDB's own for Ctrl-C
            if str(error) != "Query interrupted":
                raise
            raise KeyboardInterrupt from None


class Load:
    """Open files to be loaded into a table; `total` rows are known once they are checked."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, files: Sequence[SourceFile], *, ignore_unknown: bool
    ) -> None:
        self._connection = connection
        self._files = files
        self._ignore_unknown = ignore_unknown
        self._started = time.monotonic()
        self.total = self.written = self.added = 0

    def infer(self, table: str, key: Sequence[str], *, last_wins: bool) -> str:
        """The CREATE TABLE statement that fits all files, checked against them."""
        statement = infer_statement(self._connection, table, self._files, key)
        schema = _parse(statement)
        self._check_all(schema)
        if not last_wins:
            require_unique(self._connection, self._files, schema)
        return statement

    def _check_all(self, schema: TableSchema) -> None:
        self.total = sum(self._check(file, schema) for file in self._files)

    def run(
        self,
        database: Connection,
        table: str,
        created: str | None,
        *,
        progress: Progress | None,
        wrote: Callable[[Token], None] | None = None,
    ) -> Loaded:
        """Create the table, if asked for and not done, and put all rows; `wrote` is called for each transaction."""
        if created and _is_there(database, created):
            created = None
        elif created:
            from viewkeeper.client.statements import execute  # with the SQL parser

            execute(database, created)
        schema = database.catalog().table(table)
        if not self.total:  # what was inferred from the files was checked against them
            self._check_all(schema)

        def note(part: Part) -> None:
            self.written += part.rows
            self.added += part.added
            if wrote:
                wrote(part.token)
            if progress:
                progress(self.written, self.total)

        token = Token(database.store.incarnation)
        for file in self._files:
            try:
                token |= put_rows(database, schema, self._reader(file, schema), note)
            except (duckdb.Error, pa.ArrowInvalid) as error:
                fact = f"{file.label} changed while it was loaded: {str(error).splitlines()[0]}"
                raise InputError(f"{fact} ({self.written} rows are written)", "load it again") from None
        replaced, seconds = self.written - self.added, time.monotonic() - self._started
        nulls = tuple(dict.fromkeys(text for file in self._files for text in file.nulls))
        return Loaded(schema.name, self.written, self.added, replaced, seconds, token, created, nulls)

    def _check(self, file: SourceFile, schema: TableSchema) -> int:
        indexes = match_columns(file, schema, ignore_unknown=self._ignore_unknown)
        missing = [name for name in schema.key if name not in indexes]
        if missing:
            raise BadRow(f"{file.label} lacks the key column {', '.join(missing)}", "every row has its whole key")
        tests = [_fault(file, schema.column(name), index) for name, index in indexes.items()]
        # columns without a test are counted, else DuckDB would not read them, and would miss faults there
        wanted = [*(f"count_if({test})" for test in tests), *(f"count(v{index})" for index in indexes.values())]
        rows, *counts = file.aggregate(self._connection, ["count(*)", *wanted])
        if any(counts[: len(tests)]):
            raise self._describe(file, schema, indexes, tests)
        if file.text.format == "parquet":
            self._check_batches(file, schema)
        return rows

    def _check_batches(self, file: SourceFile, schema: TableSchema) -> None:
        """What Arrow refuses in typed columns: a number too large, a nanosecond too many."""
        first = 0
        try:
            for batch in self._reader(file, schema):
                rows = f"rows {first + 1:,} to {first + len(batch):,}"
                check_batch(schema, batch)
                first += len(batch)
        except InputError as error:
            raise type(error)(f"{file.label}, {rows}: {error.fact}", error.hint) from None
        except (duckdb.Error, pa.ArrowInvalid, OSError) as error:  # the last two from batches after the first
            raise failure_of(file.text, error) from None

    def _describe(
        self, file: SourceFile, schema: TableSchema, indexes: dict[str, int], tests: Sequence[str]
    ) -> InputError:
        """The first fault of a file that has one: where and what."""
        tested = list(zip(tests, indexes.items(), strict=True))
        names = " ".join(f"WHEN {test} THEN '{name}'" for test, (name, _) in tested)
        texts = " ".join(f"WHEN {test} THEN v{index}::VARCHAR" for test, (_, index) in tested)
        wanted = ["row_number() OVER () - 1 AS record", f"CASE {names} END AS name", f"CASE {texts} END AS text"]
        faults = file.query(self._connection, wanted).filter("name IS NOT NULL").limit(1)
        for record, name, text in rows_of(faults):
            return _bad_row(file, schema.column(name), record, text)
        return InputError(f"{file.label} changed while it was read", "load it again")

    def _reader(self, file: SourceFile, schema: TableSchema) -> pa.RecordBatchReader:
        indexes = match_columns(file, schema, ignore_unknown=self._ignore_unknown)
        values = [f'{file.value(schema.column(name), index)} AS "{name}"' for name, index in indexes.items()]
        return file.query(self._connection, values).to_arrow_reader(ROWS_PER_TRANSACTION)


def _parse(statement: str) -> TableSchema:
    """The table that a CREATE TABLE would make."""
    parsed = cast(CreateTable, parse_statements(statement)[0])
    return TableSchema(TableId(0), parsed.name, parsed.columns, parsed.key)


def _is_there(database: Connection, created: str) -> bool:
    """Whether the table to be created exists, as an interrupted load leaves it; DuplicateName if it differs."""
    wanted = _parse(created)
    if not database.catalog().has(wanted.name):
        return False
    there = database.catalog().table(wanted.name)
    if (there.columns, there.key) != (wanted.columns, wanted.key):
        raise DuplicateName(f"{there.name} is there already, with other columns", "leave create out to load into it")
    return True


def _fault(file: SourceFile, column: Column, index: int) -> str:
    """SQL that is true where a row's value does not fit the column."""
    kind, text = file.types[index], f"v{index}"
    tests = [misfit_of(column.type, text)] if file.is_text(index) else []
    if kind == "JSON" and column.type.kind == "DECIMAL":
        tests.append(lost_digits_of(text, f"k{index}"))
    if not column.nullable:
        tests.append(f"({file.value(column, index)}) IS NULL")
    return "(" + (" OR ".join(tests) or "false") + ")"


def _bad_row(file: SourceFile, column: Column, record: int, value: str | None) -> BadRow:
    where = f"{file.label}, {file.place_of(record)}"
    if value is None or (not value.strip() and not column.nullable):
        return BadRow(f"{where}: column {column.name} is NULL and must not be", "nothing was written")
    shown = repr(value) if len(value) <= 60 else repr(value[:57] + "…")
    hint = "nothing was written: correct the file, or create the table with another type"
    if file.types[0] == "JSON" and column.type.kind == "DECIMAL":
        hint = "nothing was written; a JSON number keeps 15 digits, a string keeps all"
    if value.strip() in NULL_TEXTS and file.text.format in ("csv", "tsv"):
        hint = f'nothing was written; null="{value.strip()}" reads it as NULL, guess_null=True finds such texts itself'
    return BadRow(f"{where}: column {column.name} is {column.type}, not {shown}", hint)


def require_sensible(*, create: bool, key: Sequence[str], ignore_unknown: bool) -> None:
    if key and not create:
        raise InputError("a key is given for a table that is not created", "create=True makes the table")
    if create and ignore_unknown:
        raise InputError("a table that is created has all columns of the file", "leave ignore_unknown out")


def require_target(database: Connection, table: str, *, create: bool) -> None:
    """Raise, before any file is read, if there is no such table to load into."""
    if database.catalog().has(table):
        database.catalog().table(table)
    elif not create:
        raise UnknownName(f"there is no table {table}", "create=True, with a key, makes it from the files")
