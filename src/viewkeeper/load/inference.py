"""Inference: the CREATE TABLE that fits files, and the texts by which a CSV file says NULL.

In: files and the names of key columns. Out: a statement; or a CSV file that is read with the guessed NULLs. Always: every
value of every file is read, so the inferred types fit all of them; digits are kept: a number with a point becomes DECIMAL
(which views can sum), one with leading zeros stays text, and DOUBLE is only for what nothing exact can hold, and never
for a key. A text is NULL where it occurs in a column that would be of numbers, dates or the like without it, and then it
is NULL in every column of the file; in a file of texts only, NA is a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace

import duckdb

from viewkeeper.errors import InputError, SqlError, UnknownName, UnsupportedSql
from viewkeeper.load.files import SourceFile, column_name, csv_file
from viewkeeper.load.text_values import keeps_digits_as_double, value_of
from viewkeeper.model.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, SqlType, decimal
from viewkeeper.model.wording import suggestion
from viewkeeper.sql.query_parser import check_name, quoted

_PRECISION = 18  # room for larger numbers than those of the first file
_PRECISION_MAX = 38
_SCALE_MAX = 10
_WHOLE = "[+-]?(0|[1-9][0-9]*)"
_PARQUET = {
    **{kind.duckdb: kind for kind in (BOOLEAN, BIGINT, DOUBLE, STRING, BINARY, DATE)},
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), INT),
    "UINTEGER": BIGINT,
    "UBIGINT": decimal(20, 0),
    **{f"TIMESTAMP{unit}": TIMESTAMP for unit in ("", "_S", "_MS", "_NS", " WITH TIME ZONE")},
}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What holds for all values of a text column; `|` is what holds for the values of both."""

    count: int = 0
    is_bare: bool = True  # never a string, object or array of JSON
    is_boolean: bool = True
    is_bigint: bool = True
    is_fixed: bool = True  # digits, with or without a point
    digits: int = 0
    scale: int = 0
    is_double: bool = True
    is_date: bool = True
    is_timestamp: bool = True

    def __or__(self, other: _Facts) -> _Facts:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return _Facts(*(min(pair) if isinstance(pair[0], bool) else max(pair) for pair in pairs))

    def choose(self) -> SqlType | None:
        """The narrowest type that represents every value unchanged; None where all values are NULL."""
        if not self.count:
            return None
        if self.is_bare:
            if self.is_boolean:
                return BOOLEAN
            if self.is_fixed and not self.scale and self.is_bigint:
                return BIGINT
            precision = self.digits + self.scale
            is_exact = self.is_fixed and precision <= _PRECISION_MAX
            if is_exact and self.scale <= _SCALE_MAX:
                return decimal(max(_PRECISION, precision), self.scale)
            if self.is_double and (self.scale or not self.is_fixed):  # an integer that nothing exact holds stays text
                return DOUBLE
            if is_exact:
                return decimal(max(_PRECISION, precision), self.scale)
        return DATE if self.is_date else TIMESTAMP if self.is_timestamp else STRING


def infer_statement(
    connection: duckdb.DuckDBPyConnection, table: str, files: Sequence[SourceFile], key: Sequence[str]
) -> str:
    if not key:
        raise InputError(f"table {table} needs a key to be created", 'name the key columns: --key id, or key=("id",)')
    check_name(table, "table")
    for file in files:
        for name in file.names:
            try:
                check_name(name, "column")
            except SqlError as error:
                raise SqlError(f"{file.label}: {error.fact}", f"rename it in the file: {error.hint}") from None
    found: dict[str, tuple[SqlType | None, _Facts]] = {}
    spelled: dict[str, str] = {}
    for file in files:
        for name, (kind, facts) in zip(file.names, _infer(connection, file), strict=True):
            name = spelled.setdefault(name.lower(), name)
            known, before = found.get(name, (None, _Facts()))
            found[name] = _widen(known, kind), before | facts
    key = [column_name(name) for name in key]
    for name in key:
        if name.lower() not in spelled:
            raise UnknownName(f"there is no key column {name}", suggestion(name, found, "the columns are"))
    keys = [spelled[name.lower()] for name in key]
    columns = [f"{quoted(name)} {_join(*pair, is_key=name in keys)}" for name, pair in found.items()]
    return f"CREATE TABLE {quoted(table)} ({', '.join(columns)}, PRIMARY KEY ({', '.join(map(quoted, keys))}))"


def _join(typed: SqlType | None, facts: _Facts, *, is_key: bool) -> SqlType:
    """The type for the values of typed columns and of text columns."""
    inferred = facts.choose()
    if is_key and inferred == DOUBLE:
        inferred = STRING  # two texts of one DOUBLE are two keys to their author
    widened = _widen(typed, inferred)
    return STRING if widened is None or (widened == DOUBLE and not facts.is_double) else widened


def _infer(connection: duckdb.DuckDBPyConnection, file: SourceFile) -> list[tuple[SqlType | None, _Facts]]:
    """The type of each column of a Parquet file; for text the facts about its values."""
    indexes = range(len(file.names))
    if file.text.format == "parquet":
        found: list[tuple[SqlType | None, _Facts]] = []
        for name, kind in zip(file.names, file.types, strict=True):
            number = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
            if not number and kind not in _PARQUET:
                fact = f"column {name} of {file.label} is {kind}, for which there is no type"
                raise UnsupportedSql(fact, "leave the column out, or make it a string first")
            found.append((decimal(int(number[1]), int(number[2])) if number else _PARQUET[kind], _Facts()))
        return found
    wanted = [fact for i in indexes for fact in _facts(f"v{i}", f"k{i}" if file.types[i] == "JSON" else None)]
    row, size = file.aggregate(connection, wanted), len(fields(_Facts))
    parts = [row[i * size : (i + 1) * size] for i in indexes]
    return [(None, _Facts(*part) if part[0] else _Facts()) for part in parts]


def _facts(text: str, json_kind: str | None) -> list[str]:
    """Aggregates over a column, in the order of the fields of `_Facts`."""
    trimmed = f"nullif(trim({text}), '')"
    there = f"FILTER (WHERE {trimmed} IS NOT NULL)"

    return [
        f"count({trimmed})",
        f"bool_and({json_kind} NOT IN ('VARCHAR', 'OBJECT', 'ARRAY'))" if json_kind else "true",
        f"bool_and(regexp_full_match({trimmed}, '(?i)true|false'))",
        f"bool_and(TRY_CAST({trimmed} AS BIGINT) IS NOT NULL) {there}",
        rf"bool_and(regexp_full_match({trimmed}, '{_WHOLE}(\.[0-9]+)?'))",
        f"max(length(regexp_extract({trimmed}, '^[+-]?([0-9]*)', 1)))",
        rf"max(length(regexp_extract({trimmed}, '\.([0-9]*)$', 1)))",
        f"bool_and({keeps_digits_as_double(trimmed)}) {there}",
        f"bool_and({value_of(DATE, trimmed)} IS NOT NULL) {there}",
        f"bool_and({value_of(TIMESTAMP, trimmed)} IS NOT NULL) {there}",
    ]


def _widen(one: SqlType | None, other: SqlType | None) -> SqlType | None:
    """A type that holds the values of both; STRING when there is no better one."""
    if one is None or other is None or one == other:
        return one or other
    if one.is_integer and other.is_integer:
        return BIGINT
    if one.is_exact and other.is_exact:
        scale = max(one.scale, other.scale)
        precision = max(_whole_digits(one), _whole_digits(other)) + scale
        return decimal(precision, scale) if precision <= _PRECISION_MAX else STRING
    if one.is_numeric and other.is_numeric:
        return DOUBLE
    return TIMESTAMP if {one, other} == {DATE, TIMESTAMP} else STRING


def _whole_digits(kind: SqlType) -> int:
    return {"INT": 10, "BIGINT": 19}.get(kind.kind, kind.whole_digits)


NULL_TEXTS = ("NA", "NULL", "\\N")


def guess_null(connection: duckdb.DuckDBPyConnection, file: SourceFile) -> SourceFile:
    """The file with the texts that are NULL in it; other formats than CSV mark NULL themselves."""
    if file.text.format not in ("csv", "tsv"):
        return file
    facts = _infer(connection, csv_file(file.text, ("", *NULL_TEXTS)))
    typed = [f"v{index}" for index, (_, column) in enumerate(facts) if column.choose() not in (None, STRING)]
    if not typed:
        return file
    tests = [" OR ".join(f"{value} = '{text}'" for value in typed) for text in NULL_TEXTS]
    found = file.aggregate(connection, [f"coalesce(bool_or({test}), false)" for test in tests])
    nulls = tuple(text for text, is_there in zip(NULL_TEXTS, found, strict=True) if is_there)
    return replace(csv_file(file.text, ("", *nulls)), nulls=nulls)
