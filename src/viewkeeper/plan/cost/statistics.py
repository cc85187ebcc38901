"""Statistics: the known numbers of tables, and defaults for the others.

In: numbers of rows and records, and measurements of epochs. Out: rates of changes, selectivities, bytes of records. Always:
pure; a number that is not known is a documented default, that of System R where it has one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from viewkeeper.algebra.expressions import Call, Expression, Literal, operands
from viewkeeper.model.schema import Column
from viewkeeper.model.work_stats import Kinds, WorkStats

CHANGES_PER_EPOCH = 1_000
ROWS = 10_000  # of a base table that nothing is known of
DISTINCT_SHARE = 0.1  # distinct values of a group or of a join key, for each row
HAVING_SHARE = 1 / 3
TEXT_BYTES = 16.0
_BYTES_NOT_ZERO = {"BOOLEAN": 1.0, "BIGINT": 2.0, "INT128": 3.0, "DOUBLE": 7.0}
_EQUAL, _RANGE, _OTHER = 1 / 10, 1 / 3, 1 / 3
_IN_MAX = 1 / 2
_COUNTLESS = 1e12  # groups, where every row is one


@dataclass(frozen=True, slots=True)
class Statistics:
    """`rows` are those of base tables, `records` those of tables of filled nodes, both by table. `text_bytes`: the average
    length of the texts of a base table; `record_bytes`: that of a key of a node's table with its row.
    """

    rows: Mapping[int, float] = field(default_factory=dict)
    records: Mapping[int, float] = field(default_factory=dict)
    text_bytes: Mapping[int, float] = field(default_factory=dict)
    record_bytes: Mapping[int, float] = field(default_factory=dict)
    measured: WorkStats = field(default_factory=WorkStats)

    @property
    def changes_per_epoch(self) -> float:
        changes = sum(one.total for one in self.measured.counts.changes.values())
        return max(1.0, changes / self.measured.epochs) if changes else CHANGES_PER_EPOCH

    def rates(self, bases: Sequence[int]) -> dict[int, Kinds]:
        """The changes of each base table in an epoch: as measured (at least one), else equally many updates of each."""
        seen = self.measured.counts.changes
        shares = {base: float(seen[base].total) if base in seen else 1.0 for base in bases}
        whole = sum(shares.values()) or 1.0
        kinds = {base: seen[base].times(1 / seen[base].total) for base in bases if base in seen and seen[base].total}
        changes = {base: self.changes_per_epoch * shares[base] / whole for base in bases}
        return {base: kinds.get(base, Kinds(updates=1.0)).times(changes[base]) for base in bases}


def selectivity(condition: Expression) -> float:
    """The share of rows for which a condition is true, from its form alone."""
    match condition:
        case Literal(value=value):
            return 1.0 if value is True else 0.0
        case Call(name="and"):
            return math.prod(map(selectivity, operands(condition, "and")))
        case Call(name="or"):
            return 1.0 - math.prod(1.0 - selectivity(part) for part in operands(condition, "or"))
        case Call(name="not", args=(arg,)):
            return 1.0 - selectivity(arg)
        case Call(name="in", args=args):
            return min(_IN_MAX, _EQUAL * (len(args) - 1))
        case Call(name="=" | "<=>" | "is null" | "like"):
            return _EQUAL
        case Call(name="<>"):
            return 1.0 - _EQUAL
        case Call(name="<" | "<=" | ">" | ">="):
            return _RANGE
    return _OTHER


def distinct(picks: float, among: float) -> float:
    """How many of `among` equally likely things are expected to be picked at least once (Cardenas)."""
    if among <= 1.0:
        return min(picks, max(among, 0.0))
    return min(picks, among * -math.expm1(picks * math.log1p(-1.0 / among)))


def among_which(picks: float, found: float) -> float:
    """Of how many equally likely things `found` are met in so many picks: `distinct`, the other way round."""
    low, high = found, _COUNTLESS
    if distinct(picks, low) >= found * (1 - 1e-9):
        return low
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if distinct(picks, middle) < found else (low, middle)
    return low


def alone_share(rows: float, groups: float) -> float:
    """How likely a row is the only one of its group, where rows fall into groups at random.

    Groups then have a Poisson number of rows, of which those without any are not seen: rows / groups = x / (1 - e^-x).
    """
    size = rows / groups if groups > 0 else 1.0
    low, high = 0.0, max(size, 1e-9)
    for _ in range(40):
        x = (low + high) / 2
        low, high = (x, high) if x / -math.expm1(-x) < size else (low, x)
    return math.exp(-low)


@dataclass(frozen=True, slots=True)
class Netted:
    """Of counters that rows come to and go from: how many are met, and how many of these have another count then."""

    met: float
    changed: float


def net_changes(kinds: Kinds, counters: float) -> Netted:
    """What comes to a counter and goes from it in one epoch may cancel out (Skellam's distribution)."""
    met = distinct(kinds.inserts + kinds.deletes, counters)
    come, gone = (count / counters if counters else 0.0 for count in (kinds.inserts, kinds.deletes))
    term, bessel, quarter = 1.0, 1.0, come * gone
    for k in range(1, 40):
        term *= quarter / (k * k)
        bessel += term
    return Netted(met, max(0.0, met - counters * math.exp(-come - gone) * (bessel - 1.0)))


def key_bytes(key: Sequence[Column], text_bytes: float) -> float:
    """The bytes of a key: a tag for each part, and two that end a text."""
    return sum(1 + (text_bytes + 2 if one.type.width is None else one.type.width) for one in key)


def row_bytes(row: Sequence[Column], text_bytes: float) -> float:
    """The bytes of a row: how many columns, which are NULL, values, and where each text ends."""
    values = (4 + text_bytes if one.type.width is None else one.type.width for one in row)
    return 2 + (len(row) + 7) // 8 + sum(values)


def compact_bytes(row: Sequence[Column]) -> float:
    """The bytes of a row without its zeros: a bit for each byte, and of most numbers few bytes."""
    width = row_bytes(row, 0.0)
    return 2 + width / 8 + sum(_BYTES_NOT_ZERO.get(one.type.kind, 4.0) for one in row)
