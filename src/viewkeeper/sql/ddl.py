"""CREATE, ALTER and DROP, with USING … OPTIONS (…), the end of a CREATE TABLE that maps a table of the store's users.

In: a cursor at CREATE, ALTER or DROP; or a mapped table. Out: a frozen statement; or the text of the clause. Always: a
returned table has a key, known types and distinct legal names; an option of one column is called `column.option`, and the
store knows which options there are. Parsed by hand: the grammar is small, and so the errors can be helpful.
"""

from __future__ import annotations

from collections import Counter

from viewkeeper.errors import DuplicateName, SqlError, UnknownName, UnsupportedSql
from viewkeeper.model.schema import Column, Foreign, TableSchema
from viewkeeper.model.syntax import AddColumns, AddNode, CreateIndex, CreateTable, CreateView, Drop, RemoveNode, Rename
from viewkeeper.model.types import SqlType, parse_type
from viewkeeper.model.wording import suggestion
from viewkeeper.sql.query_parser import Cursor, quoted, refuse_duplicates

_HINT = "USING hbase OPTIONS (table 'name', …)"
Options = tuple[tuple[str, str], ...]


def parse_using(cursor: Cursor) -> tuple[str | None, Options]:
    """The clause, if it comes next."""
    if not cursor.take("USING"):
        return None, ()
    using = cursor.name("kind of store").lower()
    if not cursor.take("OPTIONS"):
        return using, ()
    cursor.expect("(", hint=_HINT)
    options = cursor.listed(lambda: _option(cursor))
    cursor.expect(")", hint=_HINT)
    seen: set[str] = set()
    for name, _ in options:
        if name.lower() in seen:
            raise DuplicateName(f"OPTIONS gives {name} twice", "give it once")
        seen.add(name.lower())
    return using, tuple(options)


def _option(cursor: Cursor) -> tuple[str, str]:
    name = _word(cursor)
    if cursor.take("."):
        name += f".{_word(cursor)}"
    cursor.take("=")
    if cursor.done or cursor.tokens[cursor.place].kind != "string":
        raise cursor.error(f"option {name} has no value, found {cursor.found}", "write it in quotes: table 'orders'")
    cursor.place += 1
    return name, cursor.tokens[cursor.place - 1].text


def _word(cursor: Cursor) -> str:
    token = None if cursor.done else cursor.tokens[cursor.place]
    if token is None or token.kind not in ("word", "name") or not token.text.isidentifier():
        raise cursor.error(f"expected the name of an option, found {cursor.found}", _HINT)
    cursor.place += 1
    return token.text


def using_text(table: TableSchema, foreign: Foreign) -> str:
    """The clause of a mapped table: what most columns have in common, and what others have instead."""
    family = Counter(cell.family for cell in foreign.cells).most_common(1)[0][0]
    encoding = Counter(cell.encoding for cell in foreign.cells).most_common(1)[0][0]
    options = [("table", foreign.table), ("family", family), ("encoding", encoding)]
    if foreign.key != encoding:
        options.append((f"{quoted(table.key[0])}.encoding", foreign.key))
    for column, cell in zip(table.value_columns, foreign.cells, strict=True):
        if (cell.family, cell.qualifier) != (family, column.name):
            options.append((f"{quoted(column.name)}.cell", f"{cell.family}:{cell.qualifier}"))
        if cell.encoding != encoding:
            options.append((f"{quoted(column.name)}.encoding", cell.encoding))
    escaped = [(name, value.replace("\\", "\\\\").replace("'", "\\'")) for name, value in options]
    listed = ", ".join(f"{name} '{value}'" for name, value in escaped)
    return f"USING {foreign.using} OPTIONS ({listed})"


_COLUMN_CLAUSES = {
    "DEFAULT": "put the value with the row",
    "GENERATED": "compute it in a view",
    "REFERENCES": None,
    "CHECK": None,
    "UNIQUE": "PRIMARY KEY is the one unique key of a table",
    "COLLATE": "strings are ordered by their bytes",
    "COMMENT": "write -- comments in the SQL text",
}
_SPELLING = "names differ in more than case"
_TABLE_CLAUSES = ("FOREIGN", "CONSTRAINT", "UNIQUE", "CHECK")
_ALTER_HINT = "ALTER TABLE name ADD COLUMN column TYPE, ADD COLUMNS (column TYPE, …), or RENAME TO name"
_STORE_HINT = "ALTER STORE ADD NODE, or ALTER STORE REMOVE NODE number"
_ADDED_CLAUSES = _COLUMN_CLAUSES | {
    "NOT": "rows that are there read NULL in a new column",
    "PRIMARY": "the key is fixed when the table is made",
    "FIRST": "a new column comes last",
    "AFTER": "a new column comes last",
}


def parse_create(cursor: Cursor) -> CreateTable | CreateView | CreateIndex:
    cursor.expect("CREATE")
    if cursor.take("OR", "REPLACE"):
        if not cursor.take("MATERIALIZED", "VIEW"):
            raise UnsupportedSql("only a materialized view can be replaced", "CREATE OR REPLACE MATERIALIZED VIEW")
        return _create_view(cursor, or_replace=True)
    if cursor.word in ("TEMPORARY", "TEMP", "EXTERNAL", "GLOBAL"):
        raise UnsupportedSql(f"CREATE {cursor.word} is not supported")
    if cursor.take("TABLE"):
        return _create_table(cursor)
    if cursor.take("MATERIALIZED", "VIEW"):
        return _create_view(cursor)
    if cursor.take("VIEW"):
        raise UnsupportedSql("CREATE VIEW is not supported", "write CREATE MATERIALIZED VIEW")
    if cursor.take("INDEX"):
        return _create_index(cursor)
    if cursor.take("UNIQUE", "INDEX"):
        raise UnsupportedSql("CREATE UNIQUE INDEX is not supported", "PRIMARY KEY is the one unique key of a table")
    raise cursor.error(f"cannot create {cursor.found}", "CREATE TABLE, CREATE MATERIALIZED VIEW or CREATE INDEX")


def _create_view(cursor: Cursor, *, or_replace: bool = False) -> CreateView:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        raise SqlError("OR REPLACE and IF NOT EXISTS contradict each other", "leave one of them out")
    name = cursor.name("view")
    if cursor.word == "(":
        hint = "name columns with AS in the SELECT"
        raise UnsupportedSql("a column list after the view's name is not supported", hint)
    cursor.expect("AS", hint="CREATE MATERIALIZED VIEW name AS SELECT …")
    if cursor.word not in ("SELECT", "WITH", "("):
        raise cursor.error(f"expected SELECT, found {cursor.found}")
    text = cursor.rest()
    cursor.parse_rest()
    return CreateView(name, text, if_not_exists, or_replace)


def _create_index(cursor: Cursor) -> CreateIndex:
    form = "CREATE INDEX name ON table (column, …) [INCLUDE (column, …)]"
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name("index")
    cursor.expect("ON", hint=form)
    table, columns = cursor.name("table"), cursor.names("column")
    covered = cursor.names("column") if cursor.take("INCLUDE") else ()
    if cursor.word == "WHERE":
        raise UnsupportedSql("a partial index (WHERE) is not supported", "make a view with that WHERE")
    cursor.finish(form)
    refuse_duplicates(columns + covered, f"index {name}", _SPELLING)
    return CreateIndex(name, table, columns, covered, if_not_exists)


def parse_alter(cursor: Cursor) -> AddColumns | Rename | AddNode | RemoveNode:
    cursor.expect("ALTER")
    if cursor.take("STORE"):
        return _alter_store(cursor)
    if cursor.word in ("VIEW", "MATERIALIZED", "INDEX"):
        cursor.take("MATERIALIZED")
        cursor.place += 1
        name = cursor.name("view")
        if cursor.word != "RENAME":
            hint = "RENAME TO name, or CREATE OR REPLACE MATERIALIZED VIEW"
            raise UnsupportedSql(f"ALTER MATERIALIZED VIEW … {cursor.found.upper()} is not supported", hint)
        return _rename(cursor, name, is_table=False)
    cursor.expect("TABLE", hint=_ALTER_HINT)
    table = cursor.name("table")
    if cursor.word == "RENAME":
        return _rename(cursor, table, is_table=True)
    if not cursor.take("ADD"):
        raise UnsupportedSql(f"ALTER TABLE … {cursor.found.upper()} is not supported", _ALTER_HINT)
    if not cursor.take("COLUMNS"):
        cursor.expect("COLUMN", hint=_ALTER_HINT)
    in_parentheses = cursor.take("(")
    columns = cursor.listed(lambda: _added_column(cursor))
    if in_parentheses:
        cursor.expect(")")
    cursor.finish(_ALTER_HINT)
    refuse_duplicates([column.name for column in columns], f"ALTER TABLE {table}", _SPELLING)
    return AddColumns(table, tuple(columns))


def _alter_store(cursor: Cursor) -> AddNode | RemoveNode:
    if cursor.take("ADD", "NODE"):
        cursor.finish(_STORE_HINT)
        return AddNode()
    cursor.expect("REMOVE", "NODE", hint=_STORE_HINT)
    if not (number := cursor.word).isdecimal():
        raise cursor.error(f"expected the number of a node, found {cursor.found}", _STORE_HINT)
    cursor.place += 1
    cursor.finish(_STORE_HINT)
    return RemoveNode(int(number))


def _rename(cursor: Cursor, name: str, *, is_table: bool) -> Rename:
    cursor.expect("RENAME")
    if cursor.word == "COLUMN":
        raise UnsupportedSql("RENAME COLUMN is not supported", "name it otherwise in a view, with AS")
    cursor.expect("TO", hint="ALTER … RENAME TO name")
    new_name = cursor.name("table" if is_table else "view")
    cursor.finish("ALTER … RENAME TO name")
    return Rename(name, new_name, is_table)


def _added_column(cursor: Cursor) -> Column:
    name = cursor.name("column")
    type_ = _type(cursor, name)
    cursor.take("NULL")
    if cursor.word in _ADDED_CLAUSES:
        clause = {"NOT": "NOT NULL", "PRIMARY": "PRIMARY KEY"}.get(cursor.word, cursor.word)
        raise UnsupportedSql(f"{clause} is not supported in ALTER TABLE … ADD COLUMN", _ADDED_CLAUSES[cursor.word])
    return Column(name, type_)


def parse_drop(cursor: Cursor) -> Drop:
    cursor.expect("DROP")
    kind = "view" if cursor.take("MATERIALIZED", "VIEW") else cursor.take_kind()
    if kind is None:
        raise cursor.error(f"cannot drop {cursor.found}", "DROP TABLE, DROP MATERIALIZED VIEW or DROP INDEX")
    if_exists = cursor.take("IF", "EXISTS")
    name = cursor.name(kind)
    if cursor.word in ("CASCADE", "RESTRICT", "PURGE"):
        raise UnsupportedSql(f"{cursor.word} is not supported", "drop the views of a table first")
    cursor.finish()
    return Drop(kind, name, if_exists)


def _create_table(cursor: Cursor) -> CreateTable:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name("table")
    if cursor.word in ("AS", "LIKE"):
        raise UnsupportedSql(f"CREATE TABLE … {cursor.word} is not supported", "name the columns and their types")
    cursor.expect("(", hint="CREATE TABLE name (column TYPE, …, PRIMARY KEY (column, …))")
    columns: list[Column] = []
    keys: list[tuple[str, ...]] = []
    while True:
        if cursor.take("PRIMARY", "KEY"):
            keys.append(cursor.names("column"))
        elif cursor.word in _TABLE_CLAUSES:
            hint = "PRIMARY KEY is the only constraint"
            raise UnsupportedSql(f"{cursor.word} is not supported in CREATE TABLE", hint)
        else:
            column, is_key = _column(cursor)
            columns.append(column)
            keys += [(column.name,)] if is_key else []
        if not cursor.take(","):
            break
    cursor.expect(")")
    using, options = parse_using(cursor)
    if not cursor.done:
        raise UnsupportedSql(f"{cursor.found.upper()} is not supported in CREATE TABLE", "end it after the columns")
    refuse_duplicates([column.name for column in columns], f"table {name}", _SPELLING)
    if not keys:
        raise SqlError(f"table {name} has no primary key", "add PRIMARY KEY (column, …)")
    if len(keys) > 1:
        raise SqlError(f"table {name} has {len(keys)} primary keys", "name all key columns in one PRIMARY KEY (…)")
    refuse_duplicates(keys[0], f"the primary key of {name}", _SPELLING)
    spelled = {column.name.lower(): column.name for column in columns}
    for part in keys[0]:
        if part.lower() not in spelled:
            near = suggestion(part, spelled.values(), "its columns are")
            raise UnknownName(f"the primary key of {name} names {part}", near)
    key = tuple(spelled[part.lower()] for part in keys[0])
    final = tuple(Column(c.name, c.type, nullable=c.nullable and c.name not in key) for c in columns)
    return CreateTable(name, final, key, if_not_exists, using, options)


def _column(cursor: Cursor) -> tuple[Column, bool]:
    """One column of CREATE TABLE, and whether it has PRIMARY KEY."""
    name = cursor.name("column")
    type_ = _type(cursor, name)
    nullable, is_key = True, False
    while cursor.word not in (",", ")", ""):
        if cursor.take("NOT", "NULL"):
            nullable = False
        elif cursor.take("PRIMARY", "KEY"):
            is_key = True
        elif not cursor.take("NULL"):
            if cursor.word in _COLUMN_CLAUSES:
                raise UnsupportedSql(f"{cursor.word} is not supported in CREATE TABLE", _COLUMN_CLAUSES[cursor.word])
            raise cursor.error(f"unexpected {cursor.found} after column {name}", "NOT NULL or PRIMARY KEY may follow")
    return Column(name, type_, nullable), is_key


def _type(cursor: Cursor, column: str) -> SqlType:
    if cursor.word in (",", ")", ""):
        raise cursor.error(f"column {column} has no type", "write name TYPE, for example id BIGINT")
    text = cursor.word
    cursor.place += 1
    if cursor.take("<"):
        raise UnsupportedSql(f"type {text}<…> of column {column} is not supported", "nested types are not stored")
    if cursor.take("("):
        numbers = []
        while not cursor.take(")"):
            if cursor.done:
                cursor.expect(")")
            numbers.append(cursor.word)
            cursor.place += 1
        text += f"({''.join(numbers)})"
    type_ = parse_type(text)
    if type_.kind == "INT128":
        raise UnsupportedSql("type INT128 is not supported", "use DECIMAL(38,0)")
    return type_
