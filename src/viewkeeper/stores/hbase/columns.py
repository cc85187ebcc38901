"""Columns: what people see of a view in HBase's own tools.

In: keys and rows of a view's records. Out: a cell for each shown column, under its name, as text. Always: every version has
a cell for every column, an empty one for NULL and in a tombstone: without it an older version's would show. Nothing reads
them back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.encodings import encode_cells
from viewkeeper.model.schema import Column
from viewkeeper.model.tablebatches import Place, decode_places, face


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns of a table's records that views show, and where in a record they are."""

    key: tuple[Column, ...]
    row: tuple[Column, ...]
    columns: tuple[tuple[Column, Place], ...]

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


def shown_of(catalog: Catalog, table: int) -> Shown | None:
    """What views show of a table; None where it is no view's own. Of two columns of one name the older view's counts."""
    views = [view for view in catalog.kept if view.node.table == table]
    if not any(view.shown for view in views):
        return None
    columns: dict[str, tuple[Column, Place]] = {}
    for view in views:
        for shown in view.shown:
            columns.setdefault(shown.column.name, (shown.column, (shown.part, shown.index)))
    return Shown(views[0].node.key, views[0].node.row, tuple(columns.values()))
