"""Scans: what a SELECT reads of tables and views, as streams of Arrow batches.

In: reads, and their moment. Out: for each a stream whose columns are named by their positions. Always: rows are read
and decoded on demand, in pieces that grow, and only the columns that are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from viewkeeper.catalog.catalog import ViewDefinition
from viewkeeper.client.conditions import Range, key_ranges
from viewkeeper.model.pairs import pairs_to_arrow, pieces
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.tablebatches import Place, decode_places, places_of
from viewkeeper.model.texts import DAMAGE, record_damaged, require_texts
from viewkeeper.sql.reads import Read

if TYPE_CHECKING:
    from viewkeeper.client.session import Snapshot
    from viewkeeper.ports.tables import HeldRows


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored columns of a table or view, and where those are that a reader sees."""

    key: tuple[Column, ...]
    row: tuple[Column, ...]
    places: tuple[Place, ...]
    view: str | None = None

    @property
    def parts(self) -> dict[int, int]:
        return {position: index for position, (part, index) in enumerate(self.places) if part == "key"}


def stream(read: Read, snapshot: Snapshot, rows: HeldRows) -> pa.RecordBatchReader:
    """The rows of a table as `rows` holds them, or the records of a view as of the snapshot."""
    schema = read.scan.table
    if read.scan.is_view:
        view = snapshot.view(schema.name)
        stored = _stored_view(view.definition)
        found = view.pieces(_ranges(stored, read))
    else:
        stored = _stored_table(schema)
        pairs = (pair for low, high in _ranges(stored, read) for pair in rows.scan_all(schema.id, low, high))
        found = (pairs_to_arrow(piece) for piece in pieces(pairs))
    columns = [schema.columns[place] for place in read.columns]
    names = [f"c{place}" for place in read.columns]
    fields = [(name, column.type.arrow) for name, column in zip(names, columns, strict=True)]
    # a stream without columns could not tell how many rows there are
    shape = pa.schema(fields or [("there", pa.bool_())])
    places = [stored.places[place] for place in read.columns]
    batches = (pa.record_batch(_decode(stored, places, *piece), schema=shape) for piece in found)
    return pa.RecordBatchReader.from_batches(shape, batches)


def _ranges(stored: _Stored, read: Read) -> list[Range]:
    return key_ranges(stored.key, stored.parts, read.conditions)


def _stored_table(schema: TableSchema) -> _Stored:
    return _Stored(schema.key_columns, schema.value_columns, tuple(places_of(schema).values()))


def _stored_view(view: ViewDefinition) -> _Stored:
    return _Stored(view.node.key, view.node.row, tuple((shown.part, shown.index) for shown in view.shown), view.name)


def _decode(stored: _Stored, places: Sequence[Place], keys: pa.Array, rows: pa.Array) -> list[pa.Array]:
    if not places:
        return [pa.array(np.ones(len(keys), bool))]
    try:
        return list(require_texts(decode_places(stored.key, stored.row, places, keys, rows)))
    except DAMAGE as error:
        if stored.view is None:
            raise
        raise record_damaged(stored.view) from error
