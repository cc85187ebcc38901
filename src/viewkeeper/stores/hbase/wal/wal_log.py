"""The WALs of an HBase as a log source: a stream for each start of a region server.

In: the folder of the WALs, which tables are mapped, and the log's state that the store keeps. Out: cells of these
tables, by ranges of positions. Always: a range gives the same cells each time. Entries of other tables, views among
them, are skipped: where there are no others, a cut stays where it is until a file is finished. All streams are scanned
here, or in other processes if there is much to read, and then all of them again (`lookahead`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from viewkeeper.errors import PositionLost, StoreUnavailable
from viewkeeper.model.positions import (
    Cut,
    LogRange,
    Position,
    Positions,
    Stream,
    positions_from_json,
    positions_to_json,
)
from viewkeeper.model.schema import TableSchema
from viewkeeper.stores.hbase.store_tables import LOG, MetaTable
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, LookaheadResult, Tail, cut_tails, scan_ahead
from viewkeeper.stores.hbase.wal.mapped_tables import MappedTables
from viewkeeper.stores.hbase.wal.wal_entries import Marker
from viewkeeper.stores.hbase.wal.wal_files import GrowingLogs, WalFolder
from viewkeeper.stores.hbase.wal.wal_reader import RETENTION, WalReader

_ENTRIES_MAX = 4_000_000  # that a tail knows at once, of 50 bytes where each was written at a time of its own
_SENT_MAX, _SENT_LEAST = 2_000_000, 10_000  # entries that one look brings from other processes: of all streams, of each
_LOOKS_MAX = 20
_TIMES_NOTED = 20  # within the time for which HBase keeps its logs
_MS = 1_000_000
_BEGAN, _LOOKED, _ENDED = "began", "looked", "ended/"  # names in the row of the log


class LogState:
    """The log's state in a row of the meta table: where reading began never changes, the pipeline writes the rest."""

    def __init__(self, rows: MetaTable) -> None:
        self._rows = rows
        self._began: Positions | None = None

    def began(self) -> Positions | None:
        """Where reading began, if it has."""
        if self._began is None:
            found = self._rows.read(LOG, _BEGAN).get(_BEGAN)
            self._began = None if found is None else positions_from_json(json.loads(found))
        return self._began

    def begin(self, now: Positions) -> Positions:
        """Begin at `now`, unless reading began before; returns where it began."""
        self._rows.swap(LOG, _BEGAN, b"", {_BEGAN: json.dumps(positions_to_json(now)).encode()}, repeats=True)
        began = self.began()
        assert began is not None
        return began

    def looked(self) -> int | None:
        """When the log was last read (ns), if it was."""
        found = self._rows.read(LOG, _LOOKED).get(_LOOKED)
        return None if found is None else int(found)

    def look(self, now: int) -> None:
        """By test-and-set: a put that got no reply and is done late would tell of an earlier look."""
        seen = self._rows.read(LOG, _LOOKED).get(_LOOKED, b"")
        self._rows.swap(LOG, _LOOKED, seen, {_LOOKED: b"%d" % now}, repeats=True)

    def ended(self) -> Positions:
        """The streams that were read to their ends, with these ends."""
        found = {name: value for name, value in self._rows.read(LOG).items() if name.startswith(_ENDED)}
        return positions_from_json({name.removeprefix(_ENDED): int(value) for name, value in found.items()})

    def end(self, streams: Positions) -> None:
        for stream, position in streams.items():
            self._rows.put(LOG, {_ENDED + stream: b"%d" % position})


@dataclass(frozen=True, slots=True)
class _Looked:
    """The tails of all streams; `known`: those scanned to their ends. These have all that was written before `stamp`."""

    tails: tuple[Tail, ...]
    known: tuple[Tail, ...]
    stamp: int


class WalLog:
    """The port `LogSource` over the WALs."""

    def __init__(
        self,
        folder: WalFolder,
        mapped: Callable[[], MappedTables],
        facts: LogState,
        *,
        uncover: Callable[[TableSchema, pa.RecordBatch], None],
        now: Callable[[], int],
        kept_seconds: float,
        spread: Callable[[Sequence[LookaheadRequest]], list[LookaheadResult] | None] = lambda looks: None,
        follow: Callable[[Sequence[Marker]], None] = lambda markers: None,
    ) -> None:
        """`uncover` is called with deletes of single versions, before a cut takes them in, and `follow` with markers.

        `spread` runs `scan_ahead` for each request in other processes, or returns None.
        """
        self.folder, self._mapped, self._facts, self._now = folder, mapped, facts, now
        self._kept = int(kept_seconds * 1e9)
        self._lock = threading.RLock()
        self._uncover = uncover
        self._uncovered: Positions = {}  # up to where that was done, for these copies of tables
        self._copies: frozenset[tuple[int, int]] = frozenset()
        self._noted: int | None = None
        self._spread, self._follow = spread, follow
        self._reader = WalReader(folder, frozenset())
        self._tails: dict[Stream, Tail] = {}
        self._growing: GrowingLogs | None = None
        self._waited: dict[Stream, Tail] = {}  # what was asked for from where `_tails` do not know
        self._firsts: Positions = {}  # where the first files begin of streams that had no entry

    def ends(self) -> Positions:
        """Where the files of every stream end now; in the middle of an entry, if one is just being written."""
        return {stream: Position(files[-1].first + files[-1].size) for stream, files in self.folder.files().items()}

    def growing(self) -> GrowingLogs:
        """The logs at a moment before a write that is begun now: as last seen."""
        if self._growing is None:
            self._growing = self.folder.growing()
        return self._growing

    def ends_since(self, before: GrowingLogs) -> Positions:
        """Positions that cover what was written after `before`; archived files are listed only if there may be new ones."""
        now = self._growing = self.folder.growing(before)
        return now.ends if now.cover_writes(before) else self.ends()

    def last_entries(self) -> Positions:
        return WalReader(self.folder, ()).last_entries()

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        with self._lock:
            began = self.begin()
            for stream, tail in self._tails.items():  # forget what was taken in before
                if tail.knows(at := start.get(stream, Position(0))):
                    tail.begin_at(at)
            for looked in self._looks(began | start):
                self._end(looked.tails, start)
                self._uncover_all(looked.tails)
                self._follow(_markers(looked.tails))
                cut = _cut_of(looked, changes_max, bytes_max)
                if cut.changes:
                    break
            return cut

    def begin(self) -> Positions:
        """Begin reading durably at the ends of the streams now, unless it began before; returns where it began."""
        with self._lock:
            now = self._now()
            if self._noted is None or now - self._noted > self._kept // _TIMES_NOTED:
                self._require_kept(now, self._facts.looked())  # another pipeline may have read since this one did
                self._facts.look(now)
                self._noted = now
            began = self._facts.began()
            return self._facts.begin(self.last_entries()) if began is None else began

    def _end(self, tails: Sequence[Tail], start: Positions) -> None:
        """Note which streams have ended and are read: HBase may delete their files. Raise where others are missing."""
        there, known = {tail.stream: tail.end for tail in tails}, self._facts.ended()
        _require_streams(there, known, start)
        done = {stream: at for stream, at in start.items() if there.get(stream) == at and known.get(stream) != at}
        ended = self.folder.ended() if done else set()
        if gone := {stream: at for stream, at in done.items() if stream in ended}:
            self._facts.end(gone)

    def _uncover_all(self, tails: Sequence[Tail]) -> None:
        for tail in tails:
            start = max(tail.start, self._uncovered.get(tail.stream, Position(0)))
            if tail.between(start, tail.end)["uncovers"].any():
                mapped = self._mapped()
                for cells in self.read_cells(tail.stream, start, tail.end, mapped):
                    for table, deletes in mapped.uncovering(cells):
                        self._uncover(table, deletes)
            self._uncovered[tail.stream] = tail.end

    def _require_kept(self, now: int, looked: int | None) -> None:
        """Raise where HBase may have deleted files that were not read."""
        if looked is not None and now - looked > self._kept:
            away, kept = (now - looked) / 1e9, self._kept / 1e9
            raise PositionLost(
                f"nobody has read HBase's logs for {away:.0f} s, and they are kept for {kept:.0f} s",
                "viewkeeper rebuild fills views anew; or, if hbase.master.logcleaner.ttl is longer, add retention=SECONDS "
                "to the URL",
            )

    def markers(self) -> list[Marker]:
        with self._lock:
            return _markers(tuple(self._tails.values()))

    def scan_ahead(self, look: LookaheadRequest) -> LookaheadResult:
        return scan_ahead(WalReader(self.folder, look.tables), look)

    def _looks(self, start: Positions) -> Iterator[_Looked]:
        """Looks that reach further and further, the last one to the streams' ends."""
        looked = self._look(start)
        yield looked
        while len(looked.known) < len(looked.tails):
            looked = self._look(start, entries_max=2 * max(tail.count for tail in looked.tails))
            yield looked

    def _look(self, start: Positions, *, entries_max: int = 0) -> _Looked:
        """Scan all streams until no region was opened between two scans; of a stream no more than so many entries."""
        names = self._names()
        more: set[Stream] = set()  # that have more than is scanned at once
        for _ in range(_LOOKS_MAX):
            stamp, streams, known = self._now(), self.folder.files(), self._tails
            starts = {stream: start.get(stream, Position(0)) for stream in streams}
            self._tails = {
                stream: known[stream] if stream in known and known[stream].knows(at) else Tail(stream, at, at)
                for stream, at in starts.items()
            }
            looks = [
                LookaheadRequest.on(self._tails[stream], names, files, entries_max=max(entries_max, _ENTRIES_MAX))
                for stream, files in streams.items()
                if stream not in more
            ]
            found = self._see(looks)
            for stream, seen in found.items():
                self._tails[stream].add(seen)
            more |= {stream for stream, seen in found.items() if not seen.is_all}
            if not any(seen.entries["opens"].any() for seen in found.values()):
                break
        else:
            raise StoreUnavailable(
                "HBase opens regions faster than ViewKeeper can find their logs", "wait until regions no longer move"
            )
        tails = tuple(self._tails.values())
        return _Looked(tails, tuple(tail for tail in tails if tail.stream not in more), stamp)

    def _names(self) -> frozenset[str]:
        """Those of the tables that matter; what is known of the streams is of these."""
        mapped = self._mapped()
        names, copies = mapped.names, mapped.copies
        if copies != self._copies:  # a table that is mapped once more has its own rows in DELTA
            self._copies, self._uncovered = copies, {}
        if names != self._reader.tables:
            self._reader, self._tails, self._uncovered, self._waited = WalReader(self.folder, names), {}, {}, {}
        return names

    def _see(self, looks: Sequence[LookaheadRequest]) -> dict[Stream, LookaheadResult]:
        """The result of each look; other processes scan those that have something to read, if that is worth it."""
        far = [look for look in looks if look.bytes]
        share = max(_SENT_LEAST, _SENT_MAX // max(1, len(far)))
        sent = self._spread([replace(look, told_max=share) for look in far]) or []
        found = {look.stream: seen for look, seen in zip(far, sent, strict=False)}
        return found | {look.stream: scan_ahead(self._reader, look) for look in looks if look.stream not in found}

    def skip_log(self) -> Cut:
        """A cut at the end of the log, whatever lies before it or was lost."""
        with self._lock:
            self._noted, self._tails = self._now(), {}
            self._facts.look(self._noted)
            return Cut(self.last_entries(), self._noted, 0)

    def describe(self, start: Positions, stop: Positions | None = None) -> LogRange:
        """Scans until a change is found, or the range ends: where it tells of many changes, there may be more."""
        ahead = None if stop is None else {stream: at for stream, at in stop.items() if start.get(stream, 0) < at}
        began = None if ahead == {} else self._facts.began()
        if began is None:
            return LogRange(has_changes=bool(ahead))
        with self._lock:
            if ahead is None:
                entries = self._all_ahead(began, start)
            else:
                entries = self._between(began | start, ahead)
        changes, size = (sum(int(some[name].sum()) for some in entries) for name in ("cells", "bytes"))
        written = [int(some["written"][some["cells"] > 0].min()) for some in entries if some["cells"].any()]
        return LogRange(changes, size, min(written) * _MS if written else None, changes > 0)

    def _all_ahead(self, began: Positions, start: Positions) -> list[np.ndarray]:
        """The entries of all streams from `start` on."""
        self._require_kept(self._now(), self._facts.looked())
        for looked in self._looks(began | start):
            entries = [tail.between(start.get(tail.stream, Position(0)), tail.end) for tail in looked.tails]
            if any(some["cells"].any() for some in entries):
                break
        _require_streams({tail.stream: tail.end for tail in looked.tails}, self._facts.ended(), start)
        return entries

    def _between(self, start: Positions, stop: Positions) -> list[np.ndarray]:
        """The entries up to `stop` of these streams, as far as they are known: to the end, or until there is a change."""
        names, most, tails = self._names(), _SENT_LEAST, [self._tail(one, start.get(one, Position(0))) for one in stop]
        left = {tail.stream: tail for tail in tails}
        while True:
            entries = [tail.between(start.get(tail.stream, Position(0)), stop[tail.stream]) for tail in tails]
            left = {stream: tail for stream, tail in left.items() if tail.end < stop[stream]}
            if not left or any(some["cells"].any() for some in entries):
                return entries
            ends = {stream: tail.end or self._firsts.get(stream, tail.end) for stream, tail in left.items()}
            files = self.folder.files_between(ends, stop)
            self._firsts |= {stream: files[stream][0].first for stream in files if not left[stream].end}
            looks = [
                LookaheadRequest.on(left[stream], names, some, entries_max=left[stream].count + most)
                for stream, some in files.items()
            ]
            for stream, seen in (found := self._see(looks)).items():
                left[stream].add(seen)
            left = {stream: left[stream] for stream, seen in found.items() if not seen.is_all}
            most *= 2

    def _tail(self, stream: Stream, start: Position) -> Tail:
        """That from which the next cut goes on, if it can be; otherwise one for those who wait from there or later on."""
        tail = self._tails.get(stream)
        is_own = tail is not None and start <= tail.end and not tail.knows(start)
        known = self._waited if is_own else self._tails
        if (tail := known.get(stream)) is None or not tail.knows(start):
            tail = known[stream] = Tail(stream, start, start)
        if is_own or self._noted is None:  # there are no cuts here that would forget what lies before them
            tail.begin_at(start)
        return tail

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        start = self._from(stream, start)
        if start >= stop:  # all of it lies before the beginning
            return []
        with self._lock:
            tail = self._tails.get(stream)
            if tail is None or not (tail.knows(start) and start <= stop <= tail.end):
                tail, names = Tail(stream, start, start), self._mapped().names
                files = [file for file in self.folder.files().get(stream, []) if file.first < stop]
                tail.add(self.scan_ahead(LookaheadRequest.on(tail, names, files, entries_max=_ENTRIES_MAX)))
            entries = tail.between(start, stop)
        total = np.cumsum(entries["cells"])
        inner = []
        if len(total) and total[-1]:
            shares = np.searchsorted(total, total[-1] * np.arange(1, count) / count)
            inner = np.unique(entries["position"][np.minimum(shares, len(total) - 1)]).tolist()
        return [start, *(Position(at) for at in inner if start < at < stop), stop]

    def log_entries(self) -> int:
        """The entries of mapped tables that wait to be read, as last scanned."""
        with self._lock:
            return sum(tail.count for tail in self._tails.values())

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        mapped = self._mapped()
        for cells in self.read_cells(stream, start, stop, mapped):
            yield from mapped.writes(cells)

    def read_cells(
        self, stream: Stream, start: Position, stop: Position, mapped: MappedTables
    ) -> Iterator[pa.RecordBatch]:
        """The cells of these tables as HBase logged them."""
        for block in WalReader(self.folder, mapped.names).read(stream, self._from(stream, start), stop):
            yield block.cells

    def _from(self, stream: Stream, start: Position) -> Position:
        """A position from which to read: not before reading began."""
        return max(start, (self._facts.began() or {}).get(stream, Position(0)))


def _require_streams(there: Positions, ended: Positions, start: Positions) -> None:
    """Raise where a stream is missing that was not read to its end."""
    if lost := {stream for stream, at in start.items() if stream not in there and ended.get(stream) != at}:
        raise PositionLost(f"a log of region server {min(lost)} is gone, and was not read to its end", RETENTION)


def _markers(tails: Sequence[Tail]) -> list[Marker]:
    return [marker for tail in tails for marker in tail.markers]


def _cut_of(looked: _Looked, changes_max: int, bytes_max: int) -> Cut:
    """The longest cut of what is known that the limits allow."""
    tails = looked.tails
    changes, size = (sum(int(tail.entries[name].sum()) for tail in tails) for name in ("cells", "bytes"))
    if changes <= changes_max and size <= bytes_max and len(looked.known) == len(tails):
        positions, stamp = {tail.stream: tail.end for tail in tails}, looked.stamp
    else:
        positions, until = cut_tails(tails, looked.known, changes_max=changes_max, bytes_max=bytes_max)
        changes = sum(int(tail.upto(positions[tail.stream])["cells"].sum()) for tail in tails)
        stamp = min(looked.stamp, until * _MS)
    if not changes:  # a stream stays at its start, unless a file has ended since: HBase will delete it
        rolled = {tail.stream for tail in tails if any(border <= positions[tail.stream] for border in tail.borders)}
        positions = {tail.stream: positions[tail.stream] if tail.stream in rolled else tail.start for tail in tails}
    return Cut({stream: at for stream, at in positions.items() if at}, stamp, changes)
