"""Dashboards' views: many of them over one table or one join, in few groupings.

In: how many, and a seed. Out: the SQL of each view. Always: ten groupings × ten predicates × three sets of aggregates, in an
order drawn by seed, of which the first are taken; a text means the same to Spark and to DuckDB.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """What the views read, and what they are made of."""

    text: str
    groupings: Sequence[str]
    predicates: Sequence[str]
    aggregates: Sequence[str]


TABLE = Source(
    "r",
    (
        *("x", "x % 1000", "x % 100", "x % 10", "y", "y % 100", "y % 10", "y % 2"),
        *("x % 10, y % 10", "x % 100, y % 10"),
    ),
    (
        *("", "y > 500", "y <= 100", "x % 2 = 0", "x < 5000", "y % 3 = 1"),
        *("x % 10 = 3", "y BETWEEN 200 AND 700", "x > 9000", "x % 7 = y % 7"),
    ),
    ("COUNT(*) AS n, SUM(y) AS s", "AVG(x) AS a, COUNT(y) AS c", "MIN(y) AS lo, MAX(y) AS hi"),
)
JOIN = Source(
    "r JOIN s ON r.x = s.x",
    (
        *("r.x", "r.x % 100", "r.y", "r.y % 10", "s.name", "s.z", "s.z % 100", "s.z % 10"),
        *("r.x % 10, s.z % 10", "r.y % 10, s.z % 10"),
    ),
    (
        *("", "r.y > 500", "s.z > 500", "s.z <= 100", "r.x % 2 = 0", "r.y % 3 = 1", "s.z % 7 = 3"),
        *("r.y BETWEEN 200 AND 700", "r.y > 500 AND s.z > 500", "r.y < s.z"),
    ),
    ("COUNT(*) AS n, SUM(r.y) AS t", "AVG(s.z) AS a, COUNT(r.y) AS c", "MIN(r.y) AS lo, MAX(s.z) AS hi"),
)
SOURCES = {"table": TABLE, "join": JOIN}

_EXTREMES = (("x", "MIN(y) AS lo"), ("x", "MAX(y) AS hi"), ("x % 1000", "MIN(y) AS lo"))


def dashboards(source: Source, count: int, seed: int) -> list[str]:
    """The texts of `count` views."""
    combined = list(itertools.product(source.groupings, source.predicates, source.aggregates))
    random.Random(seed).shuffle(combined)
    return [_text(source, *parts) for parts in combined[:count]]


def twenty_with_extremes() -> list[str]:
    """Seventeen views with COUNT and SUM, in all groupings and with some predicates, and three with MIN or MAX."""
    sums = list(itertools.product(TABLE.predicates[:2], TABLE.groupings))[: 20 - len(_EXTREMES)]
    texts = [_text(TABLE, groups, predicate, TABLE.aggregates[0]) for predicate, groups in sums]
    return texts + [_text(TABLE, groups, "", extreme) for groups, extreme in _EXTREMES]


def _text(source: Source, groups: str, predicate: str, aggregates: str) -> str:
    named = ", ".join(f"{part} AS g{place}" for place, part in enumerate(groups.split(", ")))
    where = f" WHERE {predicate}" if predicate else ""
    return f"SELECT {named}, {aggregates} FROM {source.text}{where} GROUP BY {groups}"
