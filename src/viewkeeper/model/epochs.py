"""The epoch record: the one row that states which epoch is committed and which is in flight.

In: steps of the protocol (`docs/epochs.md`, section 1), results of checks and repairs, and requests for rows set aside.
Out: a new record; the store swaps it in if the version it replaces is still current (R5). Always: `last` only grows, an
epoch in flight is `last`, and `floor` never passes what a reader of the last K committed epochs needs. A view that is
rebuilt or created again has no result of a check. A request for rows set aside is done once, in an epoch of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from viewkeeper.errors import Fenced, InvariantBroken, StaleRead
from viewkeeper.model.json_codec import fields_to_json, from_json_value
from viewkeeper.model.positions import BackfillProgress, Chunk, Cut, Positions, Stream, advance, covers
from viewkeeper.model.read_frontier import RetentionPolicy
from viewkeeper.model.work_stats import Size


@dataclass(frozen=True, slots=True)
class Checked:
    """A view was compared with its recomputation as of `epoch`, at `stamp`; `findings` records, or rows of DELTA, differed.

    `positions` are those of the epoch, `whole` the last epoch of which not only changed records were compared; a store of an
    earlier version knows neither.
    """

    epoch: int
    stamp: int
    findings: int
    positions: Positions = field(default_factory=dict)
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Repaired:
    """`epoch` wrote so many records of the view, and so many of auxiliary tables; `backfill` filled the twin."""

    backfill: int
    epoch: int
    stamp: int
    records: int
    auxiliary: int


DROPPED = b"dropped"


@dataclass(frozen=True, slots=True)
class AsideRequest:
    """The rows that `table` lists under `keys`, or all of them but those dropped: compute them again, or drop them."""

    id: int
    table: int
    ending: str  # "retry" or "drop"
    keys: tuple[bytes, ...] = ()


_CUT = ("stamp", "changes", "staged")  # beside the fields of an epoch in flight
READABLE_EPOCHS = 2  # K: one whole epoch of reading time is guaranteed (R4)


@dataclass(frozen=True, slots=True)
class Inflight:
    """An epoch begun: everything a run or a re-run of it needs."""

    epoch: int
    start: Positions
    stop: Cut
    plan: str  # the digest under which it is stored
    floor: int
    aborted: tuple[int, ...]
    chunks: tuple[Chunk, ...]  # rows that fill views in this epoch
    indexed: frozenset[int] = frozenset()  # tables for which the epoch indexes the records it writes
    repair: int = 0  # the backfill of the twins that the epoch compares views with, or the request for rows set aside
    anew: int = 0  # views start anew with this epoch: it finds no record of an earlier one
    takeovers: int = 0  # how many pipelines have found it in flight: those before them did not live to finish it

    def to_json(self) -> dict:
        value = fields_to_json(self)
        cut = value.pop("stop")
        return value | {"stop": cut.pop("positions")} | cut

    @staticmethod
    def from_json(value: dict) -> Inflight:
        cut = {"positions": value["stop"]} | {name: value[name] for name in _CUT if name in value}
        others = {name: part for name, part in value.items() if name not in _CUT}
        return from_json_value(Inflight, others | {"stop": cut})


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The state of the pipeline, the truth about all views."""

    version: int
    incarnation: str
    generation: int
    owner: str
    last: int
    committed: int
    positions: Positions  # committed with `committed`
    stamp: int  # the instant of the committed state
    checksums: dict[Stream, int]  # of the log entry at each committed position (R9)
    recent: tuple[int, ...]  # the newest committed epochs, newest first, at most K
    floor: int
    aborted: tuple[int, ...]
    filled: dict[int, int]  # backfill -> the epoch from which on its tables are readable
    filling: dict[int, BackfillProgress]  # backfill -> its progress
    rebuilt: Positions  # from here on DELTA holds the whole base; set only after a power loss
    stopped: dict[int, str]  # table of a node -> why it is no longer maintained
    pins: dict[str, tuple[int, int]]  # reader -> the epoch that it reads, and the stamp until which that is kept
    inflight: Inflight | None
    keeping: RetentionPolicy = field(default_factory=RetentionPolicy)
    checked: dict[int, Checked] = field(default_factory=dict)  # table of a view's own node -> its last check
    repaired: dict[int, Repaired] = field(default_factory=dict)  # the same -> its last repair
    aside: int = 0  # the last request for rows set aside that was done
    anew: int = 0  # the epoch with which views last started anew, because changes were lost
    taken: tuple[str, ...] = ()  # the chunks of foreign rows that `committed` took in
    sizes: dict[int, Size] | None = None  # table of a node -> its size as of `committed`; None: not counted yet

    @staticmethod
    def first(incarnation: str) -> EpochRecord:
        return EpochRecord(0, incarnation, 0, "", 0, 0, {}, 0, {}, (0,), 0, (), {}, {}, {}, {}, {}, None, sizes={})

    def size(self, table: int) -> Size:
        """How large a table is as of the committed epoch; the sizes are known."""
        return (self.sizes or {}).get(table, Size())

    def check_invariants(self) -> None:
        """Raise InvariantBroken where the record contradicts itself."""
        if self.inflight and self.inflight.epoch != self.last:
            raise InvariantBroken(f"epoch {self.inflight.epoch} is in flight but {self.last} is the last begun")
        if not self.floor <= self.committed <= self.last:
            epochs = f"floor {self.floor}, committed {self.committed} and last {self.last}"
            raise InvariantBroken(f"{epochs} are out of order")
        if self.committed in self.aborted or (self.recent and self.recent[0] != self.committed):
            raise InvariantBroken(f"epoch {self.committed} is committed, yet aborted or not the newest")


def take_over(record: EpochRecord, owner: str) -> EpochRecord:
    """The next generation, owned by the nonce `owner`; an epoch in flight stays as it is, and counts its owners."""
    inflight = record.inflight
    if inflight is not None and record.owner != owner:
        inflight = replace(inflight, takeovers=inflight.takeovers + 1)
    return _next(record, generation=record.generation + 1, owner=owner, inflight=inflight)


def begin(
    record: EpochRecord,
    owner: str,
    stop: Cut,
    plan: str,
    chunks: tuple[Chunk, ...] = (),
    views: frozenset[int] = frozenset(),
    repair: int = 0,
) -> EpochRecord:
    """Epoch last + 1 over (committed, stop]; `chunks` are the rows that fill views, `views` the tables they show.

    `repair`: see `Inflight`. The chunks that the epoch before took in are deleted by now.
    """
    _require_owner(record, owner)
    if record.inflight:
        raise InvariantBroken(f"epoch {record.inflight.epoch} is in flight and another was begun")
    epoch = record.last + 1
    pins = {name: pin for name, pin in record.pins.items() if pin[1] > stop.stamp}
    asked = record.keeping.floor(record.committed, stop.stamp, record.floor)
    floor = max(record.floor, min([record.recent[-1], asked, *(kept for kept, _ in pins.values())]))
    indexed = views if record.keeping else frozenset()
    inflight = Inflight(
        epoch, record.positions, stop, plan, floor, record.aborted, chunks, indexed, repair, record.anew
    )
    keeping = record.keeping.begun(epoch)
    return _next(record, last=epoch, floor=floor, pins=pins, taken=(), inflight=inflight, keeping=keeping)


def commit(
    record: EpochRecord,
    owner: str,
    epoch: int,
    checksums: dict[Stream, int],
    tables: frozenset[int],
    repaired: Mapping[int, Repaired] = MappingProxyType({}),
    aside: int = 0,
    late: frozenset[int] = frozenset(),
    sizes: dict[int, Size] | None = None,
) -> EpochRecord:
    """The epoch in flight becomes the committed one; `tables` are the nodes and backfills that still exist.

    `repaired`: the views that it corrected. `aside`: the request for rows set aside that it did. `late`: backfills that
    lack rows, even if they have all that their tables had. `sizes`: of all tables.
    """
    _require_owner(record, owner)
    inflight = record.inflight
    if inflight is None or inflight.epoch != epoch:
        raise Fenced(
            f"epoch {epoch} is no longer in flight", "it was finished or aborted before; run the pipeline again"
        )
    filled = {table: first for table, first in record.filled.items() if table in tables}
    filling = {table: fill for table, fill in record.filling.items() if table in tables}
    for chunk in inflight.chunks:
        for table in tables.intersection(chunk.tables):
            filling[table] = advance(filling.get(table), chunk)
    done = [table for table, fill in filling.items() if fill.is_done and table not in late]
    if covers(inflight.stop.positions, record.rebuilt):
        filled |= {table: epoch for table in done}
        filling = {table: fill for table, fill in filling.items() if table not in filled}
    return _next(
        record,
        committed=epoch,
        positions=inflight.stop.positions,
        stamp=inflight.stop.stamp,
        checksums=checksums,
        recent=(epoch, *record.recent)[:READABLE_EPOCHS],
        filled=filled,
        filling=filling,
        stopped={table: reason for table, reason in record.stopped.items() if table in tables},
        checked={table: one for table, one in record.checked.items() if table in tables},
        repaired={table: one for table, one in (record.repaired | dict(repaired)).items() if table in tables},
        aside=max(record.aside, aside),
        taken=inflight.stop.staged,
        sizes=sizes,
        inflight=None,
        keeping=record.keeping.committed(epoch, inflight.stop.stamp),
    )


def abort(record: EpochRecord, owner: str, stopped: Mapping[int, str] = MappingProxyType({})) -> EpochRecord:
    """Abort the epoch in flight: its number is never reused, and nobody sees what it wrote (R8).

    `stopped`: tables of nodes that made it fail, and why; views that need them are not readable, nor in the next plan.
    """
    _require_owner(record, owner)
    if record.inflight is None:
        raise InvariantBroken("no epoch is in flight, none can be aborted")
    aborted = (*record.aborted, record.inflight.epoch)
    return _next(record, aborted=aborted, stopped=record.stopped | dict(stopped), inflight=None)


def is_same_step(found: EpochRecord, tried: EpochRecord) -> bool:
    """Whether the owner's swap of `tried` was applied: `found` equals it, or differs in what readers write (R5)."""
    same = replace(found, version=tried.version, pins=tried.pins, checked=tried.checked)
    return found.version >= tried.version and same == tried


def pin(record: EpochRecord, name: str, epoch: int, until: int) -> EpochRecord:
    """Keep what a reader of `epoch` needs, until the instant `until` at most (R4)."""
    if epoch < record.floor:
        raise StaleRead(f"epoch {epoch} is not readable any more", "read a newer one")
    return _next(record, pins=record.pins | {name: (epoch, until)})


def keep(record: EpochRecord, epochs: int, seconds: float) -> EpochRecord:
    """Keep versions of at least so many epochs, and of so many seconds, from the next epoch on."""
    return _next(record, keeping=replace(record.keeping, epochs=epochs, seconds=seconds))


def check(record: EpochRecord, checked: Mapping[int, Checked]) -> EpochRecord:
    return _next(record, checked=record.checked | dict(checked))


def count(record: EpochRecord, owner: str, sizes: dict[int, Size]) -> EpochRecord:
    """Keep the sizes of all tables as of the committed epoch, which an earlier release did not count."""
    _require_owner(record, owner)
    return _next(record, sizes=sizes)


def unpin(record: EpochRecord, name: str) -> EpochRecord:
    return _next(record, pins={other: held for other, held in record.pins.items() if other != name})


def forget_views(record: EpochRecord, rebuilt: Positions) -> EpochRecord:
    """All view records are lost: every view is filled again, and the epoch in flight has nothing to finish.

    Readable again once `rebuilt` is committed: where views are filled from DELTA, the log holds the base up to there.
    """
    return _next(record, filled={}, filling={}, rebuilt=rebuilt, inflight=None, sizes={})


def rebuild_from(record: EpochRecord, start: Cut, checksums: dict[Stream, int], rebuilt: Positions) -> EpochRecord:
    """The log lacks changes that no epoch has applied: the epoch in flight is aborted, and every view is filled again.

    Epochs go on from `start`, without any earlier record; no pipeline owns the store. `rebuilt`: see `forget_views`.
    """
    aborted = record.aborted if record.inflight is None else (*record.aborted, record.inflight.epoch)
    return _next(
        forget_views(record, rebuilt),
        generation=record.generation + 1,
        owner="",
        positions=start.positions,
        stamp=start.stamp,
        checksums=checksums,
        aborted=aborted,
        anew=record.last + 1,
    )


def begin_incarnation(record: EpochRecord, incarnation: str) -> EpochRecord:
    """The record of a restored store: without an owner; older tokens do not fit, and epoch numbers continue (R19)."""
    return _next(record, incarnation=incarnation, owner="")


def _require_owner(record: EpochRecord, owner: str) -> None:
    if record.owner != owner:
        raise Fenced("another pipeline took this store over", "stop this one")


def _next(record: EpochRecord, **changes: Any) -> EpochRecord:
    changed = replace(record, version=record.version + 1, **changes)
    changed.check_invariants()
    return changed


def record_to_json(record: EpochRecord) -> dict:
    return fields_to_json(record)


def record_from_json(value: dict) -> EpochRecord:
    return from_json_value(EpochRecord, value)
