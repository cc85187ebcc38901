"""Parsing: between a query's tree and its text in Spark SQL."""

from __future__ import annotations

import sqlglot
from sqlglot import expressions as exp

from viewkeeper.sql.dialect import ViewSpark


def parsed(text: str) -> exp.Expression:
    return sqlglot.parse_one(text, dialect=ViewSpark)


def text_of(node: exp.Expression) -> str:
    return node.sql(dialect=ViewSpark)
