"""Dialect: Spark's SQL as sqlglot parses it, with the functions of views left as written.

In: nothing. Out: `ViewSpark`, to parse and to print a view's text. Always: a function of `PLAIN` stays a call by its
name over its arguments, and a WITH stays where it is. sqlglot's own trees lose meaning: INSTR and LOCATE become one
node though Spark evaluates their arguments in different orders, the column in DATE_TRUNC(month, x) becomes the unit
'month', DATE_SUB a product; and a WITH inside a query would be printed before it, where names may collide. Functions
and types keep their spelling: sqlglot makes one node of MAX_BY and ARG_MAX, and drops the length of VARCHAR(5).
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark

PLAIN = frozenset(
    "year month day dayofmonth quarter dayofweek weekday dayofyear weekofyear hour minute second date_part datepart "
    "date_trunc trunc date_add dateadd date_sub datediff date_diff add_months last_day to_date unix_seconds "
    "unix_millis unix_micros unix_date date_from_unix_date timestamp_seconds timestamp_millis timestamp_micros "
    "make_date unix_timestamp to_unix_timestamp from_unixtime date_format to_timestamp length char_length "
    "character_length len octet_length bit_length replace left right lpad rpad repeat reverse instr locate position "
    "startswith endswith contains concat_ws substring_index split_part ascii chr char translate btrim ltrim rtrim "
    "upper ucase lower lcase greatest least nvl2 decode isnull isnotnull isnan nanvl sign signum floor ceil ceiling "
    "round sqrt pmod shiftleft shiftright".split()
)
# These have a special syntax besides the call: POSITION(a IN b).
WRITTEN = "written"
_OWN_SYNTAX = frozenset({"POSITION"})


class ViewSpark(Spark):
    class Parser(Spark.Parser):
        FUNCTIONS = {name: made for name, made in Spark.Parser.FUNCTIONS.items() if name.lower() not in PLAIN}
        FUNCTION_PARSERS = {
            name: read
            for name, read in Spark.Parser.FUNCTION_PARSERS.items()
            if name.lower() not in PLAIN or name in _OWN_SYNTAX
        }

        def _parse_function_call(self, *args: object, **options: object) -> exp.Expression | None:
            first = self._curr
            found = super()._parse_function_call(*args, **options)
            called = found
            while isinstance(called, (exp.Window, exp.WithinGroup, exp.Filter)):
                called = called.this
            if isinstance(called, exp.Func):
                called.meta.setdefault(WRITTEN, first.text)
            return found

        def _parse_types(self, *args: bool, **options: bool) -> exp.Expression | None:
            first = self._curr
            found = super()._parse_types(*args, **options)
            written = self._find_sql(first, self._prev) if isinstance(found, exp.DataType) else ""
            if written[:1].isalpha():  # the suffix of 1L is a type too, in a token that spans the number
                found.meta[WRITTEN] = written
            return found

    class Generator(Spark.Generator):
        EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[frozenset[type]] = frozenset()
