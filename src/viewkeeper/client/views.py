"""Views: reads of materialized records by key and in key order.

In: keys and a read mode. Out: dicts, Arrow tables. Always: a read in any mode but "latest" sees one committed epoch for
all of its records, and the view as it was defined then, even if it was replaced since it was opened; a view that is not
filled yet raises instead of returning a part.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from viewkeeper.catalog.catalog import ViewDefinition
from viewkeeper.client.arguments import byte_range, check_limit, key_bytes, key_values
from viewkeeper.client.connection import TIMEOUT_SECONDS, Connection, moment_of
from viewkeeper.errors import InputError, NotReady, StaleRead
from viewkeeper.model.keys import after_prefix, decode_key, part_end, partition_of
from viewkeeper.model.read_frontier import EPOCH_MAX, SNAPSHOT, ReadTimestamp
from viewkeeper.model.rowcodec import decode_row, decode_some
from viewkeeper.model.stored_rows import pairs_to_arrow
from viewkeeper.model.stored_values import DAMAGE, from_stored, record_damaged
from viewkeeper.ports.base_rows import scan_rows

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from viewkeeper.client.connection import ReadMode
    from viewkeeper.client.result import Change, Changes
    from viewkeeper.model.epochs import EpochRecord
    from viewkeeper.model.read_frontier import ReadFrontier, RecordChange
    from viewkeeper.ports.records import Held

T = TypeVar("T")
_Span = tuple[Sequence[object], object, object]  # a prefix, a start and a stop
_ALL: _Span = ((), None, None)
_Range = tuple[bytes, bytes | None]


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
            moment, definition = self._resolve(read, timeout)
            partition, encoded = self._place(definition, key)
            if self._is_unfilled(definition, moment):
                row = dict(self._unfilled_pairs(definition)).get(encoded)
                return None if row is None else record_of(definition, encoded, row)
            at = partition, definition.node.table, encoded
            if self._held:
                row = self._held[0].get(*at)
                return None if row is None else record_of(definition, encoded, row)
            with suppress(StaleRead):  # of a moment that is over
                row = self._database.store.get_record(*at, moment)
                if self._still(moment):
                    return None if row is None else record_of(definition, encoded, row)

    def _place(self, definition: ViewDefinition, key: Sequence[object]) -> tuple[int, bytes]:
        node = definition.node
        encoded = key_bytes(_label(definition), node.key, key)
        first = encoded[: part_end(node.key[0], encoded)] if node.key else b""
        return partition_of(first, self._database.store.partitions), encoded

    def _committed(self, key: Sequence[object]) -> tuple[dict[str, object] | None] | None:
        """The record, found by one request to the store; None if that does not tell it, or the view is defined anew."""
        definition = self._definition
        try:
            partition, encoded = self._place(definition, key)
        except InputError:  # by a definition that may be another by now
            return None
        found = self._database.store.get_committed(partition, definition.node.table, encoded)
        if found is None:
            return None
        row, frontier = found
        is_same = self._database.view_as_of(definition, frontier.catalog_version) == definition
        if not is_same or self._is_unfilled(definition, ReadTimestamp(frontier.committed, frontier.aborted, frontier)):
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
        span = prefix, start, stop
        _bounds(self._resolve(SNAPSHOT, 0)[1], span)  # what is no key is refused here, not at the first record

        def records(definition: ViewDefinition, pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[dict[str, object]]:
            return filter(None, itertools.starmap(partial(record_of, definition), pairs))

        found = self._read(
            span,
            read,
            timeout,
            lambda view, held, partitions, keys: records(
                view, held.scan(partitions, view.node.table, *keys, reverse=reverse)
            ),
            records,
        )
        return itertools.islice(found, limit)

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
        _bounds(self._resolve(SNAPSHOT, 0)[1], (prefix, start, stop))  # as in `scan`
        found = self._records((prefix, start, stop), read, timeout, reverse=reverse)
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

        found = self._records((prefix, start, stop), read, timeout)
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
            with self._hold(_ALL, read, timeout) as (held, moment, definition, partitions, _):
                if moment.epoch == EPOCH_MAX:
                    raise InputError("changes are those of committed epochs", 'leave read="latest" out')
                if self._is_unfilled(definition, moment):
                    raise self._not_ready(definition)
                filled = moment.frontier.filled[definition.node.backfill]
                first = require_kept(_label(definition), since, moment, filled)
                try:
                    steps = held.steps(partitions, definition.node.table, first)
                except StaleRead:  # as in `_read`
                    if self._held:
                        raise
                    continue
                return Changes(first, moment.epoch, steps, partial(_to_change, definition))

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

    def _read(
        self,
        span: _Span,
        read: ReadMode | None,
        timeout: float,
        stored: Callable[[ViewDefinition, Held, Sequence[int], _Range], Iterator[T]],
        unfilled: Callable[[ViewDefinition, Iterable[tuple[bytes, bytes]]], Iterable[T]],
    ) -> Iterator[T]:
        """What `stored` makes of the records in a span, or `unfilled` of those that a view has before its first epoch."""
        has_begun = False
        while True:
            with self._hold(span, read, timeout) as (held, moment, definition, partitions, keys):
                try:
                    if self._is_unfilled(definition, moment):
                        pairs = [pair for pair in self._unfilled_pairs(definition) if pair[0] >= keys[0]]
                        yield from unfilled(definition, pairs)
                        return
                    for one in stored(definition, held, partitions, keys):
                        has_begun = True
                        yield one
                    return
                except StaleRead:  # epochs were faster than the first page
                    if has_begun or self._held:
                        raise

    def _records(
        self, span: _Span, read: ReadMode | None, timeout: float, *, reverse: bool = False
    ) -> Iterator[tuple[ViewDefinition, pa.Array, pa.Array]]:
        """Keys and rows of the records in a span, some thousand at a time, with the view's definition; at least once."""

        def pieces(view: ViewDefinition, found: Iterable[tuple[pa.Array, pa.Array]]) -> Iterator[tuple]:
            each = ((view, *present_records(view, *piece)) for piece in found)
            return itertools.chain([next(each, (view, *pairs_to_arrow([])))], each)

        return self._read(
            span,
            read,
            timeout,
            lambda view, held, partitions, keys: pieces(
                view, held.batches(view.node.table, [(partitions, *keys)], reverse=reverse)
            ),
            lambda view, pairs: [(view, *pairs_to_arrow(list(pairs)))],
        )

    @contextmanager
    def _hold(
        self, span: _Span, read: ReadMode | None, timeout: float
    ) -> Iterator[tuple[Held, ReadTimestamp, ViewDefinition, Sequence[int], _Range]]:
        """The records of the partitions that may hold the keys of a span, as of one moment; and the range of these keys."""
        while True:
            moment, definition = self._resolve(read, timeout)
            keys = _bounds(definition, span)
            partitions = self._partitions_of(definition, *keys)
            if self._held:
                yield self._held[0], moment, definition, partitions, keys
                return
            with closing(self._database.store.hold(moment, partitions)) as held:
                if (now := self._still(moment)) is not None:
                    yield held, moment.kept_from(now.floor), definition, partitions, keys
                    return

    def _resolve(self, read: ReadMode | None, timeout: float) -> tuple[ReadTimestamp, ViewDefinition]:
        """The moment to read, and the view's definition then."""
        if self._held:
            return self._held[1], self._definition
        while True:
            moment = moment_of(self._database.store, self._mode if read is None else read, timeout)
            definition = self._database.view_as_of(self._definition, moment.frontier.catalog_version)
            if definition is not None:
                self._definition = definition
                return moment, definition

    def _still(self, moment: ReadTimestamp) -> ReadFrontier | None:
        """The read frontier now, unless what was read since `moment` may not belong to it.

        Versions may be purged (R4), a view that was replaced may be gone, and all records where views start anew.
        """
        now = self._database.store.read_frontier()
        then = moment.frontier
        is_same = now.catalog_version == then.catalog_version and now.anew == then.anew
        return now if is_same and (moment.epoch == EPOCH_MAX or now.floor <= moment.epoch) else None

    def _partitions_of(self, definition: ViewDefinition, low: bytes, high: bytes | None) -> Sequence[int]:
        """The partitions that may hold the keys of a range: one, where all have the same first part."""
        store, key = self._database.store, definition.node.key
        if not key:
            return [partition_of(b"", store.partitions)]
        first = low[: part_end(key[0], low)] if low else b""
        is_one = bool(first) and high is not None and high <= (after_prefix(first) or b"")
        return [partition_of(first, store.partitions)] if is_one else range(store.partitions)

    def _is_unfilled(self, definition: ViewDefinition, moment: ReadTimestamp) -> bool:
        frontier = moment.frontier
        first = frontier.filled.get(definition.node.backfill)
        is_stopped = not frontier.stopped.isdisjoint(definition.needs)
        return first is None or is_stopped or (self._held is not None and first > moment.epoch)

    def _unfilled_pairs(self, definition: ViewDefinition) -> list[tuple[bytes, bytes]]:
        """The records before the first epoch: known over an empty base, else the view is not ready."""
        from viewkeeper.plan.define import lower
        from viewkeeper.plan.nodes import AggregateNode

        catalog, store = self._database.catalog(), self._database.store
        if not {node.table for node in catalog.nodes}.issuperset(definition.needs):  # dropped since the snapshot
            raise self._not_ready(definition)
        lowered = lower(catalog, definition)
        always = [node for node in lowered.nodes if isinstance(node, AggregateNode) and node.always]
        bases = catalog.bases_of(definition)
        has_rows = any(next(scan_rows(store, table, b"", None), None) is not None for table in bases)
        if has_rows or any(node is not lowered.root for node in always):
            raise self._not_ready(definition)
        if not always:
            return []
        from viewkeeper.operators.aggregate import empty_row

        row = empty_row(always[0])
        return [] if row is None else [(b"", row)]

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


def _bounds(definition: ViewDefinition, span: _Span) -> _Range:
    return byte_range(_label(definition), definition.node.key, *span)


def _to_change(definition: ViewDefinition, step: RecordChange) -> Change:
    from viewkeeper.client.result import Change

    try:
        key = key_values(definition.node.key, step.key)
    except DAMAGE as error:
        raise record_damaged(definition.name) from error
    before, after = (None if row is None else record_of(definition, step.key, row) for row in (step.before, step.after))
    return Change(step.epoch, key, before, after)


def record_of(definition: ViewDefinition, key: bytes, row: bytes) -> dict[str, object] | None:
    """The record as a reader sees it; None if it is one of other views alone."""
    node, present = definition.node, definition.present
    try:
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
    except DAMAGE as error:
        raise record_damaged(definition.name) from error


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
