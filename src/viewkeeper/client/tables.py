"""Tables: put, get, delete and scan of base rows.

In: keys and columns as Python values. Out: dicts, tokens. Always: a write is durable and in the log when its token is
returned; it does not involve views, so it costs the same with a hundred of them and with none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from viewkeeper.client.arguments import (
    Merge,
    byte_range,
    check_limit,
    delete_step,
    key_bytes,
    pick,
    put_step,
    take_many,
    take_mapping,
)
from viewkeeper.client.connection import Connection
from viewkeeper.errors import InputError
from viewkeeper.model.keys import decode_key
from viewkeeper.model.positions import Token
from viewkeeper.model.rowcodec import decode_row
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.stored_rows import Expected, RowWrites
from viewkeeper.model.stored_values import Stored, are_equal, from_stored, to_stored
from viewkeeper.ports.base_rows import scan_rows

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Table:
    """A base table of an open database."""

    def __init__(self, database: Connection, schema: TableSchema) -> None:
        self._database = database
        self._schema = schema
        self._written: Callable[[Token], None] = lambda token: None

    @property
    def name(self) -> str:
        return self._schema.name

    @property
    def schema(self) -> TableSchema:
        """The table as it is now: an ALTER TABLE by any process adds columns to it."""
        self._schema = self._database.current_table(self._schema)
        return self._schema

    def put(self, *key_and_columns: object) -> Token:
        """Write some columns of a row: `put(*key, {columns})`, or `put({all columns})` with the key inside."""
        return self._write(*put_step(self.schema, key_and_columns))

    def put_if(self, *key_and_columns: object, expect: Mapping[str, object] | None) -> bool:
        """Write only if the row is as expected: absent (None), or equal in the columns given; returns whether it was."""
        key, merge = put_step(self.schema, key_and_columns)
        return self._write_if(key, None if expect is None else _stored(self._schema, expect), merge)

    def put_many(self, rows: Iterable[Mapping[str, object]] | pa.Table | pa.RecordBatchReader) -> Token:
        """Write many rows in bounded transactions: dicts with their keys inside, Arrow data, or a DataFrame."""
        from viewkeeper.client.bulk_writes import put_rows

        self._database.require_writable()
        return put_rows(self._database, self.schema, rows, lambda part: self._written(part.token))

    def delete(self, *key: object, columns: Sequence[str] | None = None) -> Token:
        """Delete a row, or set some of its columns to NULL."""
        return self._write(*delete_step(self.schema, key, columns))

    def delete_if(self, *key: object, expect: Mapping[str, object]) -> bool:
        """Delete a row only if it exists and equals the columns given; returns whether it did. `{}` is any row."""
        encoded, merge = delete_step(self.schema, key, None)
        return self._write_if(encoded, _stored(self._schema, expect), merge)

    def delete_many(self, keys: Iterable[object]) -> Token:
        """Delete the rows under many keys in bounded transactions; a key of several columns is a tuple."""
        from viewkeeper.client.bulk_writes import delete_rows

        self._database.require_writable()
        return delete_rows(self._database, self.schema, keys, lambda part: self._written(part.token))

    def get(self, *key: object, columns: Sequence[str] | None = None) -> dict[str, object] | None:
        """The row under a key, key columns included; None when there is none."""
        schema = self.schema
        encoded = key_bytes(f"table {self.name}", schema.key_columns, key)
        row = self._database.store.get(schema.id, encoded)
        wanted = pick(columns, [column.name for column in schema.columns])
        return None if row is None else _to_dict(schema, encoded, row, wanted)

    def get_many(self, keys: Iterable[object]) -> list[dict[str, object] | None]:
        """The row under each key, in the order asked; a key of several columns is a tuple."""
        schema, name = self.schema, f"table {self.name}"
        wanted = (key if isinstance(key, tuple) else (key,) for key in take_many(f"get_many of {self.name}", keys))
        encoded = [key_bytes(name, schema.key_columns, key) for key in wanted]
        rows = self._database.store.get_many(schema.id, encoded)
        return [None if row is None else _to_dict(schema, key, row) for key, row in zip(encoded, rows, strict=True)]

    def scan(
        self,
        *prefix: object,
        start: object = None,
        stop: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[dict[str, object]]:
        """Rows in key order whose key begins with `prefix`, from `start` to before `stop`."""
        schema, pairs = self._pairs(prefix, start, stop, limit, reverse=reverse)
        return (_to_dict(schema, key, row) for key, row in pairs)

    def batches(
        self,
        *prefix: object,
        start: object = None,
        stop: object = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[pa.Table]:
        """The rows of `scan`, as Arrow tables, some thousand rows at a time."""
        from viewkeeper.client.arrow import table_to_arrow
        from viewkeeper.model.stored_rows import pieces

        schema, pairs = self._pairs(prefix, start, stop, limit, reverse=reverse)
        return (table_to_arrow(schema, piece) for piece in pieces(pairs))

    def to_arrow(self, *prefix: object, start: object = None, stop: object = None) -> pa.Table:
        """The rows of `scan`, as an Arrow table."""
        from viewkeeper.client.arrow import table_to_arrow

        return table_to_arrow(*self._pairs(prefix, start, stop))

    def to_pandas(self, *prefix: object, start: object = None, stop: object = None) -> pd.DataFrame:
        """The rows of `scan`, as a DataFrame with nullable types."""
        from viewkeeper.client.arrow import arrow_to_frame

        return arrow_to_frame(self.to_arrow(*prefix, start=start, stop=stop))

    def _pairs(
        self, prefix: Sequence[object], start: object, stop: object, limit: int | None = None, *, reverse: bool = False
    ) -> tuple[TableSchema, Iterator[tuple[bytes, bytes]]]:
        schema = self.schema
        check_limit(limit)
        bounds = byte_range(f"table {self.name}", schema.key_columns, prefix, start, stop)
        return schema, itertools.islice(scan_rows(self._database.store, schema.id, *bounds, reverse=reverse), limit)

    def _write(self, key: bytes, merge: Merge) -> Token:
        # The schema may be outdated. The merge keeps columns that others added since (`rowcodec.tail_of`).
        writes = RowWrites(self._schema.id, [key], lambda befores: [merge(befores[0])])
        token = self._database.write_rows([writes], (self._schema,))
        self._written(token)
        return token

    def _write_if(self, key: bytes, wanted: Mapping[str, Stored] | None, merge: Merge) -> bool:
        schema = self._schema
        writes = RowWrites(schema.id, [key], lambda befores: [merge(befores[0])])
        compared = None if wanted is None else tuple(name for name in wanted if name not in schema.key)
        expected = Expected(compared, lambda before: _is_as_expected(schema, key, before, wanted))
        token = self._database.write_row_if(writes, schema, expected)
        if token is not None:
            self._written(token)
        return token is not None


def _stored(schema: TableSchema, row: Mapping[str, object]) -> dict[str, Stored]:
    columns = {schema.column(name): value for name, value in take_mapping("expect", row).items()}
    return {column.name: to_stored(column, value) for column, value in columns.items()}


def _is_as_expected(schema: TableSchema, key: bytes, before: bytes | None, wanted: Mapping[str, Stored] | None) -> bool:
    if before is None or wanted is None:
        return before is None and wanted is None
    there = {column.name: value for column, value in _columns(schema, key, before)}
    return all(are_equal(there[name], value) for name, value in wanted.items())


def _columns(schema: TableSchema, key: bytes, row: bytes) -> Iterator[tuple[Column, Stored]]:
    stored = decode_key(schema.key_columns, key) + decode_row(schema.value_columns, row)
    return zip(schema.key_columns + schema.value_columns, stored, strict=True)


def _to_dict(schema: TableSchema, key: bytes, row: bytes, wanted: list[str] | None = None) -> dict[str, object]:
    whole = {column.name: from_stored(column, value) for column, value in _columns(schema, key, row)}
    return {name: whole[name] for name in (wanted or [column.name for column in schema.columns])}


class WriteGroup:
    """Puts and deletes of rows of one node that take effect together, when the block ends."""

    def __init__(self, database: Connection) -> None:
        self._database = database
        self._schemas: dict[int, TableSchema] = {}
        self._steps: dict[int, dict[bytes, list[Merge]]] = {}  # by table and row, in order
        self._ended = False
        self.token: Token | None = None

    def __enter__(self) -> WriteGroup:
        self._require_open()
        return self

    def __exit__(self, kind: type | None, *rest: object) -> None:
        self._ended = True
        if kind is not None:
            return
        if not self._steps:
            self.token = Token(self._database.store.incarnation)
            return
        writes = [RowWrites(table, list(rows), partial(_run_steps, rows)) for table, rows in self._steps.items()]
        self.token = self._database.write_rows(writes, tuple(self._schemas.values()))

    def put(self, table: str, *key_and_columns: object) -> None:
        """Like `Table.put`, at the end of the block."""
        self._require_open()
        schema = self._database.catalog().table(table)
        self._add(schema, *put_step(schema, key_and_columns))

    def delete(self, table: str, *key: object, columns: Sequence[str] | None = None) -> None:
        """Like `Table.delete`, at the end of the block."""
        self._require_open()
        schema = self._database.catalog().table(table)
        self._add(schema, *delete_step(schema, key, columns))

    def _require_open(self) -> None:
        if self._ended:
            raise InputError("the group of writes has ended", "begin another one with db.write()")

    def _add(self, schema: TableSchema, key: bytes, step: Merge) -> None:
        self._schemas[schema.id] = schema
        self._steps.setdefault(schema.id, {}).setdefault(key, []).append(step)


def _run_steps(rows: Mapping[bytes, list[Merge]], befores: list[bytes | None]) -> list[bytes | None]:
    """Each row after its steps, which run in order, each on the result of the one before."""
    images = zip(rows.values(), befores, strict=True)
    return [reduce(lambda image, step: step(image), steps, before) for steps, before in images]
