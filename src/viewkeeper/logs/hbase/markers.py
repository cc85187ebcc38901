"""Markers: what HBase logs of itself among the cells of a table: flushes, openings and closings of regions, bulk loads.

In: the qualifier and value of a cell of the family METAFAMILY. Out: a `Marker`. Always: every marker is reported, of a known
kind or not; the rows of a bulk load are not in the log, so whoever reads it must know of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.logs.hbase.protobuf import numbers_in, read_number
from viewkeeper.model.positions import Position

MARKER_FAMILY = b"METAFAMILY"
BULK_LOAD = "BULK_LOAD"

_PREFIX = "HBASE::"
_STEP = 1  # the field of FlushDescriptor and RegionEventDescriptor that tells which step it is
_STEPS = {
    "FLUSH": ("START_FLUSH", "COMMIT_FLUSH", "ABORT_FLUSH", "CANNOT_FLUSH"),
    "REGION_EVENT": ("REGION_OPEN", "REGION_CLOSE"),
}


@dataclass(frozen=True, slots=True)
class Marker:
    """`kind`: START_FLUSH, COMMIT_FLUSH, REGION_OPEN, REGION_CLOSE, COMPACTION, BULK_LOAD or another that HBase names."""

    position: Position
    region: str
    table: str
    sequence: int
    kind: str


def kind_of(qualifier: bytes, value: bytes) -> str:
    """The kind of a marker, from its cell."""
    name = qualifier.decode(errors="replace").removeprefix(_PREFIX).split("::")[0]
    steps = _STEPS.get(name, ())
    fields = dict(numbers_in(value, 0, len(value))) if steps else {}
    step = read_number(value, fields[_STEP])[0] if _STEP in fields else len(steps)
    return steps[step] if step < len(steps) else name
