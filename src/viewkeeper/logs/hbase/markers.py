"""Markers: what HBase logs of itself among the cells of a table: flushes, openings and closings of regions, bulk loads.

In: the qualifier and value of a cell of the family METAFAMILY. Out: a `Marker`. Always: every marker is reported, of a known
kind or not; the rows of a bulk load are not in the log, so whoever reads it must know of one. Files are named as in HBase.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from viewkeeper.logs.hbase.protobuf import numbers_in, read_number, strings_in
from viewkeeper.model.positions import Position

MARKER_FAMILY = b"METAFAMILY"
BULK_LOAD, COMPACTION, FLUSHED = "BULK_LOAD", "COMPACTION", "COMMIT_FLUSH"
OPENED, CLOSED = "REGION_OPEN", "REGION_CLOSE"

_PREFIX = "HBASE::"
_STEP = 1  # the field of FlushDescriptor and RegionEventDescriptor that tells which step it is
_STEPS = {
    "FLUSH": ("START_FLUSH", FLUSHED, "ABORT_FLUSH", "CANNOT_FLUSH"),
    "REGION_EVENT": (OPENED, CLOSED),
}
_NAME = {"FLUSH": 6, "REGION_EVENT": 7, COMPACTION: 7}  # the field with the region's full name
_STORES = {"FLUSH": 5, "REGION_EVENT": 5, BULK_LOAD: 3}  # that with a family's files, which are its third
_STORE_FILES = 3
_COMPACTED, _MADE = 4, 5  # fields of a CompactionDescriptor


@dataclass(frozen=True, slots=True)
class Marker:
    """`kind`: START_FLUSH, COMMIT_FLUSH, REGION_OPEN, REGION_CLOSE, COMPACTION, BULK_LOAD or another that HBase names.

    `name`: the region's full one, of which every character is a byte. `files`: all that an opened region has, or those that
    it got; `gone`: those that it no longer needs.
    """

    position: Position
    region: str
    table: str
    sequence: int
    kind: str
    written_ms: int = 0
    name: str = ""
    files: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        return list(astuple(self))


def marker_from_json(told: list[Any]) -> Marker:
    position, region, table, sequence, kind, written_ms, name, files, gone = told
    return Marker(Position(position), region, table, sequence, kind, written_ms, name, tuple(files), tuple(gone))


def marker_of(
    qualifier: bytes, value: bytes, *, position: Position, region: str, table: str, sequence: int, written_ms: int
) -> Marker:
    """The marker of a cell."""
    what = qualifier.decode(errors="replace").removeprefix(_PREFIX).split("::")[0]
    steps = _STEPS.get(what, ())
    fields = dict(numbers_in(value, 0, len(value))) if steps else {}
    step = read_number(value, fields[_STEP])[0] if _STEP in fields else len(steps)
    kind = steps[step] if step < len(steps) else what
    texts = list(strings_in(value, 0, len(value))) if what in _NAME or what in _STORES else []
    stores = [text for field, text in texts if field == _STORES.get(what)]
    files = [text for store in stores for field, text in strings_in(store, 0, len(store)) if field == _STORE_FILES]
    gone = [text for field, text in texts if what == COMPACTION and field == _COMPACTED]
    files += [text for field, text in texts if what == COMPACTION and field == _MADE]
    name = next((text for field, text in texts if field == _NAME.get(what)), b"").decode("latin-1")
    return Marker(position, region, table, sequence, kind, written_ms, name, _named(files), _named(gone))


def _named(files: list[bytes]) -> tuple[str, ...]:
    return tuple(file.decode(errors="replace") for file in files)
