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

from viewkeeper.sql.function_table import NAMED
from viewkeeper.sql.syntax import WRITTEN

# Besides the functions of views, those whose refusals show them as written.
PLAIN = frozenset(NAMED) | frozenset(
    "position unix_timestamp to_unix_timestamp from_unixtime date_format to_timestamp".split()
)
_NOT_SPARK = frozenset({"STDEV"})  # names that sqlglot knows and Spark does not
# These have a special syntax besides the call: POSITION(a IN b).
_OWN_SYNTAX = frozenset({"POSITION"})


class ViewSpark(Spark):
    class Parser(Spark.Parser):
        FUNCTIONS = {
            name: made
            for name, made in Spark.Parser.FUNCTIONS.items()
            if name.lower() not in PLAIN and name not in _NOT_SPARK
        }
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
