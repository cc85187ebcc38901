"""The WALs of an HBase as a log source: a stream for each start of a region server.

In: the folder of the WALs, which tables matter, and a few facts that the store keeps. Out: cells of these tables, by
ranges of positions. Always: a range gives the same cells each time. What others write, views among it, is skipped:
where there is nothing else, a cut stays where it is, until a file is done with. Streams are scanned here, or, if there
is much to read, in other processes: one scan after the other either way, each of all streams (`lookahead`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from viewkeeper.errors import PositionLost, StoreUnavailable
from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting
from viewkeeper.model.schema import TableSchema
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, LookaheadResult, Tail, cut_tails, scan_ahead
from viewkeeper.stores.hbase.wal.mapped_tables import MappedTables
from viewkeeper.stores.hbase.wal.wal_entries import Marker
from viewkeeper.stores.hbase.wal.wal_files import WalFolder
from viewkeeper.stores.hbase.wal.wal_reader import RETENTION, WalReader

_ENTRIES_MAX = 4_000_000  # that a tail knows at once, of 50 bytes where each was written at a time of its own
_SENT_MAX, _SENT_LEAST = 2_000_000, 10_000  # that one look brings from other processes: of all streams, of each
_LOOKS_MAX = 20
_TIMES_NOTED = 20  # within the time for which HBase keeps its logs
_MS = 1_000_000
STAGED = "staged,"  # how names of streams begin that are none of HBase's


class LogState(Protocol):
    """What the store remembers of its log, durably."""

    def began(self) -> Positions | None:
        """Where reading began; None if nobody has read yet."""
        ...

    def begin(self, now: Positions) -> Positions:
        """Begin at `now`, unless somebody else did before; returns where reading began."""
        ...

    def looked(self) -> int | None:
        """When somebody last looked at the log (ns); None if nobody has."""
        ...

    def look(self, now: int) -> None: ...

    def ended(self) -> Positions:
        """The streams that were read to their ends, and these."""
        ...

    def end(self, streams: Positions) -> None: ...


@dataclass(frozen=True, slots=True)
class _Looked:
    """The tails of all streams; `known`: those looked at to their ends. All that was written before `stamp` is in them."""

    tails: tuple[Tail, ...]
    known: tuple[Tail, ...]
    stamp: int


class WalLog:
    """The port `LogSource`, and of the streams of HBase alone."""

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
        """`uncover` is called with deletes of single versions, before a cut has them, and `follow` with markers.

        `spread` does `look_at` for each look elsewhere, or returns None.
        """
        self.folder, self._mapped, self._facts, self._now = folder, mapped, facts, now
        self._kept = int(kept_seconds * 1e9)
        self._lock = threading.RLock()
        self._uncover = uncover
        self._uncovered: Positions = {}  # up to where that was done
        self._noted: int | None = None
        self._spread, self._follow = spread, follow
        self._reader = WalReader(folder, frozenset())
        self._tails: dict[Stream, Tail] = {}

    def owns(self, stream: Stream) -> bool:
        return not stream.startswith(STAGED)

    def ends(self) -> Positions:
        return WalReader(self.folder, ()).ends()

    def last_entries(self) -> Positions:
        return WalReader(self.folder, ()).last_entries()

    def has_changes(self, start: Positions, stop: Positions) -> bool:
        behind = {stream: position for stream, position in stop.items() if start.get(stream, 0) < position}
        began = self._facts.began() if behind else None
        if began is None:
            return bool(behind)
        with self._lock:
            return any(
                tail.between(start.get(tail.stream, Position(0)), behind[tail.stream])["cells"].any()
                for looked in self._looks(began | start)
                for tail in looked.tails
                if tail.stream in behind
            )

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        with self._lock:
            began = self.begin()
            for stream, tail in self._tails.items():  # what is done with makes room for what lies ahead
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
        """Note durably where reading begins, if nobody has: at the end of what is there now; returns where it began."""
        with self._lock:
            self._guard()
            began = self._facts.began()
            return self._facts.begin(self.last_entries()) if began is None else began

    def _end(self, tails: Sequence[Tail], start: Positions) -> None:
        """Remember which streams have ended and are read: HBase may delete their files. Others may not be missing."""
        there, known = {tail.stream: tail.end for tail in tails}, self._facts.ended()
        _require_streams(there, known, start)
        done = {stream: at for stream, at in start.items() if there.get(stream) == at and stream not in known}
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

    def _guard(self) -> None:
        """Nobody can tell what was in files that HBase deleted while nobody looked."""
        now = self._now()
        if self._noted is not None and now - self._noted <= self._kept // _TIMES_NOTED:
            return
        self._require_kept(now, self._facts.looked())  # another pipeline may have read since this one did
        self._facts.look(now)
        self._noted = now

    def _require_kept(self, now: int, looked: int | None) -> None:
        if looked is not None and now - looked > self._kept:
            away, kept = (now - looked) / 1e9, self._kept / 1e9
            raise PositionLost(
                f"nobody has read HBase's logs for {away:.0f} s, and they are kept for {kept:.0f} s",
                "viewkeeper rebuild fills views anew; or, if hbase.master.logcleaner.ttl is longer, add retention=SECONDS "
                "to the URL",
            )

    def markers(self) -> list[Marker]:
        """Those that lie ahead, as last looked at."""
        with self._lock:
            return _markers(tuple(self._tails.values()))

    def scan_ahead(self, look: LookaheadRequest) -> LookaheadResult:
        """What another process wants to know."""
        return scan_ahead(WalReader(self.folder, look.tables), look)

    def _looks(self, start: Positions) -> Iterator[_Looked]:
        """Looks that reach further and further, the last one to the ends."""
        looked = self._look(start)
        yield looked
        while len(looked.known) < len(looked.tails):
            looked = self._look(start, entries_max=2 * max(tail.count for tail in looked.tails))
            yield looked

    def _look(self, start: Positions, *, entries_max: int = 0) -> _Looked:
        """Look at all streams, until no region was opened between two looks, or more than so many entries are known."""
        names = self._mapped().names
        if names != self._reader.tables:
            self._reader, self._tails, self._uncovered = WalReader(self.folder, names), {}, {}
        more: set[Stream] = set()  # that have more than is looked at at once
        for _ in range(_LOOKS_MAX):
            stamp, streams = self._now(), self.folder.files()
            self._tails = {stream: self._tail(stream, start.get(stream, Position(0))) for stream in streams}
            looks = [
                LookaheadRequest.on(self._tails[stream], names, files, entries_max=max(entries_max, _ENTRIES_MAX))
                for stream, files in streams.items()
                if stream not in more
            ]
            found = self._see(looks)
            for stream, seen in found.items():
                self._tails[stream].add(seen)
            more |= {stream for stream, seen in found.items() if not seen.is_all}
            if not any(seen.has_opened for seen in found.values()):
                break
        else:
            raise StoreUnavailable("regions are opened faster than their logs can be looked at")
        tails = tuple(self._tails.values())
        return _Looked(tails, tuple(tail for tail in tails if tail.stream not in more), stamp)

    def _see(self, looks: Sequence[LookaheadRequest]) -> dict[Stream, LookaheadResult]:
        """What each look finds: those that have much to read elsewhere, if that is worth it."""
        far = [look for look in looks if look.bytes]
        share = max(_SENT_LEAST, _SENT_MAX // max(1, len(far)))
        sent = self._spread([replace(look, told_max=share) for look in far]) or []
        found = {look.stream: seen for look, seen in zip(far, sent, strict=False)}
        return found | {look.stream: scan_ahead(self._reader, look) for look in looks if look.stream not in found}

    def _tail(self, stream: Stream, start: Position) -> Tail:
        known = self._tails.get(stream)
        return known if known and known.knows(start) else Tail(stream, start, start)

    def skip_log(self, start: Positions) -> Cut:
        with self._lock:
            self._noted, self._tails = self._now(), {}
            self._facts.look(self._noted)
            return Cut(self.last_entries(), self._noted, 0)

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        with self._lock:
            tails = self._look((self._facts.began() or {}) | start).tails
        ends = ((tail, start.get(tail.stream, Position(0)), stop.get(tail.stream, Position(0))) for tail in tails)
        return sum(int(tail.between(low, high)["bytes"].sum()) for tail, low, high in ends)

    def waiting(self, start: Positions) -> Waiting:
        began = self._facts.began()
        if began is None:
            return Waiting(0, None)
        self._require_kept(self._now(), self._facts.looked())
        with self._lock:
            tails = self._look(began | start).tails
            ahead = [tail.between(start.get(tail.stream, Position(0)), tail.end) for tail in tails]
        _require_streams({tail.stream: tail.end for tail in tails}, self._facts.ended(), start)
        found = [entries[entries["cells"] > 0] for entries in ahead]
        oldest = min((int(entries["written"].min()) for entries in found if len(entries)), default=None)
        return Waiting(sum(int(entries["cells"].sum()) for entries in found), None if oldest is None else oldest * _MS)

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
        """Those that matter and wait to be read, as last looked at: the rest of the log is HBase's own."""
        with self._lock:
            return sum(tail.count for tail in self._tails.values())

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        """None: a stream's name is never used again, so its log cannot be another one."""
        return {}

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
        """Where to read from: not before reading began."""
        return max(start, (self._facts.began() or {}).get(stream, Position(0)))

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        """HBase deletes its logs by itself."""
        return 0


def _require_streams(there: Positions, ended: Positions, start: Positions) -> None:
    """Raise where a stream is gone that was not read to its end."""
    if lost := {stream for stream, at in start.items() if stream not in there and ended.get(stream) != at}:
        raise PositionLost(f"the WAL of {min(lost)} is gone, and was not read to its end", RETENTION)


def _markers(tails: Sequence[Tail]) -> list[Marker]:
    return [marker for tail in tails for marker in tail.markers]


def _cut_of(looked: _Looked, changes_max: int, bytes_max: int) -> Cut:
    """The longest cut that the limits allow, of what is known."""
    tails = looked.tails
    changes, size = (sum(int(tail.entries[name].sum()) for tail in tails) for name in ("cells", "bytes"))
    if changes <= changes_max and size <= bytes_max and len(looked.known) == len(tails):
        positions, stamp = {tail.stream: tail.end for tail in tails}, looked.stamp
    else:
        positions, until = cut_tails(tails, looked.known, changes_max=changes_max, bytes_max=bytes_max)
        changes = sum(int(tail.upto(positions[tail.stream])["cells"].sum()) for tail in tails)
        stamp = min(looked.stamp, until * _MS)
    if not changes:
        positions = {tail.stream: _idle_position(tail, positions[tail.stream]) for tail in tails}
    return Cut({stream: at for stream, at in positions.items() if at}, stamp, changes)


def _idle_position(tail: Tail, stop: Position) -> Position:
    """Where a stream without changes is taken to be: at its start, unless files have been finished since."""
    return stop if tail.has_rolled(stop) else tail.start
