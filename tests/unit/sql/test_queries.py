"""Queries: what Spark cannot read is refused, also where sqlglot does not mind."""

from __future__ import annotations

import pytest

from viewkeeper.errors import SqlError
from viewkeeper.sql.query_parser import parse_query

GAPS = {
    "SELECT FROM o": "line 1, column 8: expected an expression, found FROM",
    "SELECT DISTINCT FROM o": "expected an expression, found FROM",
    "SELECT , id FROM o": "expected an expression, found ,",
    "SELECT id, a, FROM o": "expected something to follow the comma, found FROM",
    "SELECT id,, a FROM o": "expected something to follow the comma, found ,",
    "SELECT o.id, FROM o, WHERE o.id > 1": "found FROM",
    "SELECT id FROM": "expected a table, found the end of the statement",
    "SELECT id FROM o,": "expected something to follow the comma, found the end of the statement",
    "SELECT id FROM o WHERE": "expected a condition, found the end of the statement",
    "SELECT id FROM o WHERE a > 1 AND": "expected a condition, found the end of the statement",
    "SELECT id FROM o WHERE a IN (1, 2,)": r"found \)",
    "SELECT concat(, a) FROM o": "expected an expression, found ,",
    "SELECT id FROM o GROUP BY id,": "found the end of the statement",
    "SELECT id, FROM o GROUP BY id": "found FROM",
    "SELECT id FROM o GROUP BY HAVING id > 1": "expected an expression, found HAVING",
    "SELECT id FROM o ORDER BY id, LIMIT 3": "found LIMIT",
    "SELECT id FROM o WHERE ORDER BY id LIMIT 3": "expected a condition, found ORDER",
    "SELECT id FROM o JOIN c ON WHERE o.c = c.id": "expected a condition, found WHERE",
    "SELECT id FROM o\nWHERE EXISTS (SELECT FROM c)": "line 2, column 22: expected an expression, found FROM",
}
RIGHT = (
    "SELECT id FROM o WHERE a IS DISTINCT FROM b",
    "SELECT COUNT(DISTINCT a), extract(YEAR FROM d) FROM o",
    "SELECT a, `from`, `limit` FROM o GROUP BY a, `from`, `limit`",
    "SELECT a FROM o WHERE a BETWEEN 1 AND 2 OR NOT a = 3 ORDER BY a DESC LIMIT 3",
    "SELECT ', FROM', a FROM o, c WHERE b = 'AND'",
    "SELECT left(a, 2), right(a, 2) FROM o LEFT JOIN c ON (o.a = c.b)",
    "SELECT current_date() FROM o",
    "SELECT X'' FROM o",
    "SELECT a, X'' FROM o JOIN c ON X'' = b WHERE X'' <> c AND X'' < d GROUP BY X'' HAVING X'' = x''",
)


@pytest.mark.parametrize("sql", GAPS)
def test_a_gap_is_named_with_its_place(sql: str) -> None:
    with pytest.raises(SqlError, match=GAPS[sql]):
        parse_query(sql)


@pytest.mark.parametrize("sql", RIGHT)
def test_a_query_without_a_gap_is_read(sql: str) -> None:
    assert parse_query(sql) is not None
