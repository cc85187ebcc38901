"""Variances, deviations and aggregates of distinct values are what Python's fractions give, bit for bit.

Rows come, change and go, down to one row and to none; the numbers are as large, small and far apart as their types allow.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.running import HereRunner, ManagersRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator

VALUES: dict[str, tuple[str, tuple[object, ...]]] = {
    "i": ("INT", (0, 1, -(2**31), 2**31 - 1)),
    "y": ("BIGINT", (5, 2**63 - 1, 2**63 - 2, -(2**63))),
    "d": ("DECIMAL(12,2)", (Decimal("9999999999.99"), Decimal("0.01"), Decimal("-3.30"))),
    "v": ("DECIMAL(27,0)", (Decimal(10) ** 27 - 1, Decimal(7), -(Decimal(10) ** 26))),
    "w": ("DECIMAL(38,6)", tuple(map(Decimal, (f"{10**31}.000001", f"-{10**31}.000002", "0.000001")))),
    "f": ("DOUBLE", (0.1, -0.0, 0.0, 1e300, -1e-300, 5e-324, 1e150, 1e150 + 1e135)),
    "z": ("DOUBLE", (1.5, 2.5, math.inf, -math.inf, math.nan)),
}
Numbers = list


def variance(values: Numbers, freedom: int) -> float | None:
    if len(values) <= freedom:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    try:
        return float(sum((value - mean) ** 2 for value in exact) / (len(exact) - freedom))
    except OverflowError:
        return math.inf


def deviation(values: Numbers, freedom: int) -> float | None:
    found = variance(values, freedom)
    return None if found is None else math.sqrt(found)


def distinct(values: Numbers) -> Numbers:
    """Each value once; 0.0 and -0.0 are one, and so are all NaNs."""
    return list({("nan" if value != value else value): value for value in values}.values())


def total(values: Numbers) -> float | int | Decimal | None:
    if not values or not isinstance(values[0], float):
        return (
            None
            if not values
            else type(values[0])(sum(map(Fraction, values)))
            if isinstance(values[0], int)
            else sum(values)
        )
    special = {str(value) for value in values if not math.isfinite(value)}
    if special:
        return float(special.pop()) if len(special) == 1 else math.nan
    return float(sum(map(Fraction, values)))


FUNCTIONS: dict[str, Callable[[Numbers], object]] = {
    "STDDEV({})": lambda values: deviation(values, 1),
    "STDDEV_SAMP(DISTINCT {})": lambda values: deviation(distinct(values), 1),
    "STDDEV_POP({})": lambda values: deviation(values, 0),
    "VARIANCE({})": lambda values: variance(values, 1),
    "VAR_SAMP(DISTINCT {})": lambda values: variance(distinct(values), 1),
    "VAR_POP({})": lambda values: variance(values, 0),
}
OF_DISTINCT: dict[str, Callable[[Numbers], object]] = {
    "SUM(DISTINCT {})": lambda values: total(distinct(values)),
    "AVG(DISTINCT {})": lambda values: float(total(distinct(values))) / len(distinct(values)) if values else None,
}
FORMS = [(name, text, value) for name in VALUES for text, value in FUNCTIONS.items()]
FORMS += [(name, text, value) for name in "ifz" for text, value in OF_DISTINCT.items()]
LISTED = ", ".join(f"{text.format(name)} AS o{place}" for place, (name, text, _) in enumerate(FORMS))
SOME = ", ".join(
    f"{text.format(name)} FILTER (WHERE k % 2 = 0) AS o{place}" for place, (name, text, _) in enumerate(FORMS)
)
VIEWS = {
    "by_group": f"SELECT g, {LISTED} FROM t GROUP BY g",
    "filtered": f"SELECT g, {SOME} FROM t GROUP BY g",
    "whole": f"SELECT {LISTED} FROM t",
    "having": "SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING STDDEV_POP(i) > 1",
    "joined": f"SELECT u.g, {LISTED} FROM t JOIN u ON t.g = u.g GROUP BY u.g",
    "over": "SELECT g, o0 + 1 AS more FROM by_group WHERE o0 IS NOT NULL",
    "of_view": "SELECT VAR_POP(o0) AS v, SUM(DISTINCT o3) AS s FROM by_group",
}


def make(path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off")
    columns = ", ".join(f"{name} {type_}" for name, (type_, _) in VALUES.items())
    db.execute(f"CREATE TABLE t (k INT PRIMARY KEY, g INT, {columns}); CREATE TABLE u (g INT PRIMARY KEY)")
    for name, query in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    db.table("u").put_many([{"g": g} for g in range(3)])
    return db


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with make(tmp_path / "s") as db:
        yield db


def random_rows(seed: int, count: int) -> list[dict[str, object]]:
    source = random.Random(seed)
    return [
        {"k": k, "g": k % 4} | {name: source.choice((None, *values)) for name, (_, values) in VALUES.items()}
        for k in range(count)
    ]


def values_of(rows: Sequence[dict]) -> tuple[object, ...]:
    return tuple(value([row[name] for row in rows if row[name] is not None]) for name, _, value in FORMS)


def expected(rows: Sequence[dict]) -> dict[str, list[tuple]]:
    groups: dict[int, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["g"], []).append(row)
    by_group = {g: values_of(members) for g, members in groups.items()}
    deviations = [values[0] for values in by_group.values() if values[0] is not None]
    spread = {g: deviation([row["i"] for row in members if row["i"] is not None], 0) for g, members in groups.items()}
    return {
        "by_group": [(g, *values) for g, values in by_group.items()],
        "filtered": [(g, *values_of([row for row in some if row["k"] % 2 == 0])) for g, some in groups.items()],
        "whole": [values_of(rows)],
        "having": [(g, len(members)) for g, members in groups.items() if (spread[g] or 0) > 1],
        "joined": [(g, *values) for g, values in by_group.items() if g < 3],
        "over": [(g, values[0] + 1) for g, values in by_group.items() if values[0] is not None],
        "of_view": [
            (
                variance(deviations, 0),
                total(distinct([values[3] for values in by_group.values() if values[3] is not None])),
            )
        ],
    }


def in_order(rows: list[tuple]) -> list[str]:
    """Rows as texts: NaN is not itself, -0.0 is 0.0."""
    return sorted(repr([0.0 if value == 0 else value for value in row]) for row in rows)


def wrong(db: vk.Database) -> list[tuple[str, object, object]]:
    found = []
    for name, rows in expected(list(db.table("t").scan())).items():
        held = [tuple(row.values()) for row in db.view(name).scan()]
        asked = list(db.execute(VIEWS[name]))
        for got in (held, asked):
            if in_order(got) != in_order(rows):
                found.append((name, in_order(got), in_order(rows)))
    return found


def test_they_are_exact_while_rows_come_change_and_go_to_none(db: vk.Database) -> None:
    table, source = db.table("t"), random.Random(2)
    table.put_many(random_rows(1, 150))
    keep_up(db)
    assert wrong(db) == []

    for k, row in zip(source.sample(range(150), 12), random_rows(3, 12), strict=True):
        table.put_many([row | {"k": k}])
    keep_up(db)
    assert wrong(db) == []

    for k in range(4, 150):
        table.delete(k)
    keep_up(db)
    assert {len(list(db.view("by_group").scan())), db.table("t").get(3)["g"]} == {4, 3}
    assert wrong(db) == []

    for k in range(4):
        table.delete(k)
    keep_up(db)
    assert list(db.view("by_group").scan()) == []
    assert wrong(db) == []


def test_the_order_of_rows_and_who_applies_them_change_no_byte(tmp_path: Path) -> None:
    rows, dumps = random_rows(7, 120), []
    for number, managers in enumerate((1, 3)):
        with make(tmp_path / f"s{number}") as db:
            keep_up(db)
            random.Random(number).shuffle(rows)
            db.table("t").put_many(rows)
            runner = ManagersRunner(db.store, managers, seed=number) if managers > 1 else HereRunner(db.store)
            Coordinator(db.store, runner).catch_up()
            dumps.append(dump(db.store))

    assert dumps[0] == dumps[1]
