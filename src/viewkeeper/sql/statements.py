"""From text to statements.

In: a text of several statements, with comments. Out: a list of frozen statements, in order. Always: the whole text is
parsed before anything runs, so a mistake in the last statement prevents the first.
"""

from __future__ import annotations

from viewkeeper.errors import UnsupportedSql
from viewkeeper.sql.ddl import parse_alter, parse_create, parse_drop
from viewkeeper.sql.queries import read_query
from viewkeeper.sql.row_statements import parse_delete, parse_insert, parse_update
from viewkeeper.sql.syntax import (
    CreateView,
    Describe,
    Explain,
    OptimizeViews,
    Select,
    ShowCreate,
    ShowTables,
    ShowViews,
    Statement,
)
from viewkeeper.sql.tokens import Cursor, split_statements

_KNOWN = "CREATE, ALTER, DROP, OPTIMIZE VIEWS, SHOW, DESCRIBE, EXPLAIN, SELECT, INSERT, UPDATE, DELETE"
_REFUSED = {
    "TRUNCATE": ("TRUNCATE is not supported", "delete the rows by key"),
    "MERGE": ("MERGE is not supported", "INSERT overwrites the row of its key"),
    "REFRESH": ("REFRESH is not needed", "views are kept fresh by the pipeline"),
    "BEGIN": ("transactions are not supported", "db.write() makes an atomic group of writes"),
    "COMMIT": ("transactions are not supported", "db.write() makes an atomic group of writes"),
    "SET": ("SET is not supported", "settings are part of the store's URL"),
    "USE": ("USE is not supported", "a store is one namespace"),
}


def parse_statements(text: str) -> list[Statement]:
    """The statements of `text`; SqlError or a subclass when one of them cannot be parsed."""
    return [_parse_one(cursor) for cursor in split_statements(text)]


def _parse_one(cursor: Cursor) -> Statement:
    match cursor.word:
        case "CREATE":
            return parse_create(cursor)
        case "ALTER":
            return parse_alter(cursor)
        case "DROP":
            return parse_drop(cursor)
        case "OPTIMIZE":
            return _parse_optimize(cursor)
        case "SHOW":
            return _parse_show(cursor)
        case "DESCRIBE" | "DESC":
            return _parse_describe(cursor)
        case "EXPLAIN":
            return _parse_explain(cursor)
        case "SELECT" | "WITH" | "(":
            return _parse_select(cursor)
        case "INSERT":
            return parse_insert(cursor)
        case "UPDATE":
            return parse_update(cursor)
        case "DELETE":
            return parse_delete(cursor)
        case word if word in _REFUSED:
            raise UnsupportedSql(*_REFUSED[word])
    raise cursor.error(f"no statement begins with {cursor.found}", f"use one of {_KNOWN}")


def _parse_optimize(cursor: Cursor) -> OptimizeViews:
    usage = "OPTIMIZE VIEWS, or OPTIMIZE VIEWS WITHOUT (rule, …), is about all views"
    cursor.expect("OPTIMIZE", "VIEWS", hint=usage)
    without = cursor.names("rule") if cursor.take("WITHOUT") else ()
    cursor.finish(usage)
    return OptimizeViews(without)


def _parse_show(cursor: Cursor) -> ShowTables | ShowViews | ShowCreate:
    cursor.expect("SHOW")
    if cursor.take("CREATE"):
        return _parse_show_create(cursor)
    if cursor.take("TABLES"):
        cursor.finish("SHOW TABLES takes no filter")
        return ShowTables()
    cursor.take("MATERIALIZED")
    cursor.expect("VIEWS", hint="SHOW TABLES, SHOW VIEWS or SHOW CREATE …")
    cursor.finish("SHOW VIEWS takes no filter")
    return ShowViews()


def _parse_show_create(cursor: Cursor) -> ShowCreate:
    cursor.take("MATERIALIZED")
    kind = cursor.take_kind()
    if kind is None:
        raise cursor.error(f"expected TABLE, VIEW or INDEX, found {cursor.found}")
    name = cursor.name(kind)
    cursor.finish("SHOW CREATE takes one name")
    return ShowCreate(name, kind)


def _parse_describe(cursor: Cursor) -> Describe:
    cursor.place += 1
    if cursor.word in ("TABLE", "VIEW") and len(cursor.tokens) > cursor.place + 1:
        cursor.place += 1
    name = cursor.name("table or view")
    cursor.finish("DESCRIBE takes the name of a table or view")
    return Describe(name)


def _parse_explain(cursor: Cursor) -> Explain:
    cursor.expect("EXPLAIN")
    if cursor.done:
        return Explain(None, None)
    if cursor.word == "CREATE":
        statement = parse_create(cursor)
        if not isinstance(statement, CreateView):
            raise UnsupportedSql("only a view can be explained", "EXPLAIN CREATE MATERIALIZED VIEW, a SELECT or a name")
        return Explain(None, statement.query_text)
    if cursor.word in ("SELECT", "WITH", "("):
        text = cursor.rest()
        cursor.parse_rest()
        return Explain(None, text)
    name = cursor.name("view")
    cursor.finish("EXPLAIN takes the name of a view, a SELECT, or nothing for all views")
    return Explain(name, None)


def _parse_select(cursor: Cursor) -> Select:
    text = cursor.rest()
    read_query(cursor)
    return Select(text)
