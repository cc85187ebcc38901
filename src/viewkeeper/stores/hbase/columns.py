"""Columns: what people see of a view in HBase's own tools.

In: keys and rows of a view's records. Out: a cell for each shown column, under its name, as text. Always: every version has
a cell for every column, an empty one for NULL and in a tombstone: without it an older version's would show. Nothing but a
check reads them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.encodings import encode_cells
from viewkeeper.model.schema import Column
from viewkeeper.model.tablebatches import Place, decode_places, face
from viewkeeper.ports.reads import WrongColumns
from viewkeeper.stores.hbase.cells import COLUMNS, RECORD, row_of


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns of a table's records that views show, and where in a record they are.

    `always`: the names of those that every record has had since its table was made; a view that came later has added others.
    """

    key: tuple[Column, ...]
    row: tuple[Column, ...]
    columns: tuple[tuple[Column, Place], ...]
    always: frozenset[bytes]

    def texts(self, keys: pa.Array, rows: pa.Array) -> tuple[tuple[bytes, pa.Array], ...]:
        """Those of each record, by name; `rows` has NULL for a tombstone."""
        there = np.asarray(rows.is_valid())
        places = [place for _, place in self.columns]
        chosen = pa.array(there)
        arrays = decode_places(self.key, self.row, places, keys.filter(chosen), rows.filter(chosen))
        at = pa.array(np.cumsum(there) - 1, mask=~there)
        return tuple(
            (column.name.encode(), encode_cells(face(array), column.type, "text").take(at).fill_null(b""))
            for (column, _), array in zip(self.columns, arrays, strict=True)
        )

    def wrong(self, results: Sequence[Any]) -> Iterator[WrongColumns]:
        """Of records as HBase returns them, with the newest version of each cell, those that show something else."""
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
    """What views show of a table; None where it is no view's own. Of two columns of one name the older view's counts."""
    views = [view for view in catalog.kept if view.node.table == table]
    if not any(view.shown for view in views):
        return None
    columns: dict[str, tuple[Column, Place]] = {}
    for view in views:
        for shown in view.shown:
            columns.setdefault(shown.column.name, (shown.column, (shown.part, shown.index)))
    made = [view for view in views if view.id == view.node.backfill]
    always = frozenset(shown.column.name.encode() for view in made for shown in view.shown)
    return Shown(views[0].node.key, views[0].node.row, tuple(columns.values()), always)
