"""Comparing: recomputed records against stored ones.

In: directories of Parquet files. Out: findings. Always: NULL equals NULL, NaN equals NaN, −0.0 equals 0.0, a DOUBLE that
is computed from sums agrees within its bound, and all else is equal bit for bit. Rows without a key are compared as a bag:
equal ones are numbered. What does not fit a bounded memory is kept in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import duckdb

from viewkeeper.check.report import Finding
from viewkeeper.codegen.confined import confine

FINDINGS_MAX = 10_000
_MEMORY = "1GB"
_NEAR = "1e-9"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is compared: the values `c0`, `c1`, … of both sides, under their names; `doubles` are those that are DOUBLE.

    `expected_key` and `found_key` are the indexes of the key on each side, where it is unique; None: rows are a bag.
    `bounds` maps the index of a value to the column of the expected side that holds its tolerance. `is_near`: any
    DOUBLE may be off by a billionth.
    """

    view: str
    values: Sequence[str]
    doubles: frozenset[int]
    expected_key: tuple[int, ...] | None
    found_key: tuple[int, ...]
    bounds: dict[int, int]
    is_near: bool

    @property
    def exact(self) -> list[int]:
        return [index for index in range(len(self.values)) if index not in self.doubles]

    @property
    def keys(self) -> list[str]:
        width = len(self.exact) + 1 if self.expected_key is None else len(self.expected_key)
        return [f"k{part}" for part in range(width)]


def compare(
    shape: Shape, expected: Path, found: Path, scratch: Path, touched: Path | None = None
) -> tuple[int, list[Finding]]:
    """How many records are expected, and what differs. `scratch` is a directory for files.

    `touched`: keys `k0`, `k1`, …; records under other keys are not compared.
    """
    joined = " AND ".join(f"e.{key} IS NOT DISTINCT FROM f.{key}" for key in shape.keys) or "true"
    differs = " OR ".join(_differs(shape, index) for index in range(len(shape.values))) or "false"
    known = [f"CASE WHEN e.there THEN e.{key} ELSE f.{key} END AS {key}" for key in shape.keys]
    shown = [f"{side}.c{index} AS {side}{index}" for side in "ef" for index in range(len(shape.values))]
    found_side = "found"
    if touched is not None:
        same = [f"c{index} IS NOT DISTINCT FROM k{part}" for part, index in enumerate(shape.found_key)]
        found_side = f"(SELECT found.* FROM found SEMI JOIN touched ON {' AND '.join(same) or 'true'})"
    sql = f"""SELECT {", ".join([*known, "e.there AS e", "f.there AS f", *shown])}
              FROM ({_keyed(shape, "expected", shape.expected_key)}) e
              FULL OUTER JOIN ({_keyed(shape, found_side, shape.found_key)}) f
                ON {joined}
              WHERE e.there IS NULL OR f.there IS NULL OR {differs}
              ORDER BY {", ".join([*shape.keys, "e.there"])} LIMIT {FINDINGS_MAX}"""
    with duckdb.connect(config={"memory_limit": _MEMORY}) as connection:
        folders = {"expected": expected, "found": found} | ({} if touched is None else {"touched": touched})
        sides = {name: sorted(folder.glob("*.parquet")) for name, folder in folders.items()}
        confine(connection, files=chain(*sides.values()), folder=scratch)
        for name, files in sides.items():
            connection.read_parquet([str(file) for file in files]).create_view(name)
        counted = connection.sql("SELECT count(*) FROM expected").fetchall()[0][0]
        rows = connection.sql(sql).to_arrow_table().to_pylist()
    return counted, [_finding(shape, row) for row in rows]


def _keyed(shape: Shape, side: str, key: tuple[int, ...] | None) -> str:
    """A side with its key; the key of a bag is every value that is no DOUBLE, and a number in the order of the rest."""
    if shape.expected_key is not None and key is not None:
        keys = [f"c{index} AS k{part}" for part, index in enumerate(key)]
    else:
        by = ", ".join(f"c{index}" for index in shape.exact) or "true"
        others = ", ".join(f"c{index}" for index in sorted(shape.doubles))
        order = f" ORDER BY {others}" if others else ""
        number = f"row_number() OVER (PARTITION BY {by}{order}) AS k{len(shape.exact)}"
        keys = [*(f"c{index} AS k{part}" for part, index in enumerate(shape.exact)), number]
    return f"SELECT {', '.join([*keys, '*'])}, true AS there FROM {side}"


def _differs(shape: Shape, index: int) -> str:
    expected, found, bound = f"e.c{index}", f"f.c{index}", f"e.c{shape.bounds.get(index)}"
    differs = f"{expected} IS DISTINCT FROM {found}"
    allowed = [bound] if index in shape.bounds else []
    allowed += [f"abs({expected}) * {_NEAR} + 1e-300"] if shape.is_near else []
    if index not in shape.doubles or not allowed:
        return differs
    near = f"isfinite({expected}) AND abs({expected} - {found}) <= {' + '.join(allowed)}"
    if index in shape.bounds:  # unbounded where the sum of magnitudes itself has left the range of DOUBLE
        near = f"({near}) OR ({found} IS NOT NULL AND {expected} IS NOT NULL AND NOT isfinite({bound}))"
    return f"({differs} AND NOT coalesce({near}, FALSE))"


def _finding(shape: Shape, row: dict[str, object]) -> Finding:
    names = list(enumerate(shape.values))
    expected, found = ({name: row[f"{side}{i}"] for i, name in names} if row[side] else None for side in "ef")
    kind = "missing" if found is None else "extra" if expected is None else "wrong"
    return Finding(shape.view, tuple(row[key] for key in shape.keys), kind, expected, found)
