"""INSERT, UPDATE and DELETE of rows by key, with literal values.

In: a cursor at the statement. Out: frozen statements with Python values. Always: what is returned touches exactly the
rows whose keys are written in it; everything else is refused, naming the clause.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.sql.literals import read_literal
from viewkeeper.sql.syntax import DeleteRow, Insert, Update, Value
from viewkeeper.sql.tokens import Cursor, check_name, refuse_duplicates

_ONCE = "name it once"
_BY_KEY = "write WHERE key = literal AND …, one condition for each key column"


def parse_insert(cursor: Cursor) -> Insert:
    node = _parse(cursor, exp.Insert, "INSERT")
    _only(node, "INSERT", {"this", "expression"}, "INSERT INTO table [(column, …)] VALUES (…), …")
    target, source = node.this, node.expression
    columns: tuple[str, ...] = ()
    if isinstance(target, exp.Schema):
        columns = tuple(_identifier(column) for column in target.expressions)
        target = target.this
    if not isinstance(source, exp.Values):
        raise UnsupportedSql("INSERT … SELECT is not supported", "read the rows first and put_many them")
    refuse_duplicates(columns, "INSERT", _ONCE)
    rows = tuple(_row(entry, width=len(columns)) for entry in source.expressions)
    return Insert(_table(target), columns, rows)


def parse_update(cursor: Cursor) -> Update:
    node = _parse(cursor, exp.Update, "UPDATE")
    _only(node, "UPDATE", {"this", "expressions", "where"}, "UPDATE table SET column = literal, … WHERE …")
    assignments = tuple(_equation(entry, "SET") for entry in node.expressions)
    refuse_duplicates([name for name, _ in assignments], "SET", _ONCE)
    return Update(_table(node.this), assignments, _key(node, "UPDATE"))


def parse_delete(cursor: Cursor) -> DeleteRow:
    node = _parse(cursor, exp.Delete, "DELETE")
    _only(node, "DELETE", {"this", "where"}, "DELETE FROM table WHERE …")
    return DeleteRow(_table(node.this), _key(node, "DELETE"))


def _parse(cursor: Cursor, kind: type[exp.Expression], word: str) -> exp.Expression:
    node = cursor.parse_rest()
    if not isinstance(node, kind):
        raise SqlError(f"the {word} cannot be read", None)
    return node


def _only(node: exp.Expression, word: str, allowed: set[str], form: str) -> None:
    for name, value in node.args.items():
        if value and name not in allowed:
            raise UnsupportedSql(f"{name.rstrip('_').upper()} is not supported in {word}", f"the form is {form}")


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


def _row(entry: exp.Expression, *, width: int) -> tuple[Value, ...]:
    entries = entry.expressions if isinstance(entry, exp.Tuple) else [entry]
    values = tuple(_value(value.this if isinstance(value, exp.Paren) else value) for value in entries)
    if width and len(values) != width:
        raise SqlError(f"INSERT names {width} columns and gives {len(values)} values")
    return values


def _value(node: exp.Expression) -> Value:
    found = read_literal(node)
    if found is None:
        text = node.sql(dialect="spark")
        raise UnsupportedSql(f"the value {text} is not a literal", "compute it first, then write the result")
    return found[0]


def _equation(node: exp.Expression, clause: str) -> tuple[str, Value]:
    if not isinstance(node, exp.EQ):
        raise UnsupportedSql(f"{node.sql(dialect='spark')} is not supported in {clause}", "write column = literal")
    return _identifier(node.this), _value(node.expression)


def _key(node: exp.Expression, word: str) -> tuple[tuple[str, Value], ...]:
    where = node.args.get("where")
    if where is None:
        raise UnsupportedSql(f"{word} without WHERE is not supported", _BY_KEY)
    conditions = _opened(where.this)
    for condition in conditions:
        if not isinstance(condition, exp.EQ):
            raise UnsupportedSql(f"{condition.sql(dialect='spark')} is not supported in WHERE of {word}", _BY_KEY)
    pairs = tuple(_equation(condition, "WHERE") for condition in conditions)
    refuse_duplicates([name for name, _ in pairs], "WHERE", _ONCE)
    return pairs


def _opened(condition: exp.Expression) -> list[exp.Expression]:
    """The conditions that AND connects, in order."""
    waiting, opened = [condition], list[exp.Expression]()
    while waiting:
        match waiting.pop():
            case exp.And(this=left, expression=right):
                waiting += [right, left]
            case exp.Paren(this=inner):
                waiting.append(inner)
            case other:
                opened.append(other)
    return opened
