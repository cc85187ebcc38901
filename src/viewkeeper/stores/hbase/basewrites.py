"""Base writes in HBase: rows of mapped tables, each written by itself.

In: writes as functions of the rows found. Out: positions of the log that cover them. Always: a row is changed by one
mutation, or not at all. A put or a delete may be repeated, because its reply was lost; a test-and-set is sent once. A
delete returns when HBase's clock has passed the stamps that it hides, so what is put after it is seen. Of a row that is
only to be logged as it is, cells are put again, and those that are gone are staged: nothing of it is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from viewkeeper.errors import InputError, RowsApart, StoreBusy, StoreUnavailable, UnknownName, UnsupportedSql
from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.model.moments import Moment
from viewkeeper.model.rowkeys import encode_row_keys, foreign_of
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.writes import Expected, Image, RowWrites
from viewkeeper.stores.hbase.baserows import BaseRows, Found
from viewkeeper.stores.hbase.cells import BATCH_RECORDS, by_size, in_batches
from viewkeeper.stores.hbase.gone import untold
from viewkeeper.stores.hbase.rowchanges import RowChange, changes_of
from viewkeeper.stores.hbase.staging import VISIBLE_SECONDS
from viewkeeper.stores.hbase.thrift import thrift
from viewkeeper.stores.hbase.usertables import ask_user_table

if TYPE_CHECKING:
    from viewkeeper.model.positions import Positions
    from viewkeeper.ports.tables import Mapped
    from viewkeeper.stores.hbase.reads import HeldCells

_TRIES_MAX = 200
_TICK_SECONDS = 0.001  # of HBase's clock, in which stamps are


class BaseWrites(BaseRows):
    """What the port `BaseTables` writes."""

    if TYPE_CHECKING:

        def ends(self) -> Positions: ...

        def require_log(self) -> None: ...

        def hold(self, moment: Moment, partitions: Sequence[int]) -> HeldCells: ...

        def stage_cells(self, table: TableSchema, cells: pa.Table) -> None: ...

    def write(self, writes: Sequence[RowWrites], *, apart: bool = False) -> Positions:
        tables = {write.table: self._require(write.table) for write in writes}
        keys = {table: list(dict.fromkeys(k for w in writes if w.table == table for k in w.keys)) for table in tables}
        if not apart and sum(map(len, keys.values())) > 1:
            raise RowsApart(
                "a group of writes touches several rows", "HBase writes one row at a time: put them one by one"
            )
        rows = {table: encode_row_keys(schema, keys[table]) for table, schema in tables.items()}
        known = {one: self._known(tables[one], keys[one]) for one in {write.table for write in writes if write.repeats}}
        time.sleep(VISIBLE_SECONDS if known else 0)
        found = {table: self._read(schema, rows[table]) for table, schema in tables.items()}
        read = time.monotonic()
        images = {(table, key): image for table in tables for key, image in _pairs(keys[table], found[table])}
        repeated = _merge(writes, images)
        for table, schema in tables.items():
            places = [(table, key) for key in keys[table]]
            afters, again = [images[place] for place in places], [place in repeated for place in places]
            self._send(schema, changes_of(schema, rows[table], found[table], afters, again), read)
            if table in known:
                self.stage_cells(schema, untold(schema, keys[table], known[table], found[table]))
        return self.ends()

    def _known(self, schema: TableSchema, keys: Sequence[bytes]) -> list[Image]:
        """The committed records of DELTA under these keys."""
        if schema.delta is None:
            return [None] * len(keys)
        horizon = self.read_horizon()
        held = self.hold(Moment(horizon.committed, horizon.aborted, horizon), range(self.partitions))
        places = hashes_of_keys(schema.key_columns, pa.array(keys, pa.binary())) % self.partitions
        return held.get_each(schema.delta, list(zip(places.tolist(), keys, strict=True)))

    def write_if(self, writes: RowWrites, expected: Expected) -> Positions | None:
        """HBase compares one cell; if that is another one meanwhile, the row is read again."""
        schema = self._require(writes.table)
        rows, guarded = encode_row_keys(schema, writes.keys), _guarded(schema, expected)
        for _ in range(_TRIES_MAX):
            found = self._read(schema, rows)
            read = time.monotonic()
            if not expected.is_met(found.images[0]):
                return None
            changes = changes_of(schema, rows, found, writes.merge(found.images), [writes.repeats])
            if not changes or self._change_if(schema, found, guarded, changes[0]):
                _wait_for_clock(changes, read)
                return self.ends()
        raise StoreBusy(f"others keep changing a row of {schema.name}", "try again")

    def together(self, keys: Sequence[bytes], *, apart: bool = False) -> list[np.ndarray]:
        return [np.arange(len(keys))] if apart else list(np.arange(len(keys))[:, None])

    def map_table(self, schema: TableSchema, using: str | None, options: Mapping[str, str]) -> Mapped:
        """Where the URL names a log, it must be the one of this HBase before there is anything to look for in it."""
        if self._site.address.rootdir is not None:
            self.require_log()
        return super().map_table(schema, using, options)

    def _require(self, table: int) -> TableSchema:
        """The table to write to, from where writes can be told in the log."""
        self.require_log()
        schema = self._schema(table)
        if schema is None:
            raise UnknownName(f"there is no table with the id {table}")
        return schema

    def _send(self, schema: TableSchema, changes: Sequence[RowChange], read: float) -> None:
        ask = partial(ask_user_table, self._site.connections, foreign_of(schema).table)
        for batch in by_size(change.put for change in changes if change.delete is None):
            ask("putMultiple", batch)
        for some in in_batches([change.delete for change in changes if change.put is None], BATCH_RECORDS):
            ask("deleteMultiple", some)
        for change in changes:
            if change.put is not None and change.delete is not None:
                ask("mutateRow", change.mutations)
        _wait_for_clock(changes, read)

    def _change_if(self, schema: TableSchema, found: Found, guarded: int | None, change: RowChange) -> bool:
        """Change a row if the guarded cell is as it was found; without one, if a cell that the row had is still there."""
        test = _is_as_found(schema, found, guarded) if guarded is not None else _is_there(schema, found)
        asked = ("checkAndMutate", change.row, *test, change.mutations)
        try:
            return ask_user_table(self._site.connections, foreign_of(schema).table, *asked, once=True)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"whether the row was written is not known: {error.fact}", "read the row, and decide by what it is"
            ) from error


def _pairs(keys: Sequence[bytes], found: Found) -> list[tuple[bytes, Image]]:
    return list(zip(keys, found.images, strict=True))


def _merge(writes: Sequence[RowWrites], images: dict[tuple[int, bytes], Image]) -> set[tuple[int, bytes]]:
    """Apply the writes to the images, one after the other; returns which rows are repeated."""
    repeated: set[tuple[int, bytes]] = set()
    for write in writes:
        places = [(write.table, key) for key in write.keys]
        images |= zip(places, write.merge([images[place] for place in places]), strict=True)
        repeated |= set(places) if write.repeats else set()
    return repeated


def _guarded(schema: TableSchema, expected: Expected) -> int | None:
    """The value column whose cell HBase compares; None: any that the row has."""
    names = [column.name for column in schema.value_columns]
    if expected.columns is None:
        required = [at for at, column in enumerate(schema.value_columns) if not column.nullable]
        if not required and len(names) > 1:
            raise UnsupportedSql(
                f"HBase cannot tell whether {schema.name} has a row: no column is in every row",
                "declare a column NOT NULL, or expect the value of a column",
            )
        return required[0] if required else 0
    if len(expected.columns) > 1:
        raise InputError(f"HBase compares one column of a row, not {len(expected.columns)}", "expect one column")
    return names.index(expected.columns[0]) if expected.columns else None


def _is_as_found(schema: TableSchema, found: Found, column: int) -> tuple[Any, ...]:
    """To HBase's test an empty value is the same as none."""
    return *_place(schema, column), thrift().TCompareOp.EQUAL, _value(found.cells[column][0])


def _is_there(schema: TableSchema, found: Found) -> tuple[Any, ...]:
    """NOT_EQUAL to an empty value is true of a cell that has another one, whatever that is."""
    column = max(range(len(found.cells)), key=lambda i: len(_value(found.cells[i][0])))
    if not _value(found.cells[column][0]):
        return _is_as_found(schema, found, column)
    return *_place(schema, column), thrift().TCompareOp.NOT_EQUAL, b""


def _place(schema: TableSchema, column: int) -> tuple[bytes, bytes]:
    cell = foreign_of(schema).cells[column]
    return cell.family.encode(), cell.qualifier.encode()


def _value(cell: Any) -> bytes:
    return b"" if cell is None else cell.value


def _wait_for_clock(changes: Sequence[RowChange], read: float) -> None:
    """A put in the same millisecond as what a delete hides would be hidden too."""
    if any(change.delete is not None for change in changes):
        time.sleep(max(0.0, read + 2 * _TICK_SECONDS - time.monotonic()))
