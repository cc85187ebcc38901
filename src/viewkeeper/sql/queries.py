"""Queries: the text of a view to sqlglot's tree.

In: text. Out: the tree of one query. Always: what Spark cannot parse is refused, also where sqlglot accepts it: an
extra comma, a clause without content, a string or a variable as a name. Words in backticks are names and never a
clause.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.sql.tokens import Cursor, split_statements

# after these something must follow that is not a clause
_WANT_MORE = {
    "SELECT": "an expression",
    "SELECT DISTINCT": "an expression",
    "FROM": "a table",
    "JOIN": "a table",
    "ON": "a condition",
    "WHERE": "a condition",
    "HAVING": "a condition",
    "AND": "a condition",
    "OR": "a condition",
    "BY": "an expression",
    ",": "something to follow the comma",
}
_CLAUSES = frozenset(
    {"FROM", "WHERE", "HAVING", "UNION", "INTERSECT", "EXCEPT", "JOIN", "ON", "AND", "OR", ")", ",", ""}
)
_CLAUSES_OF_TWO = frozenset({("GROUP", "BY"), ("ORDER", "BY")})


def parse_query(text: str) -> exp.Expression:
    """The tree of one SELECT."""
    cursors = split_statements(text)
    if len(cursors) != 1:
        raise SqlError(f"a view has one SELECT, not {len(cursors)}")
    return read_query(cursors[0])


def read_query(cursor: Cursor) -> exp.Expression:
    """The tree of the query that begins at the cursor and ends the statement."""
    if any(word.kind == "word" and word.text == "|>" for word in cursor.tokens):
        raise UnsupportedSql("|> is not supported", "write the query with SELECT")
    _refuse_gaps(cursor)
    tree = cursor.parse_rest()
    for node in tree.find_all(exp.Parameter, exp.Placeholder):
        raise SqlError(f"{node.sql(dialect='spark')} is a variable, and a query has none", "write the name or value")
    for node in tree.find_all(exp.Identifier):
        if node.args.get("quoted") and cursor.text[node.meta.get("start", 0)] in "'\"":
            raise SqlError(f"the string {node.name!r} stands where a name belongs", "quote names with backticks")
    return tree


def _refuse_gaps(cursor: Cursor) -> None:
    """Raise where an expression, a condition or a table is missing."""
    start, tokens = cursor.place, cursor.tokens[cursor.place :]
    words = [word.text.upper() if word.kind == "word" else "a name or value" for word in tokens]
    is_number = [word.kind == "number" for word in tokens]
    words += ["", ""]  # the end of the text counts as a clause
    for place, word in enumerate(words[:-2]):
        following = words[place + 1]
        before = f"{words[place - 1]} {word}" if place and word == "DISTINCT" else word
        is_limit = following == "LIMIT" and is_number[place + 2 : place + 3] == [True]
        ends = following in _CLAUSES or (following, words[place + 2]) in _CLAUSES_OF_TWO or is_limit
        ends = ends and (before, following) != ("SELECT DISTINCT", "ON")  # which is refused for what it is
        if (before in _WANT_MORE and ends) or (word == "(" and following == ","):
            cursor.place = start + place + 1
            wanted = _WANT_MORE.get(before, "an expression")
            raise cursor.error(f"expected {wanted}, found {cursor.found}")
