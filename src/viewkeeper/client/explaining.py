"""Explaining: what EXPLAIN needs besides the plan: the statistics that the store has, and Graphviz's `dot` for a
picture.

In: an open database; the text of a graph. Out: estimates and measurements; the text of an SVG document. Always: read
without a lock; records are those that epochs counted, no view is walked; the keys of base tables are counted, and some
of their rows are looked at. `dot` runs as a process of its own and reads and writes only what it is given; where it is
not installed, the error names the package and an alternative.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.coordinator.table_sizes import sizes_of
from viewkeeper.errors import InputError
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.work_stats import MEASURED, Size, WorkStats
from viewkeeper.plan.cost.statistics import TEXT_BYTES, Statistics, row_bytes
from viewkeeper.plan.explain.explain import Costs
from viewkeeper.ports.store import Store

_SAMPLE_ROWS = 1_000
_SAMPLE_BYTES = 1 << 20


def read_costs(store: Store, catalog: Catalog, name: str | None = None) -> Costs:
    """What all views of a catalog cost, some of which the store may not have yet; records are counted for those that the
    view `name` needs, or for all.
    """
    views = catalog.views if name is None else (catalog.view(name),)
    return Costs.of(catalog, read_statistics(store, catalog, views))


def read_statistics(store: Store, catalog: Catalog, views: Sequence[ViewDefinition]) -> Statistics:
    """What the store knows of the tables that views read, and of their nodes that are filled."""
    record = store.read_epoch_record()
    sizes = sizes_of(store, catalog, record)
    nodes = {node.table: node for view in views for node in catalog.stored(view)}
    filled = [one for one in nodes.values() if one.backfill in record.filled and one.table not in record.stopped]
    read = {base for view in views for base in catalog.bases_of(view)}
    tables = [table for table in catalog.tables if table.id in read]
    kept = [number for table in tables for number in table.tables[1:]] + [n for node in filled for n in node.tables]
    return Statistics(
        rows={table.id: store.count_rows(table.id) for table in tables},
        records={table: sizes.get(table, Size()).records for table in kept},
        text_bytes={table.id: _text_bytes(store, table) for table in tables},
        record_bytes={table: sizes[table].bytes / sizes[table].records for table in kept if table in sizes},
        measured=WorkStats.from_json(store.read_note(MEASURED)),
    )


def _text_bytes(store: Store, table: TableSchema) -> float:
    """The average length of a table's texts, from its first rows."""
    texts = sum(column.type.width is None for column in table.value_columns)
    if not texts:
        return TEXT_BYTES
    rows = size = 0
    for part in store.parts(table.id):
        found = store.row_borders(table.id, part, b"", rows_max=_SAMPLE_ROWS, bytes_max=_SAMPLE_BYTES, pieces=1)
        rows, size = rows + found.rows, size + found.bytes
    return max(0.0, size / rows - row_bytes(table.value_columns, 0.0)) / texts if rows else TEXT_BYTES


_SECONDS_MAX = 120
_OTHERWISE = "print the plan as a Mermaid flowchart (--mermaid, form='mermaid'), which many pages and editors draw"


def draw_svg(graph: str) -> str:
    tool = shutil.which("dot")
    if tool is None:
        raise InputError(
            "a picture is drawn by Graphviz, and its dot is not installed",
            f"install it (Debian, Ubuntu: apt-get install graphviz; macOS: brew install graphviz), or {_OTHERWISE}",
        )
    try:
        drawn = subprocess.run([tool, "-Tsvg"], input=graph.encode(), capture_output=True, timeout=_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"Graphviz's dot could not draw the plan: {error}", f"draw one view, or {_OTHERWISE}"
        ) from None
    if drawn.returncode:
        told = drawn.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {drawn.returncode}"]
        raise InputError(f"Graphviz's dot could not draw the plan: {told[0]}", f"draw one view, or {_OTHERWISE}")
    text = drawn.stdout.decode()
    return text[text.index("<svg") :]  # without the DOCTYPE, which names a file elsewhere
