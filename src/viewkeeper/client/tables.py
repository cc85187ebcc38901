"""Tables: put, get, delete and scan of base rows.

In: keys and columns as Python values. Out: dicts, tokens. Always: a write is durable and in the log when its token is
returned; it does not involve views, so it costs the same with a hundred of them and with none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from viewkeeper.client.arguments import (
    byte_range,
    check_limit,
    clear_columns,
    key_bytes,
    merge_row,
    pick,
    split_put,
    take_mapping,
    to_dict,
    value_column_names,
)
from viewkeeper.client.connection import Connection
from viewkeeper.errors import InputError
from viewkeeper.model.keys import decode_key
from viewkeeper.model.positions import Token
from viewkeeper.model.rowcodec import decode_row
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.stored_rows import Expected, RowWrites
from viewkeeper.model.stored_values import Stored, are_equal, to_stored

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
        schema = self.schema
        key, columns = split_put(schema, key_and_columns)
        return self._write(key, lambda before: merge_row(schema, before, columns))

    def put_if(self, *key_and_columns: object, expect: Mapping[str, object] | None) -> bool:
        """Write only if the row is as expected: absent (None), or equal in the columns given; returns whether it was."""
        schema = self.schema
        key, columns = split_put(schema, key_and_columns)
        wanted = None if expect is None else _stored(schema, expect)

        return self._write_if(key, wanted, lambda before: merge_row(schema, before, columns))

    def put_many(self, rows: Iterable[Mapping[str, object]] | pa.Table | pa.RecordBatchReader) -> Token:
        """Write many rows in bounded transactions: dicts with their keys inside, Arrow data, or a DataFrame."""
        from viewkeeper.client.bulk_writes import put_rows

        self._database.require_writable()
        return put_rows(self._database, self.schema, rows, lambda part: self._written(part.token))

    def delete(self, *key: object, columns: Sequence[str] | None = None) -> Token:
        """Delete a row, or set some of its columns to NULL."""
        schema = self.schema
        encoded = key_bytes(f"table {self.name}", schema.key_columns, key)
        if columns is None:
            return self._write(encoded, lambda before: None)
        names = value_column_names(schema, columns)
        return self._write(encoded, lambda before: clear_columns(schema, before, names))

    def delete_if(self, *key: object, expect: Mapping[str, object]) -> bool:
        """Delete a row only if it exists and equals the columns given; returns whether it did. `{}` is any row."""
        schema = self.schema
        encoded = key_bytes(f"table {self.name}", schema.key_columns, key)
        return self._write_if(encoded, _stored(schema, expect), lambda before: None)

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
        schema = self.schema
        if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
            raise InputError(
                f"get_many of {self.name} takes many keys, not one {type(keys).__name__}", "pass a list of keys"
            )
        encoded = [
            key_bytes(f"table {self.name}", schema.key_columns, key if isinstance(key, tuple) else (key,))
            for key in keys
        ]
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
        schema = self.schema
        pairs = self._pairs(schema, prefix, start, stop, limit, reverse)
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

        schema = self.schema
        pairs = self._pairs(schema, prefix, start, stop, limit, reverse)
        return (table_to_arrow(schema, piece) for piece in pieces(pairs))

    def to_arrow(self, *prefix: object, start: object = None, stop: object = None) -> pa.Table:
        """The rows of `scan`, as an Arrow table."""
        from viewkeeper.client.arrow import table_to_arrow

        schema = self.schema
        bounds = byte_range(f"table {self.name}", schema.key_columns, prefix, start, stop)
        return table_to_arrow(schema, self._database.store.scan(schema.id, *bounds))

    def to_pandas(self, *prefix: object, start: object = None, stop: object = None) -> pd.DataFrame:
        """The rows of `scan`, as a DataFrame with nullable types."""
        from viewkeeper.client.arrow import arrow_to_frame

        return arrow_to_frame(self.to_arrow(*prefix, start=start, stop=stop))

    def _pairs(
        self,
        schema: TableSchema,
        prefix: Sequence[object],
        start: object,
        stop: object,
        limit: int | None,
        reverse: bool,
    ) -> Iterator[tuple[bytes, bytes]]:
        check_limit(limit)
        bounds = byte_range(f"table {self.name}", schema.key_columns, prefix, start, stop)
        return itertools.islice(self._database.store.scan(schema.id, *bounds, reverse=reverse), limit)

    def _write(self, key: bytes, merge: Callable[[bytes | None], bytes | None]) -> Token:
        # The schema may be outdated. The merge keeps columns that others added since (`rowcodec.tail_of`).
        writes = RowWrites(self._schema.id, [key], lambda befores: [merge(befores[0])])
        token = self._database.write_rows([writes], (self._schema,))
        self._written(token)
        return token

    def _write_if(
        self, key: bytes, wanted: Mapping[str, Stored] | None, merge: Callable[[bytes | None], bytes | None]
    ) -> bool:
        """Write if the row is as wanted at the time of the write; returns whether it was."""
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
    names = (column.name for column in schema.key_columns + schema.value_columns)
    there = dict(zip(names, _values(schema, key, before), strict=True))
    return all(are_equal(there[name], value) for name, value in wanted.items())


def _values(schema: TableSchema, key: bytes, row: bytes) -> list[Stored]:
    return decode_key(schema.key_columns, key) + decode_row(schema.value_columns, row)


def _to_dict(schema: TableSchema, key: bytes, row: bytes, wanted: list[str] | None = None) -> dict[str, object]:
    whole = to_dict(schema.key_columns + schema.value_columns, _values(schema, key, row))
    return {name: whole[name] for name in (wanted or [column.name for column in schema.columns])}


class WriteGroup:
    """Puts and deletes of rows of one node that take effect together, when the block ends."""

    def __init__(self, database: Connection) -> None:
        self._database = database
        self._steps: list[tuple[TableSchema, bytes, Callable[[bytes | None], bytes | None]]] = []
        self._ended = False
        self.token: Token | None = None

    def __enter__(self) -> WriteGroup:
        self._require_open()
        return self

    def __exit__(self, kind: type | None, *rest: object) -> None:
        self._ended = True
        if kind is None:
            self._commit()

    def put(self, table: str, *key_and_columns: object) -> None:
        """Like `Table.put`, at the end of the block."""
        self._require_open()
        schema = self._database.catalog().table(table)
        key, columns = split_put(schema, key_and_columns)
        self._steps.append((schema, key, lambda before: merge_row(schema, before, columns)))

    def delete(self, table: str, *key: object, columns: Sequence[str] | None = None) -> None:
        """Like `Table.delete`, at the end of the block."""
        self._require_open()
        schema = self._database.catalog().table(table)
        encoded = key_bytes(f"table {schema.name}", schema.key_columns, key)
        if columns is None:
            self._steps.append((schema, encoded, lambda before: None))
        else:
            names = value_column_names(schema, columns)
            self._steps.append((schema, encoded, lambda before: clear_columns(schema, before, names)))

    def _require_open(self) -> None:
        if self._ended:
            raise InputError("the group of writes has ended", "begin another one with db.write()")

    def _commit(self) -> None:
        if not self._steps:
            self.token = Token(self._database.store.incarnation)
            return
        schemas = {schema.id: schema for schema, _, _ in self._steps}.values()
        self.token = self._database.write_rows(self._groups(), tuple(schemas))

    def _groups(self) -> list[RowWrites]:
        """One write for each row: the steps of a row run in order, each on the result of the one before."""
        rows: dict[tuple[int, bytes], list[Callable[[bytes | None], bytes | None]]] = {}
        for schema, key, step in self._steps:
            rows.setdefault((schema.id, key), []).append(step)
        tables: dict[int, list[bytes]] = {}
        for table, key in rows:
            tables.setdefault(table, []).append(key)
        return [RowWrites(table, keys, _run_steps(table, keys, rows)) for table, keys in tables.items()]


def _run_steps(
    table: int, keys: list[bytes], rows: Mapping[tuple[int, bytes], list[Callable[[bytes | None], bytes | None]]]
) -> Callable[[list[bytes | None]], list[bytes | None]]:
    def merge(befores: list[bytes | None]) -> list[bytes | None]:
        afters = []
        for key, image in zip(keys, befores, strict=True):
            for step in rows[table, key]:
                image = step(image)
            afters.append(image)
        return afters

    return merge
