"""USING … OPTIONS (…): the end of a CREATE TABLE that maps a table of the store's users, and the text of it.

In: a cursor behind the columns; or a mapped table. Out: names of options with their values; or the clause. Always: what the
names mean is up to the store; an option of one column is called `column.option`.
"""

from __future__ import annotations

from collections import Counter

from viewkeeper.errors import DuplicateName
from viewkeeper.model.schema import Foreign, TableSchema
from viewkeeper.sql.tokens import Cursor, quoted

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
    options = [_option(cursor)]
    while cursor.take(","):
        options.append(_option(cursor))
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
    listed = ", ".join(f"{name} '{_escaped(value)}'" for name, value in options)
    return f"USING {foreign.using} OPTIONS ({listed})"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")
