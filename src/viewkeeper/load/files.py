"""Files to load: which columns a file has, and a DuckDB relation that returns them.

In: paths and how to read them. Out: for each file its column names and SQL for its columns `v0`, `v1`, …. Always: text
(CSV, TSV, JSON lines or a JSON array) is read as VARCHAR, exactly as written, and the loader interprets it; the first
line of CSV names the columns; nothing is guessed from a sample.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import sys
import tempfile
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import duckdb

from viewkeeper.client.arguments import take_path, take_text
from viewkeeper.codegen.confined import confine, literal
from viewkeeper.errors import InputError, UnknownName
from viewkeeper.load.lines import TextFile
from viewkeeper.load.text_values import value_of
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.wording import suggestion

FORMATS = {
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
}
# Types that a table cannot have, and the types that hold their values.
_PARQUET_CASTS = {
    "JSON": "VARCHAR",
    "UUID": "VARCHAR",
    "TIME": "VARCHAR",
    "FLOAT": "DOUBLE",
    "HUGEINT": "DECIMAL(38,0)",
    "UHUGEINT": "DECIMAL(38,0)",
}
_TEXT = ("VARCHAR", "JSON")  # JSON: text whose kind the file also states
_GLOB = frozenset("*?[")
_BOM = b"\xef\xbb\xbf"
_SAY_FORMAT = 'say it: --format csv, or format="csv"'


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read: `format` None goes by the suffix, `delimiter` None by the first line, `null` is CSV's NULL.

    `guess_null`: besides empty text, those of NA, NULL and \\N that occur among numbers or dates.
    """

    format: str | None = None
    delimiter: str | None = None
    null: str = ""
    guess_null: bool = False


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, its columns, and `SELECT`-able SQL with the path as its one parameter."""

    text: TextFile
    names: tuple[str, ...]
    types: tuple[str, ...]  # DuckDB's; VARCHAR for text
    relation: str
    nulls: tuple[str, ...] = ()  # texts that were guessed to be NULL

    @property
    def label(self) -> str:
        return self.text.label

    def place_of(self, record: int) -> str:
        """Where a record is, for people: the line in a text file, else the row."""
        line = None if self.text.format == "parquet" else self.text.line_of(record)
        return f"row {record + 1:,}" if line is None else f"line {line}"

    def is_text(self, target: int) -> bool:
        return self.types[target] in _TEXT

    def value(self, column: Column, target: int) -> str:
        """SQL for a value of the table's column, which is at target `place` in the file."""
        return value_of(column.type, f"v{target}") if self.is_text(target) else f"v{target}"

    def query(self, connection: duckdb.DuckDBPyConnection, expressions: Sequence[str]) -> duckdb.DuckDBPyRelation:
        """The expressions over the file's columns, row by row and in the file's order."""
        return connection.sql(f"SELECT {', '.join(expressions)} FROM {self.relation}", params=[str(self.text.path)])

    def aggregate(self, connection: duckdb.DuckDBPyConnection, expressions: Sequence[str]) -> tuple[Any, ...]:
        """One row of aggregates over the file's columns; InputError where DuckDB cannot read the file."""
        try:
            return rows_of(self.query(connection, expressions))[0]
        except duckdb.Error as error:
            raise failure_of(self.text, error) from None


def rows_of(relation: duckdb.DuckDBPyRelation) -> list[tuple[Any, ...]]:
    """The rows of a small result. Unlike `fetchall`, a reader of batches ends when its user presses Ctrl-C."""
    columns = [column.to_pylist() for column in relation.to_arrow_reader().read_all().columns]
    return list(zip(*columns, strict=True))


@contextlib.contextmanager
def open_files(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[str | os.PathLike[str]], reading: Reading
) -> Iterator[list[SourceFile]]:
    if not paths:
        raise InputError("there is no file to load", "name one or more files")
    if reading.format is not None and reading.format not in FORMATS:
        raise InputError(f"format {reading.format!r} is not known", f"use one of {', '.join(FORMATS)}")
    if reading.guess_null and reading.null:
        raise InputError(f"NULL is {reading.null!r} and to be guessed", "give null or guess_null, not both")
    for path in paths:
        take_path("a file", path)
    for name, text in (("delimiter", reading.delimiter), ("null", reading.null)):
        if text is not None:
            take_text(name, text)
    if reading.delimiter is not None and (len(reading.delimiter) != 1 or reading.delimiter in '"\r\n'):
        raise InputError(f"delimiter {reading.delimiter!r} is not a character", "use one character, such as ;")
    with _temporary_directory() as directory:
        targets = [directory / str(number) for number in range(len(paths))]
        texts = [_locate(os.fspath(path), reading, target) for path, target in zip(paths, targets, strict=True)]
        confine(connection, files=[text.path for text in texts], folder=directory)  # it spills more keys than fit there
        yield [_describe(connection, text, reading) for text in texts]


@contextlib.contextmanager
def _temporary_directory() -> Iterator[Path]:
    """A directory that is gone after the block, whenever Ctrl-C is pressed: tempfile's own outlives one at its start."""
    directory = Path(tempfile.gettempdir(), f"viewkeeper-load-{uuid.uuid4().hex}")
    try:
        directory.mkdir(mode=0o700)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def failure_of(file: TextFile, error: Exception) -> InputError:
    """The error for a file that DuckDB could not read: where the fault is, found by counting lines ourselves.

    DuckDB's own number is that of the record; quoted line breaks change the line.
    """
    if file.format != "parquet":
        try:
            file.require_sound()
        except InputError as fault:
            return fault
    reason = str(error).splitlines()[0].removeprefix("Invalid Input Error: ")
    hint = "do all lines end alike, in \\n or in \\r\\n?" if file.format in ("csv", "tsv") else None
    return InputError(f"{file.label} cannot be read as {file.format}: {reason}", hint)


def _locate(name: str, reading: Reading, target: Path) -> TextFile:
    """The file with a name; where DuckDB cannot read it in place, a copy."""
    if name == "-":
        if reading.format is None:
            raise InputError("the format of the input is not known", _SAY_FORMAT)
        return TextFile("the input", _copy(sys.stdin.buffer, target), reading.format)  # read twice, so it is copied
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{name} is a directory", "name the files in it")
    if not path.is_file():
        raise InputError(f"there is no file {name}", "is the path right?")
    if path.suffix.lower() == ".zip":
        return _unzip(path, name, reading, target)
    is_gzip = path.suffix.lower() == ".gz"
    found = _format_of(name, path.with_suffix("") if is_gzip else path, reading)
    if path.stat().st_size == 0:
        hint = "CSV begins with a line of column names" if found in ("csv", "tsv") else None
        raise InputError(f"{name} is empty", hint)
    if is_gzip:
        try:
            with gzip.open(path) as stream:  # to its end: DuckDB does not compare the checksum
                while stream.read(1 << 20):
                    pass
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            hint = "is the suffix right?"
            raise InputError(f"{name} is not compressed by gzip, or damaged: {error}", hint) from None
    with gzip.open(path) if is_gzip else path.open("rb") as stream:
        if found == "jsonl" and stream.read(3) == _BOM:  # which DuckDB does not accept before JSON
            return TextFile(name, _copy(stream, target), found)
    if _GLOB & set(name):  # DuckDB would look for many files
        target.symlink_to(path.absolute())
        path = target
    return TextFile(name, path, found, is_gzip=is_gzip)


def _copy(stream: IO[bytes] | gzip.GzipFile, target: Path) -> Path:
    """The rest of a stream as a file, without a byte order mark."""
    with target.open("wb") as copy:
        copy.write(stream.read(len(_BOM)).removeprefix(_BOM))
        shutil.copyfileobj(stream, copy)
    return target


def _format_of(name: str, path: Path, reading: Reading) -> str:
    found = reading.format or next((f for f, ends in FORMATS.items() if path.suffix.lower() in ends), None)
    if found is None:
        raise InputError(f"{name} has no suffix that names its format", _SAY_FORMAT)
    return found


def _unzip(path: Path, name: str, reading: Reading, target: Path) -> TextFile:
    """The only file of a zip archive, extracted."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                names = ", ".join(member.filename for member in members[:5]) + ("" if len(members) <= 5 else ", …")
                raise InputError(f"{name} holds {len(members)} files: {names}", "unzip it, and load the files you mean")
            label = f"{members[0].filename} in {name}"
            found = _format_of(label, Path(members[0].filename), reading)
            with archive.open(members[0]) as packed:
                return TextFile(label, _copy(packed, target), found)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # damaged, encrypted, or too new
        hint = "is it a whole zip archive, without a password?"
        raise InputError(f"{name} cannot be unzipped: {error}", hint) from None


def _describe(connection: duckdb.DuckDBPyConnection, text: TextFile, reading: Reading) -> SourceFile:
    try:
        if text.format == "parquet":
            return _parquet(connection, text)
        if text.format == "jsonl":
            return _json(connection, text.with_array())
        return csv_file(text.with_delimiter(reading.delimiter), (reading.null,))
    except duckdb.Error as error:
        raise failure_of(text.with_array() if text.format == "jsonl" else text, error) from None


def csv_file(text: TextFile, nulls: Sequence[str]) -> SourceFile:
    """A file of CSV in which each of `nulls` is NULL where it is not quoted."""
    names = text.header()
    columns = ", ".join(f"'v{i}': 'VARCHAR'" for i in range(len(names)))
    relation = (
        f"read_csv(?, auto_detect=false, header=true, columns={{{columns}}}, delim={literal(text.delimiter)}, "
        f"quote='\"', escape='\"', nullstr=[{', '.join(map(literal, nulls))}], allow_quoted_nulls=false, "
        f"compression='{'gzip' if text.is_gzip else 'none'}', max_line_size=16777216)"
    )
    return SourceFile(text, _column_names(text, names), ("VARCHAR",) * len(names), relation)


def _json(connection: duckdb.DuckDBPyConnection, text: TextFile) -> SourceFile:
    form = "array" if text.is_array else "newline_delimited"
    rows = f"read_json_objects(?, format='{form}', compression='{'gzip' if text.is_gzip else 'none'}')"
    keys = "CASE WHEN json_type(json) = 'OBJECT' THEN json_keys(json) ELSE [NULL] END"
    found = rows_of(connection.sql(f"SELECT DISTINCT unnest({keys}) FROM {rows}", params=[str(text.path)]))
    names = text.in_order({name for (name,) in found})
    paths = ", ".join(literal('$."' + name.replace('"', '\\"') + '"') for name in names)
    values = ", ".join(f"value[{i + 1}] AS v{i}, kind[{i + 1}] AS k{i}" for i in range(len(names)))
    parsed = f"SELECT json_extract_string(json, [{paths}]) AS value, json_type(json, [{paths}]) AS kind FROM {rows}"
    return SourceFile(text, _column_names(text, names), ("JSON",) * len(names), f"(SELECT {values} FROM ({parsed}))")


def _parquet(connection: duckdb.DuckDBPyConnection, text: TextFile) -> SourceFile:
    described = connection.sql("SELECT * FROM read_parquet(?)", params=[str(text.path)])
    names = tuple(described.columns)
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    kinds = [str(kind) for kind in described.types]
    types = ["VARCHAR" if kind.startswith("ENUM") else _PARQUET_CASTS.get(kind, kind) for kind in kinds]
    pairs = enumerate(zip(quoted, kinds, types, strict=True))
    values = ", ".join(f"{n if k == t else f'CAST({n} AS {t})'} AS v{i}" for i, (n, k, t) in pairs)
    return SourceFile(text, _column_names(text, names), tuple(types), f"(SELECT {values} FROM read_parquet(?))")


def column_name(text: str) -> str:
    """The column name for a name in a file: `Order Id` is Order_Id. A name that SQL accepts is unchanged."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") if re.search(r"[^A-Za-z0-9_]", text) else text
    return f"_{name}" if name[:1].isdigit() else name or text


def _column_names(text: TextFile, names: Sequence[str]) -> tuple[str, ...]:
    spelled: dict[str, str] = {}
    for name in names:
        key = column_name(name).lower()
        other = spelled.get(key)
        if other is not None and other.lower() == name.lower():
            raise InputError(f"{text.label} has two columns {name}", "names are the same in any case; rename one")
        if other is not None:
            fact = f"{text.label} has the columns {other!r} and {name!r}, which are both {column_name(name)} in SQL"
            raise InputError(fact, "rename one")
        spelled[key] = name
    return tuple(map(column_name, names))


def match_columns(file: SourceFile, schema: TableSchema, *, ignore_unknown: bool) -> dict[str, int]:
    """The target in the file of each of the table's columns that it has; names are case-insensitive."""
    spelled = {column.name.lower(): column.name for column in schema.columns}
    unknown = [name for name in file.names if name.lower() not in spelled]
    if unknown and not ignore_unknown:
        fact = f"{file.label} has columns that the table has not: {', '.join(unknown)}"
        hint = suggestion(unknown[0], spelled.values(), "the table has")
        raise UnknownName(fact, f"{hint}; ignore_unknown=True leaves the others out")
    return {spelled[name.lower()]: i for i, name in enumerate(file.names) if name.lower() in spelled}
