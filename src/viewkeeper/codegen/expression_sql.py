"""DuckDB SQL of bound expressions: operators, functions and casts.

In: a bound expression. Out: SQL over the columns `c<position>`. Always: the user's characters appear only inside escaped
literals; every type is written out; an expression fails exactly on the rows on which Spark's ANSI evaluation fails, and
`guarded` turns that failure into NULL; an argument that is long or may fail is written once, under a name.

Spark evaluates lazily: a NULL operand ends an operator, AND and OR stop early, CASE and COALESCE take one branch. DuckDB is
lazy only in CASE and COALESCE; so a fallible part that may be skipped is written into a CASE.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence

from viewkeeper.algebra import decimals
from viewkeeper.algebra.construct import is_nonzero, magnitude_max
from viewkeeper.algebra.expressions import AggregationRef, Call, Case, Cast, ColumnRef, Expression, Literal, operands
from viewkeeper.errors import InvariantBroken, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType
from viewkeeper.sql.function_rows import STRICT, Function
from viewkeeper.sql.function_table import SCALARS

# What Spark trims before it parses a string: all characters up to the blank, and DEL.
_TRIMMED = r"[\x00-\x20\x7f]*"
_WORD_TO_BOOLEAN = (
    "CASE WHEN x IN ('t', 'true', 'y', 'yes', '1') THEN TRUE "
    "WHEN x IN ('f', 'false', 'n', 'no', '0') THEN FALSE ELSE CAST(x || '?' AS BOOLEAN) END"
)
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
            # 2^63 does not fit BIGINT, but Spark compares as DOUBLE, where it passes
            most = f"CAST('{2**63 - 1}' AS BIGINT)"
            return decimals.let(sql, f"CASE WHEN x = {2.0**63!r}::DOUBLE THEN {most} ELSE CAST(trunc(x) AS BIGINT) END")
        case ("INT" | "BIGINT" | "DOUBLE", "BOOLEAN"):
            return f"({sql} <> 0)"
        case ("STRING", "INT" | "BIGINT"):
            return f"CAST({_trimmed(sql, '[+-]?[0-9]+')} AS {target.duckdb})"
        case ("STRING", "BOOLEAN"):
            return decimals.let(f"lower({_trimmed(sql, '[A-Za-z01]+')})", _WORD_TO_BOOLEAN)
        case ("STRING", "DATE"):
            return _string_to_date(sql)
    return f"CAST({sql} AS {target.duckdb})"


def _trimmed(sql: str, form: str) -> str:
    """The part of the string that has the form, between what Spark trims; '' if there is none, which no type parses."""
    return rf"regexp_extract({sql}, '\A{_TRIMMED}({form}){_TRIMMED}\z', 1)"


def _string_to_date(sql: str) -> str:
    year, month, day = (f"regexp_extract(x, '{_DATE}', {group})" for group in (1, 2, 3))
    parts = [f"CASE WHEN {part} = '' THEN 1 ELSE CAST({part} AS INTEGER) END" for part in (month, day)]
    date = f"make_date(CAST({year} AS INTEGER), {', '.join(parts)})"
    known = f"CAST({year} AS INTEGER) BETWEEN 1 AND 9999"
    return decimals.let(sql, f"CASE WHEN {known} THEN {date} WHEN x IS NOT NULL THEN CAST('out of range' AS DATE) END")


_SHORT = 60  # characters of SQL that may be written several times


def emit_function(call: Call, sqls: Sequence[str]) -> str:
    function = SCALARS.get(call.name)
    if function is None:
        raise InvariantBroken(f"no DuckDB SQL for {call.name}")
    if function.nulls is not STRICT:  # its text handles NULL
        return _text(function, call, sqls)
    order = (1, 0) if function.divides else range(len(sqls))
    # A constant that fails must not be in a WHEN, where DuckDB evaluates it before any row; a name is not a constant.
    short = not function.divides and all(
        len(sql) <= _SHORT and not arg.fallible for sql, arg in zip(sqls, call.args, strict=True)
    )
    names = list(sqls) if short else [f"x.a{index}" for index in range(len(sqls))]
    body = _text(function, call, names)
    if len(sqls) > 1:
        body = _null_of(body, [names[index] for index in order if call.args[index].nullable])
    if short:
        return body
    fields = ", ".join(f"'a{index}': {sql}" for index, sql in enumerate(sqls))
    whole = f"list_transform([{{{fields}}}], lambda x: {body})[1]"
    return _null_of(whole, _stops(call.args, sqls, order))


def _text(function: Function, call: Call, sqls: Sequence[str]) -> str:
    if isinstance(function.duckdb, str):
        return function.duckdb.format(*sqls, all=", ".join(sqls), name=call.name, type=call.type.duckdb)
    return function.duckdb(call, *sqls)


def _stops(args: Sequence[Expression], sqls: Sequence[str], order: Sequence[int]) -> list[str]:
    """The arguments that keep later ones from failing if they are NULL."""
    later = [any(args[index].fallible for index in order[rank + 1 :]) for rank in range(len(order))]
    return [sqls[index] for index, failing in zip(order, later, strict=True) if args[index].nullable and failing]


def _null_of(body: str, sqls: Sequence[str]) -> str:
    if not sqls:
        return body
    return f"(CASE {' '.join(f'WHEN {sql} IS NULL THEN NULL' for sql in sqls)} ELSE {body} END)"


LENGTH_MAX = 200_000

_TRY = "TRY({"
_STRICT = frozenset({"+", "-", "*", "=", "<>", "<", "<=", ">", ">="})


def emit(expression: Expression, aggregates: Sequence[str] = ()) -> str:
    """The SQL of `expression`; `aggregates` are the SQL texts of the aggregates that it refers to, by position."""
    sql = _emit(expression, aggregates)
    if len(sql) > LENGTH_MAX:
        raise UnsupportedSql("the expression is too large", "split it over several views")
    return sql


def guarded(fields: Sequence[str], guard: str) -> str:
    """A struct of `v0`, `v1`, …: NULL when one of the fields fails, and only then. `guard` is a column without NULLs.

    The CASE is needed: DuckDB lifts subexpressions that occur twice out of TRY, where they fail unguarded, but not out
    of CASE.
    """
    struct = ", ".join(f"'v{index}': {field}" for index, field in enumerate(fields))
    return f"CASE WHEN {guard} IS NOT NULL THEN {_TRY}{struct}}}) END"


def unguarded(sql: str) -> str:
    """SQL with `guarded` parts, made to fail as it would without them: to find the reason of a failure.

    No literal contains what is replaced here, because quotes inside a literal are doubled.
    """
    return sql.replace(f"{_TRY}'v0'", "({'v0'")


def group_key(sql: str, type_: SqlType) -> str:
    """A value as part of a key: Spark groups -0.0 with 0.0, and all NaNs together."""
    if type_.kind != "DOUBLE":
        return sql
    return f"CASE WHEN {sql} = 0 THEN {_double(0.0)} WHEN isnan({sql}) THEN CAST('NaN' AS DOUBLE) ELSE {sql} END"


def _emit(expression: Expression, aggregates: Sequence[str]) -> str:
    match expression:
        case ColumnRef(position=position):
            return f"c{position}"
        case Literal(value=value, type=type_):
            return literal(value, type_)
        case Cast(arg=arg, type=type_):
            return cast(_emit(arg, aggregates), arg.type, type_)
        case Case(branches=branches, default=default):
            whens = " ".join(f"WHEN {_emit(w, aggregates)} THEN {_emit(v, aggregates)}" for w, v in branches)
            return f"(CASE {whens} ELSE {_emit(default, aggregates)} END)"
        case AggregationRef(source="group", position=position):
            return f"k{position}"
        case AggregationRef(position=position):
            return aggregates[position]
        case Call():
            return _call(expression, aggregates)
    raise InvariantBroken(f"no DuckDB SQL for {expression!r}")


def literal(value: object, type_: SqlType) -> str:
    match value:
        case None:
            return f"CAST(NULL AS {type_.duckdb})"
        case bool():
            return "TRUE" if value else "FALSE"
        case float():
            return _double(value)
        case bytes():
            return f"from_hex('{value.hex()}')"
        case datetime.datetime():
            naive = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"CAST('{naive.isoformat(' ')}' AS TIMESTAMP)"
        case str():
            return "CAST('" + value.replace("'", "''") + "' AS VARCHAR)"
    text = f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)
    return f"CAST('{text}' AS {type_.duckdb})"


def _double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def _call(call: Call, aggregates: Sequence[str]) -> str:
    if call.name in ("and", "or"):
        return _connective(call, aggregates)
    args = [_emit(arg, aggregates) for arg in call.args]
    if call.type == types.BOOLEAN:
        # DuckDB rewrites x + 1 > 0 to x > -1, which no longer overflows; it does not rewrite inside a list
        opaque = (arg.fallible and arg.type != types.BOOLEAN for arg in call.args)
        args = [f"[{sql}][1]" if is_opaque else sql for sql, is_opaque in zip(args, opaque, strict=True)]
    if call.name in ("/", "%", "div"):
        return _division(call, args)
    if call.name in _STRICT:
        return _stop_at_null(call.args, args, _infix(call, args))
    match call.name:
        case "<=>":
            return f"({args[0]} IS NOT DISTINCT FROM {args[1]})"
        case "not":
            return f"(NOT {args[0]})"
        case "neg":
            return f"CAST(- {args[0]} AS {call.type.duckdb})"  # DuckDB widens a negated constant
        case "is null":
            return f"({args[0]} IS NULL)"
        case "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        case "abs" | "coalesce":
            return f"{call.name}({', '.join(args)})"
    return emit_function(call, args)


def _infix(call: Call, args: list[str]) -> str:
    if call.type.kind != "DECIMAL":
        return f"({args[0]} {call.name} {args[1]})"
    if call.name == "*":
        # DuckDB multiplies two DECIMALs of up to 18 digits in 18 digits; a wide operand makes it use 38.
        args = [f"CAST({args[0]} AS DECIMAL(38,{call.args[0].type.scale}))", args[1]]
    else:
        # The same scale on both sides: DuckDB then adds unscaled integers and checks 38 digits.
        args = [f"CAST({arg} AS {call.type.duckdb})" for arg in args]
    return f"CAST({args[0]} {call.name} {args[1]} AS {call.type.duckdb})"


def _stop_at_null(args: Sequence[Expression], sqls: Sequence[str], whole: str) -> str:
    """Spark does not evaluate the second operand when the first is NULL."""
    first, second = args[0], args[1]
    if first.nullable and second.fallible:
        return f"(CASE WHEN {sqls[0]} IS NULL THEN NULL ELSE {whole} END)"
    return whole


def _division(call: Call, sqls: list[str]) -> str:
    """Division by zero fails under ANSI, unless the dividend is NULL; Spark evaluates the divisor first."""
    left, right = call.args
    divisor = sqls[1]
    if not is_nonzero(right):
        failure = f"CAST('division by zero' AS {right.type.duckdb})"
        if left.nullable:
            failure = f"CASE WHEN {sqls[0]} IS NULL THEN NULL ELSE {failure} END"
        divisor = f"(CASE WHEN {sqls[1]} = {literal(0, right.type)} THEN {failure} ELSE {sqls[1]} END)"
    return _stop_at_null((right, left), (sqls[1], sqls[0]), _quotient(call, sqls[0], divisor))


def _quotient(call: Call, dividend: str, divisor: str) -> str:
    left, right = call.args[0].type, call.args[1].type
    match (call.name, call.type.kind):
        case ("/", "DECIMAL"):
            most = magnitude_max(call.args[1])
            return decimals.divide(dividend, left, divisor, right, call.type, divisor_max=most)
        case ("%", "DECIMAL"):
            return decimals.remainder(dividend, left, divisor, right, call.type)
        case ("%", "INT" | "BIGINT"):
            # DuckDB overflows at MIN % -1; the remainder by 1 is the same and does not.
            one = f"CASE WHEN {divisor} = -1 THEN {literal(1, right)} ELSE {divisor} END"
            return f"({dividend} % {one})"
        case ("div", _):
            return f"({dividend} // {divisor})"
    return f"({dividend} {call.name} {divisor})"


def _connective(call: Call, aggregates: Sequence[str]) -> str:
    """AND and OR stop at the first part that decides, where a later part may fail."""
    parts = operands(call, call.name)
    sqls = [_emit(part, aggregates) for part in parts]
    whole = f"({f' {call.name.upper()} '.join(sqls)})"
    if not any(part.fallible for part in parts[1:]):
        return whole
    decided = "NOT {} THEN FALSE" if call.name == "and" else "{} THEN TRUE"
    whens = " ".join(f"WHEN {decided.format(sql)}" for sql in sqls[:-1])
    return f"(CASE {whens} ELSE {whole} END)"
