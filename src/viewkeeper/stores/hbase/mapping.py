"""Mapping between columns and HBase's cells: of users' mapped tables, and of the columns that views show in HBase.

In: CREATE TABLE … USING hbase OPTIONS (…), and how HBase describes its table; a range of keys; or records of a view.
Out: where each column is, and replies to requests to a user's table; spans of row keys; or a cell for each shown
column, as text. Always: a table that does not fit is refused with a way out, before anything is written. Every row of a
range of keys lies in one of its spans; one close beside it may too, so readers compare the keys. Every version of a
view's record has a cell for every column, an empty one for NULL and in a tombstone: or an older version's would show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import DuplicateName, InputError, UnknownName, UnsupportedSql
from viewkeeper.model.foreign_rows import encode_cells, foreign_of, require_encoding
from viewkeeper.model.keys import ESCAPE, PRESENT
from viewkeeper.model.rowbatches import StoredIndex, as_users_see, decode_indexes
from viewkeeper.model.schema import Cell, Column, Foreign, TableSchema
from viewkeeper.model.types import Encoding
from viewkeeper.model.wording import suggestion
from viewkeeper.ports.base_rows import Mapped
from viewkeeper.ports.records import WrongColumns
from viewkeeper.stores.hbase.client import Connections, Refused
from viewkeeper.stores.hbase.store_tables import table_exists, table_name
from viewkeeper.stores.hbase.thrift_cells import COLUMNS, FOREVER, RECORD, row_of, thrift

_OF_TABLE, _OF_COLUMN = ("table", "family", "encoding"), ("cell", "encoding")
_ENCODINGS = ("text", "bytes")
_HINT = "write USING hbase OPTIONS (table 'namespace:name')"


def named_table(schema: TableSchema, using: str | None, options: Mapping[str, str]) -> str:
    """The HBase table that the options name, as HBase's log names it; checks all that needs no HBase."""
    if using is None:
        raise UnsupportedSql(f"table {schema.name} has no table in HBase", f"{_HINT} after the columns")
    if using != "hbase":
        raise UnsupportedSql(f"USING {using} is not for a store in HBase", _HINT)
    _check_names(schema, options)
    if len(schema.key) > 1:
        raise UnsupportedSql(
            f"the key of {schema.name} has {len(schema.key)} columns, and a row key in HBase is one",
            "make it one column, STRING or BINARY, that holds the whole row key",
        )
    if not schema.value_columns:
        raise UnsupportedSql(f"table {schema.name} has no column but its key", "name a column: a row is its cells")
    name = _lowered(options).get("table", "")
    if not name:
        raise InputError("OPTIONS names no table of HBase", _HINT)
    namespace, _, own = name.rpartition(":")
    return own if namespace in ("", "default") else name


def foreign_of_options(schema: TableSchema, table: str, options: Mapping[str, str], families: Sequence[str]) -> Foreign:
    """Where the columns are, in an HBase table with these families."""
    given = _lowered(options)
    cells = tuple(_cell(column, table, families, given) for column in schema.value_columns)
    columns: dict[tuple[str, str], Column] = {}
    for column, cell in zip(schema.value_columns, cells, strict=True):
        other = columns.setdefault((cell.family, cell.qualifier), column)
        if other is not column:
            raise DuplicateName(
                f"columns {other.name} and {column.name} are both in the cell {cell.family}:{cell.qualifier}",
                f"give one of them another cell: {column.name}.cell 'family:qualifier'",
            )
    return Foreign(table, cells, _encoding(schema.key_columns[0], given))


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _check_names(schema: TableSchema, options: Mapping[str, str]) -> None:
    for name in options:
        column, _, option = name.rpartition(".")
        known = _OF_COLUMN if column else _OF_TABLE
        if column and schema.column(column).name in schema.key and option.lower() == "cell":
            raise InputError(f"{name}: the key is the row key of HBase, and in no cell", "leave it out")
        if option.lower() not in known:
            hint = suggestion(option, known, f"a {'column' if column else 'table'} has")
            raise InputError(f"there is no option {name}", hint)


def _cell(column: Column, table: str, families: Sequence[str], given: Mapping[str, str]) -> Cell:
    """The cell of a column: its own option names it, else it has the column's name, in the family of all columns."""
    listed = f"table {table} has the families {', '.join(families)}"
    family, qualifier = given.get("family"), column.name
    if (named := given.get(f"{column.name.lower()}.cell")) is not None:
        family, colon, qualifier = named.partition(":")
        if not colon or not family or not qualifier:
            raise InputError(f"{column.name}.cell is {named!r}", "write 'family:qualifier'")
    elif family is None and len(families) > 1:
        raise InputError(
            f"{listed}, and nothing says which has column {column.name}",
            f"add family '…', or {column.name}.cell 'family:qualifier'",
        )
    family = family or families[0]
    if family not in families:
        raise UnknownName(f"table {table} has no family {family}", listed)
    return Cell(family, qualifier, _encoding(column, given))


def _encoding(column: Column, given: Mapping[str, str]) -> Encoding:
    own = f"{column.name.lower()}.encoding"
    found = given.get(own, given.get("encoding", "text"))
    if found not in _ENCODINGS:
        raise InputError(f"there is no encoding {found!r}", "use 'text' or 'bytes'")
    encoding = cast(Literal["text", "bytes"], found)
    try:
        require_encoding(column.type, encoding)
    except InputError as error:
        raise InputError(f"column {column.name}: {error.fact}", f"add {column.name}.encoding 'text'") from None
    return encoding


Span = tuple[bytes, bytes | None]  # start <= row key < stop; None is the end of the table
_HALF = b"\x80"  # in our keys the first of the numbers that are not negative; in HBase's the first that are


def row_spans(schema: TableSchema, start: bytes, stop: bytes | None) -> list[Span] | None:
    """Spans that hold the rows of a range of keys, ascending by our keys; None where HBase orders rows otherwise."""
    (column,) = schema.key_columns
    low, high = _body(start), None if stop is None else _body(stop)
    if low is None or (high is not None and low > high):
        return []
    if column.type.kind in ("STRING", "BINARY"):
        return [(_unescaped(low), None if high is None else _unescaped(high) + b"\x00")]
    if column.type.kind in ("INT", "BIGINT") and foreign_of(schema).key == "bytes":
        below = _HALF if high is None else min(high, _HALF)
        negative = [(_turned(low) or _HALF, None if below == _HALF else _turned(below))] if low < below else []
        low = max(low, _HALF)
        others = [(_turned(low), _HALF if high is None else _turned(high))] if high is None or low < high else []
        return [*negative, *others]
    return None


def _body(bound: bytes) -> bytes | None:
    """A bound without the tag of the key's one part; None: it is after all keys."""
    if bound[:1] > PRESENT:
        return None
    return bound[1:] if bound[:1] == PRESENT else b""


def _unescaped(body: bytes) -> bytes:
    """The text up to its end, or to where it is cut off."""
    at = body.find(b"\x00")
    while at >= 0 and body[at : at + 2] == ESCAPE:
        at = body.find(b"\x00", at + 2)
    return (body if at < 0 else body[:at]).replace(ESCAPE, b"\x00")


def _turned(body: bytes) -> bytes:
    """The number with the other sign bit."""
    return bytes((body[0] ^ 0x80,)) + body[1:] if body else body


_BY_TURN = b"NEW_VERSION_BEHAVIOR"  # of a family in which deletes hide what was put before them, whatever its timestamp


def map_table(
    connections: Connections, own: str, schema: TableSchema, using: str | None, options: Mapping[str, str]
) -> Mapped:
    """The table that CREATE TABLE … USING hbase OPTIONS (…) names; `own` is the namespace of the store itself."""
    table = named_table(schema, using, options)
    if table.startswith(f"{own}:"):
        raise InputError(f"table {table} of HBase is ViewKeeper's own", "map a table of another namespace")
    if table.startswith("hbase:"):
        raise InputError(f"table {table} is HBase's own, and its log is not read", "map a table of another namespace")
    try:
        if not table_exists(connections, table.encode()):
            raise UnknownName(f"HBase has no table {table}", "make it in HBase first, or name another one")
        described = connections.ask("getTableDescriptor", table_name(table.encode()))
    except Refused as error:  # no name of a table, or no such namespace
        raise UnknownName(f"HBase has no table {table}: {error.fact}", "make it in HBase first") from None
    families = _families(described)
    foreign = foreign_of_options(schema, table, options, list(families))
    for fact, way_out in _unfit(foreign, described):
        raise InputError(fact, way_out)
    expiring = sorted({c.family for c in foreign.cells if families[c.family].timeToLive not in (None, FOREVER)})
    short = ", ".join(f"{name} after {families[name].timeToLive:,} s" for name in expiring)
    ends = f", nor that HBase lets cells expire: of {short}" if short else ""
    return Mapped(foreign, f"its log does not tell of bulk loads and of writes with SKIP_WAL{ends}")


def ask_user_table(connections: Connections, table: str, request: str, *arguments: object, once: bool = False) -> Any:
    """The reply to a request to a user's table; one that may not be repeated is sent `once`."""
    ask = connections.ask_once if once else connections.ask
    try:
        return ask(request, table.encode(), *arguments)
    except Refused:
        if (trouble := trouble_of(connections, table)) is None:
            raise
        raise Refused(
            trouble, "bring it back in HBase and run viewkeeper repair, or drop its views and the table here"
        ) from None


def trouble_of(connections: Connections, table: str) -> str | None:
    """Why a table cannot be read or written; None: it can."""
    try:
        if connections.ask("isTableEnabled", table_name(table.encode())):
            return None
        is_there = table_exists(connections, table.encode())
    except Refused:
        is_there = False
    return f"table {table} is {'disabled' if is_there else 'not'} in HBase"


def warnings_of(connections: Connections, foreign: Foreign) -> Iterator[str]:
    """Why views over a mapped table do not follow it any more."""
    if (trouble := trouble_of(connections, foreign.table)) is not None:
        yield f"{trouble}: its views stay as they are"
        return
    described = connections.ask("getTableDescriptor", table_name(foreign.table.encode()))
    for fact, way_out in _unfit(foreign, described):
        yield f"{fact}: its views do not follow it; {way_out}, and run viewkeeper repair"


def _unfit(foreign: Foreign, described: Any) -> Iterator[tuple[str, str]]:
    """Why no view can follow a table, and the way out."""
    table, families = foreign.table, _families(described)
    if described.durability == thrift().TDurability.SKIP_WAL:
        yield f"table {table} of HBase has no log (SKIP_WAL)", "set its DURABILITY to SYNC_WAL"
    for name in sorted({cell.family for cell in foreign.cells}):
        if name not in families:
            yield f"table {table} of HBase has no family {name}", "bring it back in HBase"
        elif (families[name].attributes or {}).get(_BY_TURN, b"").lower() == b"true":
            yield (
                f"family {name} of table {table} has NEW_VERSION_BEHAVIOR, by which a put below an earlier delete is seen",
                f"alter '{table}', {{NAME => '{name}', NEW_VERSION_BEHAVIOR => false}} in HBase",
            )


def _families(described: Any) -> dict[str, Any]:
    return {family.name.decode(): family for family in described.columns or ()}


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns of a table's records that views show, and where in a record they are.

    `always`: the names of those that every record has; a later view adds columns that older records lack.
    """

    key: tuple[Column, ...]
    row: tuple[Column, ...]
    columns: tuple[tuple[Column, StoredIndex], ...]
    always: frozenset[bytes]

    def texts(self, keys: pa.Array, rows: pa.Array) -> tuple[tuple[bytes, pa.Array], ...]:
        """The shown columns of records as text, by name; `rows` has NULL for a tombstone."""
        there = np.asarray(rows.is_valid())
        indexes = [index for _, index in self.columns]
        chosen = pa.array(there)
        arrays = decode_indexes(self.key, self.row, indexes, keys.filter(chosen), rows.filter(chosen))
        at = pa.array(np.cumsum(there) - 1, mask=~there)
        return tuple(
            (column.name.encode(), encode_cells(as_users_see(array), column.type, "text").take(at).fill_null(b""))
            for (column, _), array in zip(self.columns, arrays, strict=True)
        )

    def wrong(self, results: Sequence[Any]) -> Iterator[WrongColumns]:
        """The records, with the newest version of each cell, whose cells differ from the columns that they should show."""
        newest = [{(cell.family, cell.qualifier): cell for cell in result.columnValues} for result in results]
        records = [cells.get((RECORD, RECORD)) for cells in newest]
        keys = pa.array([result.row[1:] for result in results], pa.binary())
        rows = pa.array([None if record is None else row_of(record.value) for record in records], pa.binary())
        texts = [(name, array.to_pylist()) for name, array in self.texts(keys, rows)]
        for at, (cells, record) in enumerate(zip(newest, records, strict=True)):
            expected, found = dict[str, object](), dict[str, object]()
            for name, values in texts:
                cell = cells.get((COLUMNS, name))
                there = None if cell is None else (cell.timestamp, cell.value)
                right = None if record is None else (record.timestamp, values[at])
                if there != right and (there is not None or name in self.always):
                    shown = f"{COLUMNS.decode()}:{name.decode()}"
                    expected[shown] = None if right is None else values[at].decode(errors="replace")
                    found[shown] = None if cell is None else cell.value.decode(errors="replace")
            if expected:
                yield keys[at].as_py(), expected, found


def shown_of(catalog: Catalog, table: int) -> Shown | None:
    """What views show of a table, if it is a view's own. Of two columns of one name the older view's counts."""
    views = [view for view in catalog.kept if view.node.table == table]
    if not any(view.shown for view in views):
        return None
    columns: dict[str, tuple[Column, StoredIndex]] = {}
    for view in views:
        for shown in view.shown:
            columns.setdefault(shown.column.name, (shown.column, (shown.part, shown.index)))
    made = [view for view in views if view.id == view.node.backfill]
    always = frozenset(shown.column.name.encode() for view in made for shown in view.shown)
    return Shown(views[0].node.key, views[0].node.row, tuple(columns.values()), always)
