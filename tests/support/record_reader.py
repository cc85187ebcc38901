"""An independent reader of view records: raw bytes, decoded by `docs/storage-format.md`, against DuckDB over the base.

In: an open database over the embedded or the memory store. Out: for each view what is wrong with its records, as texts.
Always: none of the product's decoders, readers or checks is used: of the product, only the catalog (which columns a view
shows, and where) and the rows of base tables.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections import Counter
from typing import TYPE_CHECKING

import duckdb
import sqlglot

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import ViewDefinition
    from viewkeeper.client.database import Database

Stored = tuple[int, bytes, bytes]  # partition, key, value
_TOMBSTONE = 0xFFFFFFFF
_KEY_BYTES = {"INT": 4, "DATE": 4, "BIGINT": 8, "TIMESTAMP": 8, "DECIMAL": 16}
_ROW_BYTES = {"BOOLEAN": 1, "INT": 4, "DATE": 4, "BIGINT": 8, "TIMESTAMP": 8, "DOUBLE": 8}
_TEXTS = ("STRING", "BINARY")


class Damaged(Exception):
    """Bytes that the format does not allow."""


def raw_records(database: Database, table: int) -> list[Stored]:
    """Every record of a table, partition by partition."""
    prefix, found = table.to_bytes(4, "big"), []
    for number in range(database.store.partitions):
        with database.store.partition(number).kernel.read("records") as records:
            for pairs in records.lists(prefix, (table + 1).to_bytes(4, "big")):
                found += [(number, key[4:], value) for key, value in pairs]
    return found


def put_raw(database: Database, table: int, partition: int, key: bytes, value: bytes | None) -> None:
    """Change one record behind the system's back; None removes it."""
    stored = table.to_bytes(4, "big") + key
    with database.store.partition(partition).kernel.write("records") as records:
        records.delete_many([stored]) if value is None else records.put(stored, value)


def problems(database: Database) -> dict[str, list[str]]:
    """What is wrong with the records of each view; a view without any is not listed."""
    record = database.store.read_epoch_record()
    expected, found = recomputed(database), {}
    for view in database.catalog().views:
        told, rows = _read(database, view, record.committed, record.last, record.aborted)
        if (seen := Counter(rows)) != expected[view.name]:
            told.append(f"missing {expected[view.name] - seen}, extra {seen - expected[view.name]}")
        if told:
            found[view.name] = told
    return found


def _read(
    database: Database, view: ViewDefinition, committed: int, last: int, aborted: tuple[int, ...]
) -> tuple[list[str], list[tuple]]:
    told, rows = [], []
    for partition, key, chain in raw_records(database, view.node.table):
        try:
            versions = list(read_versions(chain))
            epochs = [epoch for epoch, _ in versions]
            if epochs != sorted(set(epochs), reverse=True) or epochs[0] > last or epochs[-1] < 1:
                raise Damaged(f"epochs {epochs}")
            row = next((row for epoch, row in versions if epoch <= committed and epoch not in aborted), None)
            if row is None:
                continue
            keys, first = read_key(view.node.key, key)
            values = read_row(view.node.row, row)
        except (Damaged, IndexError, ValueError, struct.error) as error:
            told.append(f"{key!r}: {error}")
            continue
        if view.present is not None and not values[view.present]:
            continue
        if partition != place_of(first, database.store.partitions):
            told.append(f"{key!r} is in partition {partition}")
        rows.append(tuple(_plain((keys if s.part == "key" else values)[s.index]) for s in view.shown))
    return told, rows


def read_versions(chain: bytes) -> list[tuple[int, bytes | None]]:
    at, found = 0, []
    while at < len(chain) or not found:
        epoch, size = struct.unpack_from("<QI", chain, at)
        at += 12
        if size == _TOMBSTONE:
            found.append((epoch, None))
            continue
        found.append((epoch, chain[at : at + size]))
        at += size
    if at != len(chain):
        raise Damaged("its last version is cut off")
    return found


def place_of(first: bytes, partitions: int) -> int:
    number = int.from_bytes(first, "little") % 4_294_967_291
    return ((number * 0x9E3779B97F4A7C15) % (1 << 64) >> 32) % partitions


def read_key(columns: tuple, key: bytes) -> tuple[list, bytes]:
    """The values of a key, and the bytes of its first part."""
    values, at, first = [], 0, b""
    for column in columns:
        value, at = _key_part(column, key, at)
        values.append(value)
        first = first if len(values) > 1 else key[:at]
    if at != len(key):
        raise Damaged("its key is too long")
    return values, first


def _key_part(column: object, key: bytes, at: int) -> tuple[object, int]:
    tag, kind = key[at], column.type.kind
    if tag == 0:
        return None, at + 1
    if tag != 1:
        raise Damaged(f"a tag of its key is {tag}")
    at += 1
    if kind in _TEXTS:
        body = bytearray()
        while key[at : at + 2] != b"\0\0":
            body.append(key[at])
            at += 2 if key[at : at + 2] == b"\0\xff" else 1
        return body.decode() if kind == "STRING" else bytes(body), at + 2
    width = 1 if kind == "BOOLEAN" else _KEY_BYTES.get(kind, 8)
    if len(key) < at + width:
        raise Damaged("its key is cut off")
    number = int.from_bytes(key[at : at + width], "big")
    if kind == "DOUBLE":
        bits = number ^ ((1 << 64) - 1) if not number >> 63 else number ^ 1 << 63
        return struct.unpack("<d", struct.pack("<Q", bits))[0], at + 8
    value = number if kind == "BOOLEAN" else number - (1 << 8 * width - 1)
    return _typed(column, value), at + width


def read_row(columns: tuple, row: bytes) -> list:
    """The values of a row of one segment."""
    fixed = [column for column in columns if column.type.kind not in _TEXTS and column.type.width is not None]
    texts = [column for column in columns if column not in fixed]
    bits_width = (len(columns) + 7) // 8
    width = 2 + bits_width + sum(_width(column) for column in fixed) + 4 * len(texts)
    if row[:2] == b"\xff\xff" and not texts:
        row = _expanded(row, width)
    if len(row) < width or int.from_bytes(row[:2], "little") != len(columns):
        raise Damaged("its row is cut off, or of other columns")
    bits, at, values = int.from_bytes(row[2 : 2 + bits_width], "little"), 2 + bits_width, {}
    for place, column in enumerate(columns):
        if column in fixed:
            values[place] = _fixed(column, row[at : at + _width(column)])
            at += _width(column)
    start = body = at + 4 * len(texts)
    for place, column in enumerate(columns):
        if column not in fixed:
            end = body + struct.unpack_from("<I", row, at)[0]
            if not start <= end <= len(row):
                raise Damaged("an end of its row is beyond it")
            values[place] = row[start:end].decode() if column.type.kind == "STRING" else row[start:end]
            start, at = end, at + 4
    if start != len(row):
        raise Damaged("its row is too long")
    return [None if bits >> place & 1 else values[place] for place in range(len(columns))]


def _width(column: object) -> int:
    return _ROW_BYTES.get(column.type.kind, 16)


def _fixed(column: object, piece: bytes) -> object:
    if column.type.kind == "DOUBLE":
        return struct.unpack("<d", piece)[0]
    return _typed(column, int.from_bytes(piece, "little", signed=column.type.kind != "BOOLEAN"))


def _typed(column: object, number: int) -> object:
    if column.type.kind == "BOOLEAN":
        if number > 1:
            raise Damaged(f"a BOOLEAN is {number}")
        return bool(number)
    if column.type.kind == "DECIMAL":
        if abs(number) >= 10**column.type.precision:
            raise Damaged("a DECIMAL has too many digits")
        return decimal.Decimal(number).scaleb(-column.type.scale)
    return number


def _expanded(row: bytes, width: int) -> bytes:
    size = -(-width // 8)
    bits, body = int.from_bytes(row[2 : 2 + size], "little"), iter(row[2 + size :])
    if bits.bit_count() != len(row) - 2 - size or bits >> width:
        raise Damaged("its compact row is cut off")
    return bytes(next(body) if bits >> place & 1 else 0 for place in range(width))


def recomputed(database: Database) -> dict[str, Counter]:
    """What DuckDB makes of the views' texts over the base rows as they are."""
    catalog = database.catalog()
    with duckdb.connect() as connection:
        for table in catalog.tables:
            connection.register(table.name, database.table(table.name).to_arrow())
        texts = {view.name: _text(catalog, view) for view in catalog.views}
        answers = {name: connection.sql(text).fetchall() for name, text in texts.items()}
    return {name: Counter(tuple(map(_plain, row)) for row in rows) for name, rows in answers.items()}


def _text(catalog: object, view: ViewDefinition) -> str:
    if view.kind == "INDEX":
        shown = ", ".join(item.column.name for item in view.shown)
        return f"SELECT {shown} FROM {catalog.by_id(view.names[0][1]).name}"
    return sqlglot.transpile(view.text, read="spark", write="duckdb")[0]


def _plain(value: object) -> object:
    """A value so that equal ones compare equal, and sums of doubles within a millionth."""
    if isinstance(value, decimal.Decimal):
        return str(value.normalize())
    if not isinstance(value, float):
        return value
    return "NaN" if math.isnan(value) else f"{value + 0.0:.6g}"
