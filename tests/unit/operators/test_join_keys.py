"""Join keys of every type: what SQL calls equal matches, NaN and −0.0, other precisions and very long keys too."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import ManagersRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator

LONG = "x" * 600
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
# type on the left, on the right; pairs of values that are equal; a value of each side that equals nothing on the other
KINDS: dict[str, tuple[str, str, list[tuple[object, object]], object, object]] = {
    "double": ("DOUBLE", "DOUBLE", [(math.nan, -math.nan), (-0.0, 0.0), (math.inf, math.inf)], 5e-324, -5e-324),
    "int and bigint": ("INT", "BIGINT", [(1, 1), (-(2**31), -(2**31))], 7, 2**40),
    "int and double": ("INT", "DOUBLE", [(1, 1.0), (0, -0.0)], 7, 7.5),
    "decimals": ("DECIMAL(9,2)", "DECIMAL(12,4)", [(Decimal("1.50"), Decimal("1.5")), (Decimal(0), Decimal(0))],
                 Decimal(2), Decimal("2.0001")),
    "long texts": ("STRING", "STRING", [(LONG + "1", LONG + "1"), (LONG, LONG), ("", "")], LONG + "a", LONG + "b"),
    "texts with NUL": ("STRING", "STRING", [("\x00", "\x00"), ("a\x00", "a\x00"), ("é", "é")], "a", "A"),
    "bytes": ("BINARY", "BINARY", [(b"", b""), (b"\x00", b"\x00"), (b"\xff" * 700, b"\xff" * 700)], b"a", b"a\x00"),
    "dates": ("DATE", "DATE", [(date(1, 1, 1), date(1, 1, 1)), (date(1970, 1, 1), date(1970, 1, 1))],
              date(2024, 1, 1), date(2024, 1, 2)),
    "instants": ("TIMESTAMP", "TIMESTAMP", [(NOON, NOON)], NOON.replace(microsecond=1), NOON.replace(microsecond=2)),
    "booleans": ("BOOLEAN", "BOOLEAN", [(True, True)], False, None),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_equal_matches_and_nothing_else_does(tmp_path: Path, kind: str) -> None:
    left, right, pairs, left_alone, right_alone = KINDS[kind]
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute(f"CREATE TABLE l (k INT PRIMARY KEY, j {left}); CREATE TABLE r (k INT PRIMARY KEY, j {right})")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT l.k, r.k AS o FROM l FULL JOIN r ON l.j = r.j")
    db.execute(
        "CREATE MATERIALIZED VIEW w AS SELECT k FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.j = l.j AND r.k >= l.k)"
    )
    for number, (one, other) in enumerate(pairs):
        db.table("l").put(number, {"j": one})
        db.table("r").put(number, {"j": other})
    db.table("l").put(10, {"j": left_alone})
    db.table("l").put(11, {"j": None})
    db.table("r").put(12, {"j": right_alone})
    db.table("r").put(13, {"j": None})
    Coordinator(db.store, ManagersRunner(db.store, 3)).catch_up()

    def shown(name: str) -> set[tuple]:
        return {tuple(row.values()) for row in db.view(name).scan()}

    alone = {(10, None), (11, None), (None, 12), (None, 13)}
    assert shown("v") == {(number, number) for number in range(len(pairs))} | alone
    assert shown("w") == {(10,), (11,)}
    db.table("r").delete(0)
    db.table("l").put(10, {"j": pairs[-1][0]})
    keep_up(db)
    last = len(pairs) - 1
    matched = {(number, number) for number in range(1, len(pairs))}
    expected = matched | ({(10, last)} if last else {(10, None)}) | {(0, None), (11, None), (None, 12), (None, 13)}

    assert shown("v") == expected
    assert shown("w") == {(0,), (10,), (11,)}


def test_a_key_of_several_parts_matches_part_by_part(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute(
        "CREATE TABLE l (k INT PRIMARY KEY, a STRING, b STRING); CREATE TABLE r (k INT PRIMARY KEY, a STRING, b STRING)"
    )
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT l.k, r.k AS o FROM l LEFT JOIN r ON l.a = r.a AND l.b = r.b")
    parts = [
        ("ab", "c"),
        ("a", "bc"),
        ("a\x00", "b"),
        ("a", "\x00b"),
        ("", "abc"),
        ("abc", ""),
        ("a", None),
        (None, "a"),
    ]
    for number, (one, other) in enumerate(parts):
        for table in "lr":
            db.table(table).put(number, {"a": one, "b": other})
    keep_up(db)

    assert [tuple(row.values()) for row in db.view("v").scan()] == [
        *((number, number) for number in range(6)), (6, None), (7, None),
    ]  # fmt: skip
