"""Raw keys and rows in a mapped table: a store in HBase under the tests of the contract, which write any bytes.

In: an open store with a mapped table (BINARY key, one BINARY column). Out: the same store, for callers with raw bytes.
Always: keys are encoded as keys of ours, in the same order, and rows as rows of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from viewkeeper.model.keys import decode_key, encode_key
from viewkeeper.model.rowcodec import decode_row, encode_row
from viewkeeper.model.schema import Column
from viewkeeper.model.stored_rows import Expected, Image, RowWrites
from viewkeeper.model.types import BINARY
from viewkeeper.ports.base_rows import HeldRows

KEY, VALUE = (Column("id", BINARY, nullable=False),), (Column("v", BINARY),)


class MappedRows:
    """What of the port `BaseTables` takes keys or rows; the rest is the store's own."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, writes: Sequence[RowWrites], **how: bool) -> dict:
        return self._store.write([_writes(one) for one in writes], **how)

    def write_if(self, writes: RowWrites, expected: Expected) -> dict | None:
        return self._store.write_if(
            _writes(writes), Expected(expected.columns, lambda before: expected.is_met(_raw(before)))
        )

    def get(self, table: int, key: bytes) -> Image:
        return _raw(self._store.get(table, _key(key)))

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        return [_raw(row) for row in self._store.get_many(table, [_key(key) for key in keys])]

    def hold_rows(self) -> MappedHeldRows:
        return MappedHeldRows(self._store.hold_rows())


class MappedHeldRows:
    """Rows that are held, under raw keys."""

    def __init__(self, held: HeldRows) -> None:
        self._held = held

    def scan_all(self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[tuple]:
        bounds = _key(start) if start else start, None if stop is None else _key(stop)
        for key, row in self._held.scan_all(table, *bounds, reverse=reverse):
            yield decode_key(KEY, key)[0], _raw(row)

    def close(self) -> None:
        self._held.close()


def _writes(writes: RowWrites) -> RowWrites:
    def merge(befores: list[Image]) -> list[Image]:
        afters = writes.merge([_raw(before) for before in befores])
        return [None if after is None else encode_row(VALUE, [after]) for after in afters]

    return RowWrites(writes.table, [_key(key) for key in writes.keys], merge, writes.repeats)


def _key(raw: bytes) -> bytes:
    return encode_key(KEY, [raw])


def _raw(row: Image) -> Image:
    return None if row is None else decode_row(VALUE, row)[0]
