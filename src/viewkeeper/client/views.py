"""Views: reads of materialized records by key and in key order.

In: keys and a read mode. Out: dicts, Arrow tables. Always: a read in any mode but "latest" sees one committed epoch for
all of its records, and the view as it was defined then, even if it was replaced since it was opened; a view that is not
filled yet raises instead of returning a part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import ViewDefinition
from viewkeeper.client.arguments import byte_range, check_limit, key_bytes
from viewkeeper.client.connection import TIMEOUT_SECONDS, Connection, moment_of
from viewkeeper.errors import InputError, NotReady, StaleRead
from viewkeeper.model.keys import after_prefix, decode_key, part_end
from viewkeeper.model.read_frontier import EPOCH_MAX, SNAPSHOT, ReadTimestamp
from viewkeeper.model.rowcodec import decode_row, decode_some
from viewkeeper.model.stored_rows import pairs_to_arrow
from viewkeeper.model.stored_values import DAMAGE, from_stored, record_damaged

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from viewkeeper.client.connection import ReadMode
    from viewkeeper.client.result import Change, Changes
    from viewkeeper.model.epochs import EpochRecord
    from viewkeeper.model.read_frontier import Horizon, RecordChange
    from viewkeeper.ports.records import Held


class View:
    """A materialized view of an open database."""

    def __init__(
        self, database: Connection, definition: ViewDefinition, held: tuple[Held, ReadTimestamp] | None = None
    ) -> None:
        self._database = database
        self._definition = definition
        self._held = held  # a snapshot's records: every read uses them
        self._mode: ReadMode = SNAPSHOT

    @property
    def name(self) -> str:
        return self._definition.name

    @property
    def definition(self) -> ViewDefinition:
        return self._definition

    def get(
        self, *key: object, read: ReadMode | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> dict[str, object] | None:
        """The record under a key; None when there is none."""
        if not self._held and (self._mode if read is None else read) == SNAPSHOT and (found := self._committed(key)):
            return found[0]
        while True:
            moment, definition = self._look(read, timeout)
            partition, encoded = self._place(definition, key)
            if self._is_unfilled(definition, moment):
                return self._unfilled(definition, encoded)
            row = self._row(partition, definition.node.table, encoded, moment)
            if self._held or self._still(moment):
                return None if row is None else record_of(definition, encoded, row)

    def _place(self, definition: ViewDefinition, key: Sequence[object]) -> tuple[int, bytes]:
        """The partition and the bytes of a key."""
        node = definition.node
        encoded = key_bytes(_label(definition), node.key, key)
        first = encoded[: part_end(node.key[0], encoded)] if node.key else b""
        return self._database.store.partition_of(first), encoded

    def _committed(self, key: Sequence[object]) -> tuple[dict[str, object] | None] | None:
        """The record by one look at the store, if that tells it and the view is defined as it was; None if not."""
        definition = self._definition
        try:
            partition, encoded = self._place(definition, key)
        except InputError:  # by a definition that may be another by now
            return None
        found = self._database.store.get_committed(partition, definition.node.table, encoded)
        if found is None:
            return None
        row, horizon = found
        is_same = self._database.view_as_of(definition, horizon.catalog_version) == definition
        if not is_same or self._is_unfilled(definition, ReadTimestamp(horizon.committed, horizon.aborted, horizon)):
            return None
        return (None if row is None else record_of(definition, encoded, row),)

    def scan(
        self,
        *prefix: object,
        start: object = None,
        stop: object = None,
        limit: int | None = None,
        reverse: bool = False,
        read: ReadMode | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Iterator[dict[str, object]]:
        """Records in key order whose key begins with `prefix`, from `start` to before `stop`."""
        check_limit(limit)
        _bounds(self._current(), prefix, start, stop)  # what is no key is refused here, not at the first record
        return itertools.islice(self._scan(prefix, start, stop, reverse, read, timeout), limit)

    def batches(
        self,
        *prefix: object,
        start: object = None,
        stop: object = None,
        limit: int | None = None,
        reverse: bool = False,
        read: ReadMode | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Iterator[pa.Table]:
        """The records of `scan`, as Arrow tables, some thousand records at a time."""
        from viewkeeper.client.arrow import records_to_arrow

        check_limit(limit)
        _bounds(self._current(), prefix, start, stop)  # as in `scan`
        found = self._records(prefix, start, stop, reverse=reverse, read=read, timeout=timeout)
        return _limited((records_to_arrow(*piece) for piece in found), limit)

    def to_arrow(
        self,
        *prefix: object,
        start: object = None,
        stop: object = None,
        read: ReadMode | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> pa.Table:
        """The records of `scan`, as an Arrow table."""
        import pyarrow as pa

        from viewkeeper.client.arrow import records_to_arrow

        found = self._records(prefix, start, stop, read=read, timeout=timeout)
        definitions, keys, rows = zip(*found, strict=True)
        return records_to_arrow(definitions[0], pa.concat_arrays(keys), pa.concat_arrays(rows))

    def to_pandas(
        self,
        *prefix: object,
        start: object = None,
        stop: object = None,
        read: ReadMode | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> pd.DataFrame:
        """The records of `scan`, as a DataFrame with nullable types."""
        from viewkeeper.client.arrow import arrow_to_frame

        return arrow_to_frame(self.to_arrow(*prefix, start=start, stop=stop, read=read, timeout=timeout))

    def changes(self, since: int, *, read: ReadMode | None = None, timeout: float = TIMEOUT_SECONDS) -> Changes:
        """What each epoch after `since` did to the records; ChangesLost when not all of it is kept any more."""
        from viewkeeper.client.result import Changes, require_kept

        while True:
            held, moment, definition, partitions = self._hold((), read, timeout)
            try:
                if moment.epoch == EPOCH_MAX:
                    raise InputError("changes are those of committed epochs", 'leave read="latest" out')
                if self._is_unfilled(definition, moment):
                    raise self._not_ready(definition)
                filled = moment.horizon.filled[definition.node.backfill]
                first = require_kept(_label(definition), since, moment, filled)
                steps = held.steps(partitions, definition.node.table, first)
                return Changes(first, moment.epoch, steps, partial(_to_change, definition))
            except StaleRead:  # as in `_scan`
                if self._held:
                    raise
            finally:
                self._release(held)

    def pieces(self, ranges: Sequence[tuple[bytes, bytes | None]]) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Keys and rows of the records in some ranges of keys, some thousand at a time; only for a snapshot's view."""
        if self._held is None:
            raise InputError("only a view of a snapshot is read in pieces", "use db.snapshot().view(name)")
        (held, moment), definition = self._held, self._definition
        if self._is_unfilled(definition, moment):
            yield pairs_to_arrow(self._unfilled_pairs(definition))
            return
        spans = ((self._partitions_of(definition, low, high), low, high) for low, high in ranges)
        for keys, rows in held.batches(definition.node.table, spans):
            yield present_records(definition, keys, rows)

    def in_mode(self, mode: ReadMode) -> View:
        """This view, read in `mode` unless a read states another."""
        other = View(self._database, self._definition, self._held)
        other._mode = mode
        return other

    def _scan(
        self,
        prefix: Sequence[object],
        start: object,
        stop: object,
        reverse: bool,
        read: ReadMode | None,
        timeout: float,
    ) -> Iterator[dict[str, object]]:
        is_told = False
        while True:
            held, moment, definition, partitions = self._hold(prefix, read, timeout)
            try:
                low, high = _bounds(definition, prefix, start, stop)
                if self._is_unfilled(definition, moment):
                    pairs = self._unfilled_pairs(definition)
                    yield from (one for key, row in pairs if key >= low and (one := record_of(definition, key, row)))
                    return
                for key, row in held.scan(partitions, definition.node.table, low, high, reverse=reverse):
                    record = record_of(definition, key, row)
                    if record is not None:
                        is_told = True
                        yield record
                return
            except StaleRead:  # epochs were faster than the first page
                if is_told or self._held:
                    raise
            finally:
                self._release(held)

    def _records(
        self,
        prefix: Sequence[object] = (),
        start: object = None,
        stop: object = None,
        *,
        reverse: bool = False,
        read: ReadMode | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Iterator[tuple[ViewDefinition, pa.Array, pa.Array]]:
        """Keys and rows of the records in a range, some thousand at a time, with the view's definition; at least once."""
        is_told = False
        while True:
            held, moment, definition, partitions = self._hold(prefix, read, timeout)
            try:
                low, high = _bounds(definition, prefix, start, stop)
                if self._is_unfilled(definition, moment):
                    pairs = [pair for pair in self._unfilled_pairs(definition) if pair[0] >= low]
                    yield definition, *pairs_to_arrow(pairs)
                    return
                for keys, rows in held.batches(definition.node.table, [(partitions, low, high)], reverse=reverse):
                    is_told = True
                    yield definition, *present_records(definition, keys, rows)
                if not is_told:
                    yield definition, *pairs_to_arrow([])
                return
            except StaleRead:  # as in `_scan`
                if is_told or self._held:
                    raise
            finally:
                self._release(held)

    def _hold(
        self, prefix: Sequence[object], read: ReadMode | None, timeout: float
    ) -> tuple[Held, ReadTimestamp, ViewDefinition, Sequence[int]]:
        """The records of the partitions that may hold a prefix, as of one moment."""
        store = self._database.store
        while True:
            moment, definition = self._look(read, timeout)
            partitions = self._partitions(definition, prefix)
            if self._held:
                return self._held[0], moment, definition, partitions
            held = store.hold(moment, partitions)
            now = self._still(moment)
            if now is not None:
                return held, moment.kept_from(now.floor), definition, partitions
            held.close()

    def _release(self, held: Held) -> None:
        if not self._held:
            held.close()

    def _row(self, partition: int, table: int, key: bytes, moment: ReadTimestamp) -> bytes | None:
        if self._held:
            return self._held[0].get(partition, table, key)
        return self._database.store.get_record(partition, table, key, moment)

    def _look(self, read: ReadMode | None, timeout: float) -> tuple[ReadTimestamp, ViewDefinition]:
        """The moment to read, and the view's definition then."""
        if self._held:
            return self._held[1], self._definition
        while True:
            moment = moment_of(self._database.store, self._mode if read is None else read, timeout)
            definition = self._database.view_as_of(self._definition, moment.horizon.catalog_version)
            if definition is not None:
                self._definition = definition
                return moment, definition

    def _current(self) -> ViewDefinition:
        return self._definition if self._held else self._look(SNAPSHOT, 0)[1]

    def _still(self, moment: ReadTimestamp) -> Horizon | None:
        """The horizon now, unless what was read since `moment` may not belong to it.

        Versions may be purged (R4), and a view that was replaced may be gone.
        """
        now = self._database.store.read_horizon()
        is_same = now.catalog_version == moment.horizon.catalog_version
        return now if is_same and (moment.epoch == EPOCH_MAX or now.floor <= moment.epoch) else None

    def _partitions(self, definition: ViewDefinition, prefix: Sequence[object]) -> Sequence[int]:
        store, node = self._database.store, definition.node
        if not node.key:
            return [store.partition_of(b"")]
        if not prefix:
            return range(store.partitions)
        return [store.partition_of(key_bytes(_label(definition), node.key[:1], prefix[:1]))]

    def _partitions_of(self, definition: ViewDefinition, low: bytes, high: bytes | None) -> Sequence[int]:
        """The partitions that may hold the keys of a range: one, where all have the same first part."""
        store, key = self._database.store, definition.node.key
        if not key:
            return [store.partition_of(b"")]
        first = low[: part_end(key[0], low)] if low else b""
        is_one = bool(first) and high is not None and high <= (after_prefix(first) or b"")
        return [store.partition_of(first)] if is_one else range(store.partitions)

    def _is_unfilled(self, definition: ViewDefinition, moment: ReadTimestamp) -> bool:
        horizon = moment.horizon
        first = horizon.filled.get(definition.node.backfill)
        is_stopped = not horizon.stopped.isdisjoint(definition.needs)
        return first is None or is_stopped or (self._held is not None and first > moment.epoch)

    def _unfilled(self, definition: ViewDefinition, key: bytes) -> dict[str, object] | None:
        rows = [row for at, row in self._unfilled_pairs(definition) if at == key]
        return record_of(definition, key, rows[0]) if rows else None

    def _unfilled_pairs(self, definition: ViewDefinition) -> list[tuple[bytes, bytes]]:
        """What a view holds before its first epoch: known over an empty base, else it is not ready."""
        from viewkeeper.plan.define import lower
        from viewkeeper.plan.nodes import AggregateNode

        catalog, store = self._database.catalog(), self._database.store
        if not {node.table for node in catalog.nodes}.issuperset(definition.needs):  # dropped since the snapshot
            raise self._not_ready(definition)
        lowered = lower(catalog, definition)
        always = [node for node in lowered.nodes if isinstance(node, AggregateNode) and node.always]
        bases = catalog.bases_of(definition)
        has_rows = any(next(store.scan(table, b"", None), None) is not None for table in bases)
        if has_rows or any(node is not lowered.root for node in always):
            raise self._not_ready(definition)
        if always:
            from viewkeeper.operators.aggregate import empty_row

            row = empty_row(always[0])
            return [] if row is None else [(b"", row)]
        return []

    def _not_ready(self, definition: ViewDefinition) -> NotReady:
        from viewkeeper.client.fill_progress import not_filled

        record = self._database.store.read_epoch_record()
        reason = why_stopped(definition, record)
        if reason is not None:
            return NotReady(f"{_label(definition)} is stopped: {reason}", "viewkeeper rebuild fills it anew")
        return not_filled(self._database.store, definition, record)


def why_stopped(definition: ViewDefinition, record: EpochRecord) -> str | None:
    """Why a view is no longer maintained; None if it is."""
    return next((record.stopped[table] for table in definition.needs if table in record.stopped), None)


def _label(definition: ViewDefinition) -> str:
    return f"view {definition.name}"


def _bounds(
    definition: ViewDefinition, prefix: Sequence[object], start: object, stop: object
) -> tuple[bytes, bytes | None]:
    return byte_range(_label(definition), definition.node.key, prefix, start, stop)


def _to_change(definition: ViewDefinition, step: RecordChange) -> Change:
    from viewkeeper.client.result import Change

    columns = definition.node.key
    try:
        key = tuple(from_stored(c, v) for c, v in zip(columns, decode_key(columns, step.key), strict=True))
    except DAMAGE as error:
        raise record_damaged(definition.name) from error
    before, after = (None if row is None else record_of(definition, step.key, row) for row in (step.before, step.after))
    return Change(step.epoch, key, before, after)


def record_of(definition: ViewDefinition, key: bytes, row: bytes) -> dict[str, object] | None:
    """The record as a reader sees it; None if it is one of other views alone."""
    try:
        return _decoded(definition, key, row)
    except DAMAGE as error:
        raise record_damaged(definition.name) from error


def _decoded(definition: ViewDefinition, key: bytes, row: bytes) -> dict[str, object] | None:
    node, present = definition.node, definition.present
    if present is not None and not decode_some(node.row, row, [present])[0]:
        return None
    keys = decode_key(node.key, key)
    if definition.sharing is None:
        values = decode_row(node.row, row)
        return {
            s.column.name: from_stored(s.column, (keys if s.part == "key" else values)[s.index])
            for s in definition.shown
        }
    own = iter(decode_some(node.row, row, [shown.index for shown in definition.shown if shown.part == "row"]))
    return {
        shown.column.name: from_stored(shown.column, keys[shown.index] if shown.part == "key" else next(own))
        for shown in definition.shown
    }


def present_records(definition: ViewDefinition, keys: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The records that are the view's own, of those that a table holds for several views."""
    if definition.present is None or not len(rows):
        return keys, rows
    from viewkeeper.model.rowbatches import decode_rows

    try:
        marks = decode_rows(definition.node.row, rows, [definition.present])[0].to_numpy(zero_copy_only=False)
    except DAMAGE as error:
        raise record_damaged(definition.name) from error
    if marks.all():
        return keys, rows
    chosen = marks.nonzero()[0]
    return keys.take(chosen), rows.take(chosen)


def _limited(tables: Iterable[pa.Table], limit: int | None) -> Iterator[pa.Table]:
    """The first `limit` rows of the tables, and no table without rows."""
    left = limit
    for table in tables:
        if left is not None:
            table = table.slice(0, left)
            left -= len(table)
        if len(table):
            yield table
        if left == 0:
            return
