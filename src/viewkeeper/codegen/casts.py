"""DuckDB SQL of CAST.

In: the SQL of a value, its type and the type wanted. Out: SQL of the value in that type. Always: it fails exactly where
Spark's ANSI CAST fails.
"""

from __future__ import annotations

from viewkeeper.codegen import decimals
from viewkeeper.model.types import SqlType

# What Spark trims before it parses a string: all characters up to the blank, and DEL.
_TRIMMED = r"[\x00-\x20\x7f]*"
_TRUE = "'t', 'true', 'y', 'yes', '1'"
_FALSE = "'f', 'false', 'n', 'no', '0'"
# Anything may follow a whole date; nothing may follow a year alone or a year with a month.
_DATE = rf"(?s)\A{_TRIMMED}([+-]?[0-9]{{4,7}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T].*)?)?)?{_TRIMMED}\z"


def cast(sql: str, source: SqlType, target: SqlType) -> str:
    match (source.kind, target.kind):
        case ("DECIMAL", "DOUBLE"):
            return decimals.to_double(sql, source)
        case ("DECIMAL", "STRING"):
            return decimals.to_string(sql, source)
        case ("DECIMAL", "INT" | "BIGINT"):
            return f"CAST(trunc({sql}) AS {target.duckdb})"  # Spark truncates, DuckDB's CAST rounds
        case ("DOUBLE", "INT"):
            return f"CAST(trunc({sql}) AS INTEGER)"
        case ("DOUBLE", "BIGINT"):
            return _double_to_bigint(sql)
        case ("INT" | "BIGINT" | "DOUBLE", "BOOLEAN"):
            return f"({sql} <> 0)"
        case ("STRING", "INT" | "BIGINT"):
            return f"CAST({_trimmed(sql, '[+-]?[0-9]+')} AS {target.duckdb})"
        case ("STRING", "BOOLEAN"):
            return _string_to_boolean(sql)
        case ("STRING", "DATE"):
            return _string_to_date(sql)
    return f"CAST({sql} AS {target.duckdb})"


def _double_to_bigint(sql: str) -> str:
    """2^63 does not fit BIGINT, but Spark compares as DOUBLE, where it passes."""
    most = f"CAST('{2**63 - 1}' AS BIGINT)"
    return decimals.let(sql, f"CASE WHEN x = {2.0**63!r}::DOUBLE THEN {most} ELSE CAST(trunc(x) AS BIGINT) END")


def _trimmed(sql: str, form: str) -> str:
    """The part of the string that has the form, between what Spark trims; '' if there is none, which no type parses."""
    return rf"regexp_extract({sql}, '\A{_TRIMMED}({form}){_TRIMMED}\z', 1)"


def _string_to_boolean(sql: str) -> str:
    word = rf"lower({_trimmed(sql, '[A-Za-z01]+')})"
    return decimals.let(
        word,
        f"CASE WHEN x IN ({_TRUE}) THEN TRUE WHEN x IN ({_FALSE}) THEN FALSE ELSE CAST(x || '?' AS BOOLEAN) END",
    )


def _string_to_date(sql: str) -> str:
    year, month, day = (f"regexp_extract(x, '{_DATE}', {group})" for group in (1, 2, 3))
    parts = [f"CASE WHEN {part} = '' THEN 1 ELSE CAST({part} AS INTEGER) END" for part in (month, day)]
    date = f"make_date(CAST({year} AS INTEGER), {', '.join(parts)})"
    known = f"CAST({year} AS INTEGER) BETWEEN 1 AND 9999"
    return decimals.let(sql, f"CASE WHEN {known} THEN {date} WHEN x IS NOT NULL THEN CAST('out of range' AS DATE) END")
