"""Explaining: what EXPLAIN needs besides the plan: the store's statistics, and Graphviz's `dot` for a picture.

In: an open database; the text of a graph. Out: estimates and measurements; the text of an SVG document. Always: read
without a lock; records are those that epochs counted, no view is scanned; the keys of base tables are counted, and some
of their rows are read. `dot` runs as a process of its own; where it is not installed, the error names the package and an
alternative.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterable, Sequence

from viewkeeper.algebra.relations import tables_of
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.coordinator.table_sizes import sizes_of
from viewkeeper.errors import InputError
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.work_stats import MEASURED, Size, WorkStats
from viewkeeper.plan.cost.cost_model import PlanModel
from viewkeeper.plan.cost.statistics import TEXT_BYTES, Statistics, row_bytes
from viewkeeper.plan.define import Estimate
from viewkeeper.plan.explain.explain import Costs
from viewkeeper.plan.lower import Lowered
from viewkeeper.ports.store import Store

_SAMPLE_ROWS = 1_000
_SAMPLE_BYTES = 1 << 20


def read_costs(store: Store, catalog: Catalog, name: str | None = None) -> Costs:
    """What all views of a catalog cost; records are counted for those that the view `name` needs, or for all."""
    views = catalog.views if name is None else (catalog.view(name),)
    return Costs.of(catalog, read_statistics(store, catalog, views))


def read_model(store: Store, catalog: Catalog, statistics: Statistics) -> PlanModel:
    return PlanModel(catalog, statistics, bytes_moved=store.capabilities.bytes_moved)


def estimate_for(store: Store, catalog: Catalog) -> Estimate:
    """What a plan of a new view costs; the store is read when a view has several, for the tables that it reads."""
    models: dict[frozenset[int], PlanModel] = {}

    def seconds(lowered: Lowered, beside: Collection[str]) -> float | None:
        read = frozenset(table.id for table in tables_of(lowered.relation))
        if read not in models:
            views = [view for view in catalog.views if not read.isdisjoint(catalog.bases_of(view))]
            models[read] = read_model(store, catalog, read_statistics(store, catalog, views, tables=read))
        return models[read].seconds([lowered], beside) if models[read].knows(lowered.relation) else None

    return seconds


def read_statistics(
    store: Store, catalog: Catalog, views: Sequence[ViewDefinition], *, tables: Collection[int] = ()
) -> Statistics:
    """What the store knows of some `tables` and those that views read, and of the views' nodes that are filled."""
    record = store.read_epoch_record()
    sizes = sizes_of(store, catalog, record)
    nodes = {node.table: node for view in views for node in catalog.stored(view)}
    filled = [one for one in nodes.values() if one.backfill in record.filled and one.table not in record.stopped]
    read = {*tables, *(base for view in views for base in catalog.bases_of(view))}
    known = [table for table in catalog.tables if table.id in read]
    kept = [number for table in known for number in table.tables[1:]] + [n for node in filled for n in node.tables]
    parts = {table.id: store.parts(table.id) for table in known}
    return Statistics(
        rows={number: sum(there.values()) for number, there in parts.items()},
        records={table: sizes.get(table, Size()).records for table in kept},
        text_bytes={table.id: _text_bytes(store, table, parts[table.id]) for table in known},
        record_bytes={table: sizes[table].bytes / sizes[table].records for table in kept if table in sizes},
        measured=WorkStats.from_json(store.read_json("note", MEASURED)),
    )


def _text_bytes(store: Store, table: TableSchema, parts: Iterable[int]) -> float:
    """The average length of a table's texts, from its first rows."""
    texts = sum(column.type.width is None for column in table.value_columns)
    if not texts:
        return TEXT_BYTES
    rows = size = 0
    for part in parts:
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
        raise _not_drawn(error) from None
    if drawn.returncode:
        told = drawn.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {drawn.returncode}"]
        raise _not_drawn(told[0])
    text = drawn.stdout.decode()
    return text[text.index("<svg") :]  # without the DOCTYPE, which names a file elsewhere


def _not_drawn(reason: object) -> InputError:
    return InputError(f"Graphviz's dot could not draw the plan: {reason}", f"draw one view, or {_OTHERWISE}")
