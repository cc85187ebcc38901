"""Bulk writes: many rows in bounded transactions.

In: dicts or Arrow data. Out: one token for all of it. Always: a batch is checked in full before any of it is written;
of rows with the same key the later one wins, as if they had been put one by one. Arrow data never becomes Python values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.client.arguments import key_bytes, merge_row, null_refused, split_put, take_many
from viewkeeper.client.arrow import frame_to_arrow
from viewkeeper.client.connection import Connection
from viewkeeper.errors import BadRow, InputError, RowsApart, TooMuchAtOnce
from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.positions import Token
from viewkeeper.model.rowbatches import decode_rows, encode_rows, tails_of
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.stored_rows import Image, RowWrites
from viewkeeper.model.stored_values import Stored

ROWS_PER_TRANSACTION = 10_000
_BYTES_PER_TRANSACTION = 64 << 20  # of Arrow data, about
Merge = Callable[[list[Image], np.ndarray], list[Image]]
Groups = Callable[[np.ndarray], list[RowWrites]]


@dataclass(frozen=True, slots=True)
class Part:
    """A committed transaction of a bulk write: of its rows, `added` were not in the table before."""

    token: Token
    rows: int
    added: int


Wrote = Callable[[Part], None]


def put_rows(
    database: Connection,
    schema: TableSchema,
    rows: Iterable[Mapping[str, object]] | pa.Table | pa.RecordBatchReader,
    wrote: Wrote,
) -> Token:
    """Write all rows; returns a token for them. `wrote` is called for each transaction, also before a failure."""
    token = Token(database.store.incarnation)
    written = 0
    for keys, merge in _batches(schema, rows):
        try:
            for chosen in database.store.together(keys, apart=True):
                token |= _write(database, schema, keys, chosen, partial(_distinct_groups, schema, keys, merge), wrote)
                written += len(chosen)
        except InputError as error:
            raise type(error)(f"{error.fact} ({written} rows before it are written)", error.hint) from None
    return token


def delete_rows(database: Connection, schema: TableSchema, keys: Iterable[object], wrote: Wrote) -> Token:
    """Delete the rows under all keys; returns a token. A list is checked in full before the first row is deleted."""
    keys = take_many(f"delete_many of {schema.name}", keys)
    token, name = Token(database.store.incarnation), f"table {schema.name}"

    def encode(part: list[object]) -> list[bytes]:
        wanted = (key if isinstance(key, tuple) else (key,) for key in part)
        return list(dict.fromkeys(key_bytes(name, schema.key_columns, key) for key in wanted))

    def remove(part: list[bytes], chosen: np.ndarray) -> list[RowWrites]:
        return [RowWrites(schema.id, [part[i] for i in chosen.tolist()], lambda befores: [None] * len(befores))]

    parts: Iterable[list[bytes]] = (encode(part) for _, part in _chunks(keys))
    for part in list(parts) if isinstance(keys, Sequence) else parts:
        for chosen in database.store.together(part, apart=True):
            token |= _write(database, schema, part, chosen, partial(remove, part), wrote)
    return token


def _write(
    database: Connection, schema: TableSchema, keys: list[bytes], chosen: np.ndarray, groups: Groups, wrote: Wrote
) -> Token:
    """Write the chosen rows of a batch: at once, or in halves where that is too much for a transaction."""
    try:
        part = _write_at_once(database, schema, groups(chosen))
    except TooMuchAtOnce:
        if len(chosen) == 1:
            raise
        parts = [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
    except RowsApart:  # some have moved to another node since
        parts = [chosen[some] for some in database.store.together([keys[i] for i in chosen.tolist()], apart=True)]
    else:
        wrote(part)
        return part.token
    token = Token(database.store.incarnation)
    for some in parts:
        token |= _write(database, schema, keys, some, groups, wrote)
    return token


def _write_at_once(database: Connection, schema: TableSchema, groups: Sequence[RowWrites]) -> Part:
    """One transaction, which also counts the rows that are new to the table."""
    added = 0

    def counted(group: RowWrites) -> RowWrites:
        def merge(befores: list[Image]) -> list[Image]:
            nonlocal added
            added += befores.count(None)
            return group.merge(befores)

        return RowWrites(group.table, group.keys, merge)

    token = database.write_rows([counted(group) for group in groups], (schema,), apart=True)
    return Part(token, sum(len(group.keys) for group in groups), added)


def _batches(schema: TableSchema, rows: object) -> Iterator[tuple[list[bytes], Merge]]:
    # without pandas no value is a DataFrame, nor while another thread imports it
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    if frame is not None and isinstance(rows, frame):
        rows = frame_to_arrow(rows)
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        # a whole table is checked before the first row is written
        return iter([_arrow_batch(schema, part) for batch in rows.to_batches() for part in _slices(batch)])
    if isinstance(rows, pa.RecordBatchReader):
        return (_arrow_batch(schema, part) for batch in rows for part in _slices(batch))
    if hasattr(rows, "__arrow_c_stream__"):  # polars, DuckDB and others that support Arrow
        return _batches(schema, pa.RecordBatchReader.from_stream(rows))
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        fact = f"put_many to {schema.name} takes many rows, not one {type(rows).__name__}"
        raise InputError(fact, "pass a list of dicts")
    batches = (_dict_batch(schema, part, first) for first, part in _chunks(rows))
    return iter(list(batches)) if isinstance(rows, Sequence) else batches


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    size = min(ROWS_PER_TRANSACTION, max(1, len(batch) * _BYTES_PER_TRANSACTION // max(1, batch.nbytes)))
    for start in range(0, len(batch), size):
        yield batch.slice(start, size)


def _chunks(rows: Iterable[object]) -> Iterator[tuple[int, list[object]]]:
    iterator, first = iter(rows), 0
    while part := list(islice(iterator, ROWS_PER_TRANSACTION)):
        yield first, part
        first += len(part)


def _dict_batch(schema: TableSchema, rows: list[object], first: int) -> tuple[list[bytes], Merge]:
    keys: list[bytes] = []
    columns: list[dict[str, Stored]] = []
    for number, row in enumerate(rows, first):
        try:
            key, given = split_put(schema, [row])
        except InputError as error:
            raise type(error)(f"row {number}: {error.fact}", error.hint) from None
        keys.append(key)
        columns.append(given)

    def merge(befores: list[Image], chosen: np.ndarray) -> list[Image]:
        pairs = zip(befores, chosen.tolist(), strict=True)
        return [merge_row(schema, before, columns[number]) for before, number in pairs]

    return keys, merge


def _arrow_batch(schema: TableSchema, batch: pa.RecordBatch) -> tuple[list[bytes], Merge]:
    given = {schema.column(name).name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    if len(given) < batch.num_columns:
        raise InputError("the Arrow data names a column twice")
    missing = [name for name in schema.key if name not in given]
    if missing:
        raise BadRow(f"the key of {schema.name} lacks {', '.join(missing)}", "give every key column")
    arrays = {name: _fit(schema.column(name), array) for name, array in given.items()}
    for name in schema.key:
        if arrays[name].null_count:
            raise BadRow(f"key column {name} of table {schema.name} is NULL", "a key has a value in every column")
    keys, _ = encode_keys(schema.key_columns, [arrays[name] for name in schema.key], len(batch))
    values = schema.value_columns
    kept = [i for i, column in enumerate(values) if column.name not in arrays]

    def merge(befores: list[Image], chosen: np.ndarray) -> list[Image]:
        index = pa.array(chosen)
        there = pa.array(befores, pa.binary())
        old = dict(zip(kept, decode_rows(values, there, kept), strict=True)) if kept else {}
        new = [old[i] if i in old else arrays[column.name].take(index) for i, column in enumerate(values)]
        for column, array in zip(values, new, strict=True):
            if array.null_count and not column.nullable:
                raise null_refused(schema, column)
        # what follows the columns known here belongs to columns added since, and stays
        return encode_rows(values, new, len(chosen), tails_of(values, there)).to_pylist()

    return keys.to_pylist(), merge


def check_batch(schema: TableSchema, batch: pa.RecordBatch) -> None:
    """Raise unless every row of the batch may be put."""
    for part in _slices(batch):
        _arrow_batch(schema, part)


def _fit(column: Column, array: pa.Array) -> pa.Array:
    """The array in the column's type; only casts that lose nothing."""
    wanted = column.type.arrow
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type) and array.type.tz:
        array = array.cast(pa.timestamp(array.type.unit, "UTC")).cast(pa.timestamp(array.type.unit))
    kind = array.type
    fits = kind == wanted or pa.types.is_null(kind) or _may_cast(kind, wanted)
    try:
        if not fits:
            raise pa.ArrowInvalid(f"it is {kind}")
        if pa.types.is_integer(kind) and pa.types.is_decimal(wanted):
            # Arrow requires room for every integer of the type; through 38 digits only the actual values count
            array = array.cast(pa.decimal128(38, wanted.scale))
        fitted = array.cast(wanted)
        fitted.validate(full=True)  # text that is not UTF-8
        if pa.types.is_temporal(wanted) and len(fitted) > fitted.null_count:
            pc.min_max(fitted).as_py()  # a day that Python cannot represent
        return fitted
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, ValueError) as error:
        reason = str(error).splitlines()[0]
        hint = f"cast it to Arrow's {wanted} first"
        if pa.types.is_floating(kind) and pa.types.is_integer(wanted):  # pandas turns integers with a NULL into these
            hint += f'; in pandas that is .astype("{str(wanted).capitalize()}")'
        raise BadRow(f"column {column.name} is {column.type}: {reason}", hint) from None


def _may_cast(kind: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(kind):
        return types.is_integer(wanted) or types.is_decimal(wanted) or types.is_floating(wanted)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return types.is_string(wanted)
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return types.is_binary(wanted)
    return any(is_of(kind) and is_of(wanted) for is_of in (types.is_floating, types.is_decimal, types.is_timestamp))


def _distinct_groups(schema: TableSchema, keys: list[bytes], merge: Merge, chosen: np.ndarray) -> list[RowWrites]:
    """Groups of writes without a repeated key: a key's second row goes to the second group, and so on."""
    wanted = [keys[i] for i in chosen.tolist()]
    if len(set(wanted)) == len(wanted):
        return [_group(schema, wanted, chosen, merge)]
    rounds: list[list[int]] = []
    seen: dict[bytes, int] = {}
    for number, key in zip(chosen.tolist(), wanted, strict=True):
        turn = seen.get(key, 0)
        seen[key] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(number)
    return [_group(schema, [keys[i] for i in turn], np.array(turn), merge) for turn in rounds]


def _group(schema: TableSchema, keys: list[bytes], chosen: np.ndarray, merge: Merge) -> RowWrites:
    return RowWrites(schema.id, keys, lambda befores: merge(befores, chosen))
