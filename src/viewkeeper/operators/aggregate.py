"""γ: one record for each group, maintained from the contributions of rows (`docs/epochs.md`, "γ" and "γ min/max").

In: deltas, then contributions to groups, entries of PRE-AGGREGATIONs and exact sums. Out: new rows of groups, of entries,
of the view under HAVING and of the list of degraded groups. Always: contributions depend on the multiset of rows only,
records on contributions and the versions below the epoch; MIN and MAX are the ends of a prefix, never a scan of the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.rowbatches import decode_rows, encode_compact_rows, encode_rows
from viewkeeper.operators import exact_sums
from viewkeeper.operators.apply import AppliedChanges, Applier, FoundRecords, rows_where
from viewkeeper.operators.contributions import combine, first_contribution
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.duck import as_type, run_row_by_row
from viewkeeper.operators.grouping_kernel import Readers, contribute
from viewkeeper.operators.messages import GROUPS, Channel, Input
from viewkeeper.operators.operator import EdgeOperator
from viewkeeper.operators.pre_aggregation import apply_entries, nothing
from viewkeeper.operators.udfs import compute
from viewkeeper.plan.nodes import AggregateNode


def apply_groups(applier: Applier, node: AggregateNode, inputs: Mapping[Channel, pa.Table]) -> AppliedChanges:
    """Put the new rows of all records that the contributions touch; returns the changes of the node's own table."""
    found = applier.find(node.group_table, inputs[GROUPS])
    known = len(node.group_row) - (0 if node.having else len(node.values))
    old = decode_rows(node.group_row, found.rows, range(known))
    kept = [exact_sums.add_exactly(was, found.input[f"s{i}"]) for i, was in enumerate(old[: len(node.state)])]
    for index in range(len(node.exact_sums)):
        was, part = old[len(kept)].fill_null(b""), inputs.get(Channel("sums", index))
        if part is not None:
            groups = pc.index_in(part["key"].combine_chunks(), value_set=found.input["key"].combine_chunks())
            was = exact_sums.add_sums(was, np.asarray(groups), np.asarray(part["unit"]), part["m"].combine_chunks())
        kept.append(was)
    facts = _facts(node, old[len(kept) :])
    for indexes in node.slots.values():
        channels = {slot: inputs.get(Channel("entries", index)) for slot, index in enumerate(indexes)}
        parts = {slot: part for slot, part in channels.items() if part is not None}
        slots, was = [node.entries[index] for index in indexes], [facts[index] for index in indexes]
        for index, new in zip(indexes, apply_entries(applier, slots, found, was, parts), strict=True):
            facts[index] = new
    kept += [array for some in facts for array in some]
    live = _live_groups(node, kept)
    finished = _finish(node, kept, found.input["key"])
    columns = kept if node.having else kept + _values(node, finished)
    rows = rows_where(live, encode_compact_rows(node.group_row, columns, len(found.input)))
    changes = applier.put(found, rows)
    if node.having:
        shown = live & np.asarray(finished["shown"])
        values = encode_rows(node.row, _values(node, finished), len(shown))
        changes = _put_copy(applier, node.table, found, rows_where(shown, values))
    if node.degraded is not None:
        failing = live & np.asarray(finished["fails"])
        _put_degraded(applier, node.degraded, found, failing)
    return changes


def empty_row(node: AggregateNode) -> bytes | None:
    """The row of the view's record over an empty base; None when HAVING hides it."""
    contribution = first_contribution(node)
    known = node.group_row[: len(node.state) + len(node.exact_sums) + len(node.facts)]
    kept = [pa.array([None if column.nullable else nothing(column)], column.type.arrow) for column in known]
    finished = _finish(node, kept, contribution["key"])
    if not node.having:
        return encode_compact_rows(node.row, kept + _values(node, finished), 1)[0].as_py()
    return encode_rows(node.row, _values(node, finished), 1)[0].as_py() if finished["shown"][0].as_py() else None


def _facts(node: AggregateNode, old: Sequence[pa.Array]) -> list[Sequence[pa.Array]]:
    """What groups keep of each of the entries; a new group has 0 or an empty sum where the column is not nullable."""
    left, found = iter(old), list[Sequence[pa.Array]]()
    for one in node.entries:
        columns = one.facts.named(0, one.values).values()
        found.append([next(left) if column.nullable else next(left).fill_null(nothing(column)) for column in columns])
    return found


def _finish(node: AggregateNode, kept: list[pa.Array], keys: pa.ChunkedArray) -> pa.Table:
    """The output values, and whether a group is shown and fails."""
    if not node.values and not node.having:
        return pa.table({})
    names = [f"s{i}" for i in range(len(node.state))] + [f"t{i}" for i in range(len(node.exact_sums))] + [*node.facts]
    known, read = dict(zip(names, kept, strict=True)), node.finish_reads
    columns = {name: array for name, array in known.items() if name == "s0" or (name in read and name[0] not in "ty")}
    columns |= {"ord": pa.array(np.arange(len(kept[0])))}
    columns |= {f"p{i}": compute(one, known) for i, one in enumerate(node.computed)}
    if any(f"k{i}" in read for i in range(len(node.key))):
        columns |= {f"k{i}": array for i, array in enumerate(decode_keys(node.key, keys))}
    return run_row_by_row(node.finish, states=pa.table(columns)).combine_chunks()


def _values(node: AggregateNode, finished: pa.Table) -> list[pa.Array]:
    return [as_type(finished[f"v{i}"], column.type.arrow) for i, column in enumerate(node.values)]


def _put_copy(applier: Applier, table: int, groups: FoundRecords, rows: pa.Array) -> AppliedChanges:
    return applier.put(applier.find(table, groups.input.select(["key", "hash"])), rows)


def _put_degraded(applier: Applier, table: int, groups: FoundRecords, failing: np.ndarray) -> None:
    """List the failing groups, and remove from the list those that no longer fail; mostly there are neither."""
    listed = (
        applier.store.scan_prefixes(partition, table, [b""], applier.epoch, rows_max=1)
        for partition in np.unique(groups.versions.partitions).tolist()
    )
    if failing.any() or any(next(some, None) is not None for some in listed):
        _put_copy(applier, table, groups, rows_where(failing, encode_rows((), [], len(failing))))


def _live_groups(node: AggregateNode, kept: list[pa.Array]) -> np.ndarray:
    rows = np.asarray(kept[0])
    if (rows < 0).any():
        raise InvariantBroken(f"a group of table {node.table} would hold {rows.min()} rows")
    if node.always:
        return np.ones(len(rows), bool)
    empty = rows == 0
    if empty.any():
        gone = pa.array(empty)
        sums = [(array, one) for array, one in zip(kept, node.group_row[: len(kept)], strict=True) if not one.nullable]
        if any(pc.any(pc.not_equal(array.filter(gone), nothing(one))).as_py() for array, one in sums):
            raise InvariantBroken(f"a group of table {node.table} has no rows and yet a sum")
    return ~empty


_FEW_ROWS = 10_000  # it is faster to move this many than to group them


class AggregateOperator(EdgeOperator[AggregateNode]):
    """Contributions to groups; nodes that read the same delta share what they can."""

    def read(self, readers: Readers, delta: Delta) -> Iterator[Input]:
        return contribute(readers, delta)

    def pre_combine(self, node: AggregateNode, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        if channel.kind == "aside":
            return super().pre_combine(node, channel, tables)
        if len(tables) == 1 or sum(map(len, tables)) <= _FEW_ROWS:
            return pa.concat_tables(tables)
        return combine(node, channel, tables)

    def combine(self, node: AggregateNode, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        if channel.kind == "aside":
            return super().combine(node, channel, tables, partitions)
        # changes of entries are added up where blocks are changed
        return pa.concat_tables(tables) if channel.kind == "entries" else combine(node, channel, tables)

    def apply(
        self, applier: Applier, node: AggregateNode, inputs: Mapping[Channel, pa.Table]
    ) -> Iterator[AppliedChanges]:
        if GROUPS in inputs:
            yield apply_groups(applier, node, inputs)
