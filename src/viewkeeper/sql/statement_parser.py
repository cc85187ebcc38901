"""Statement parser: from text to statements; here also INSERT, UPDATE and DELETE of rows by key.

In: a text of several statements, with comments. Out: a list of frozen statements, in order. Always: the whole text is
parsed before anything runs, so a mistake in the last statement prevents the first; INSERT, UPDATE and DELETE name the keys
of their rows and have literal values; every other clause is refused by its name.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeeper.algebra.literals import read_literal
from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.model import syntax
from viewkeeper.sql.ddl import parse_alter, parse_create, parse_drop
from viewkeeper.sql.query_parser import Cursor, and_parts, check_name, read_query, refuse_duplicates, split_statements

_ONCE = "name it once"
_BY_KEY = "write WHERE key = literal AND …, one condition for each key column"


def parse_insert(cursor: Cursor) -> syntax.Insert:
    form = "INSERT INTO table [(column, …)] VALUES (…), …"
    node = _parse(cursor, exp.Insert, {"this", "expression"}, form)
    target, source = node.this, node.expression
    columns: tuple[str, ...] = ()
    if isinstance(target, exp.Schema):
        columns = tuple(_identifier(column) for column in target.expressions)
        target = target.this
    if not isinstance(source, exp.Values):
        raise UnsupportedSql("INSERT … SELECT is not supported", "read the rows first and put_many them")
    refuse_duplicates(columns, "INSERT", _ONCE)
    rows = tuple(_row(entry, width=len(columns)) for entry in source.expressions)
    return syntax.Insert(_table(target), columns, rows)


def parse_update(cursor: Cursor) -> syntax.Update:
    form = "UPDATE table SET column = literal, … WHERE …"
    node = _parse(cursor, exp.Update, {"this", "expressions", "where"}, form)
    assignments = tuple(_equation(entry, "SET") for entry in node.expressions)
    refuse_duplicates([name for name, _ in assignments], "SET", _ONCE)
    return syntax.Update(_table(node.this), assignments, _key(node))


def parse_delete(cursor: Cursor) -> syntax.DeleteRow:
    node = _parse(cursor, exp.Delete, {"this", "where"}, "DELETE FROM table WHERE …")
    return syntax.DeleteRow(_table(node.this), _key(node))


def _parse(cursor: Cursor, kind: type[exp.Expression], allowed: set[str], form: str) -> exp.Expression:
    node, word = cursor.parse_rest(), kind.key.upper()
    if not isinstance(node, kind):
        raise SqlError(f"the {word} cannot be read", None)
    for name, value in node.args.items():
        if value and name not in allowed:
            raise UnsupportedSql(f"{name.rstrip('_').upper()} is not supported in {word}", f"the form is {form}")
    return node


def _table(node: exp.Expression) -> str:
    if not isinstance(node, exp.Table) or any(value for name, value in node.args.items() if name != "this"):
        raise UnsupportedSql(f"the target {node.sql(dialect='spark')} is not supported", "name one table, no alias")
    check_name(node.name, "table")
    return node.name


def _identifier(node: exp.Expression) -> str:
    if isinstance(node, exp.Column) and not node.table:
        node = node.this
    if not isinstance(node, exp.Identifier):
        raise UnsupportedSql(f"{node.sql(dialect='spark')} is not the name of a column")
    check_name(node.name, "column")
    return node.name


def _row(entry: exp.Expression, *, width: int) -> tuple[syntax.Value, ...]:
    entries = entry.expressions if isinstance(entry, exp.Tuple) else [entry]
    values = tuple(_value(value.this if isinstance(value, exp.Paren) else value) for value in entries)
    if width and len(values) != width:
        raise SqlError(f"INSERT names {width} columns and gives {len(values)} values")
    return values


def _value(node: exp.Expression) -> syntax.Value:
    if (found := read_literal(node)) is None:
        text = node.sql(dialect="spark")
        raise UnsupportedSql(f"the value {text} is not a literal", "compute it first, then write the result")
    return found[0]


def _equation(node: exp.Expression, clause: str) -> tuple[str, syntax.Value]:
    if not isinstance(node, exp.EQ):
        raise UnsupportedSql(f"{node.sql(dialect='spark')} is not supported in {clause}", "write column = literal")
    return _identifier(node.this), _value(node.expression)


def _key(node: exp.Expression) -> tuple[tuple[str, syntax.Value], ...]:
    where, word = node.args.get("where"), node.key.upper()
    if where is None:
        raise UnsupportedSql(f"{word} without WHERE is not supported", _BY_KEY)
    conditions = [part.unnest() for part in and_parts(where.this)]
    for condition in conditions:
        if not isinstance(condition, exp.EQ):
            raise UnsupportedSql(f"{condition.sql(dialect='spark')} is not supported in WHERE of {word}", _BY_KEY)
    pairs = tuple(_equation(condition, "WHERE") for condition in conditions)
    refuse_duplicates([name for name, _ in pairs], "WHERE", _ONCE)
    return pairs


_KNOWN = "CREATE, ALTER, DROP, OPTIMIZE VIEWS, SHOW, DESCRIBE, EXPLAIN, SELECT, INSERT, UPDATE, DELETE"
_REFUSED = {
    "TRUNCATE": ("TRUNCATE is not supported", "delete the rows by key"),
    "MERGE": ("MERGE is not supported", "INSERT overwrites the row of its key"),
    "REFRESH": ("REFRESH is not needed", "views are kept fresh by the pipeline"),
    **dict.fromkeys(
        ("BEGIN", "COMMIT"), ("transactions are not supported", "db.write() makes an atomic group of writes")
    ),
    "SET": ("SET is not supported", "settings are part of the store's URL"),
    "USE": ("USE is not supported", "a store is one namespace"),
}


def parse_statements(text: str) -> list[syntax.Statement]:
    """The statements of `text`; SqlError or a subclass when one of them cannot be parsed."""
    return [_parse_one(cursor) for cursor in split_statements(text)]


def _parse_one(cursor: Cursor) -> syntax.Statement:
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
            text = cursor.rest()
            read_query(cursor)
            return syntax.Select(text)
        case "INSERT":
            return parse_insert(cursor)
        case "UPDATE":
            return parse_update(cursor)
        case "DELETE":
            return parse_delete(cursor)
        case word if word in _REFUSED:
            raise UnsupportedSql(*_REFUSED[word])
    raise cursor.error(f"no statement begins with {cursor.found}", f"use one of {_KNOWN}")


def _parse_optimize(cursor: Cursor) -> syntax.OptimizeViews:
    usage = "OPTIMIZE VIEWS, or OPTIMIZE VIEWS WITHOUT (rule, …), is about all views"
    cursor.expect("OPTIMIZE", "VIEWS", hint=usage)
    without = cursor.names("rule") if cursor.take("WITHOUT") else ()
    cursor.finish(usage)
    return syntax.OptimizeViews(without)


def _parse_show(cursor: Cursor) -> syntax.ShowTables | syntax.ShowViews | syntax.ShowCreate:
    cursor.expect("SHOW")
    if cursor.take("CREATE"):
        cursor.take("MATERIALIZED")
        if (kind := cursor.take_kind()) is None:
            raise cursor.error(f"expected TABLE, VIEW or INDEX, found {cursor.found}")
        name = cursor.name(kind)
        cursor.finish("SHOW CREATE takes one name")
        return syntax.ShowCreate(name, kind)
    if cursor.take("TABLES"):
        cursor.finish("SHOW TABLES takes no filter")
        return syntax.ShowTables()
    cursor.take("MATERIALIZED")
    cursor.expect("VIEWS", hint="SHOW TABLES, SHOW VIEWS or SHOW CREATE …")
    cursor.finish("SHOW VIEWS takes no filter")
    return syntax.ShowViews()


def _parse_describe(cursor: Cursor) -> syntax.Describe:
    cursor.place += 1
    if cursor.word in ("TABLE", "VIEW") and len(cursor.tokens) > cursor.place + 1:
        cursor.place += 1
    name = cursor.name("table or view")
    cursor.finish("DESCRIBE takes the name of a table or view")
    return syntax.Describe(name)


def _parse_explain(cursor: Cursor) -> syntax.Explain:
    cursor.expect("EXPLAIN")
    if cursor.done:
        return syntax.Explain(None, None)
    if cursor.word == "CREATE":
        statement = parse_create(cursor)
        if not isinstance(statement, syntax.CreateView):
            raise UnsupportedSql("only a view can be explained", "EXPLAIN CREATE MATERIALIZED VIEW, a SELECT or a name")
        return syntax.Explain(None, statement.query_text)
    if cursor.word in ("SELECT", "WITH", "("):
        text = cursor.rest()
        cursor.parse_rest()
        return syntax.Explain(None, text)
    name = cursor.name("view")
    cursor.finish("EXPLAIN takes the name of a view, a SELECT, or nothing for all views")
    return syntax.Explain(name, None)
