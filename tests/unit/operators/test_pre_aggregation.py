"""PRE-AGGREGATIONs: blocks are divided, go and are found again, and say what the rows say, whatever their sizes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.plans import nodes_of
from tests.support.running import HereRunner, Interrupted, RunThenDie, keep_up
from tests.support.tiers import examples
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.entryblocks import decode_blocks
from viewkeeper.model.keys import encode_key
from viewkeeper.operators import pre_aggregation
from viewkeeper.plan.nodes import AggregateNode
from viewkeeper.stores.version_chains import version_at

VIEWS = """
CREATE TABLE t (k INT PRIMARY KEY, g STRING, x STRING);
CREATE MATERIALIZED VIEW ends AS SELECT g, MIN(x) AS lo, MAX(x) AS hi, COUNT(DISTINCT x) AS n FROM t GROUP BY g;
CREATE MATERIALIZED VIEW slots AS SELECT g, MIN(x) AS lo, MAX(x) FILTER (WHERE k % 2 = 0) AS even_hi,
    MIN(x) FILTER (WHERE k % 50 = 0) AS rare_lo, MAX(x) FILTER (WHERE k % 50 = 0) AS rare_hi,
    COUNT(DISTINCT x) FILTER (WHERE k % 3 = 0) AS n FROM t GROUP BY g
"""


@pytest.fixture(params=[20, 100, 800], ids=lambda size: f"blocks of {size}")
def db(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    monkeypatch.setattr(pre_aggregation, "BLOCK_BYTES_MAX", request.param)
    monkeypatch.setattr(pre_aggregation, "BLOCK_BYTES", request.param * 5 // 8)
    monkeypatch.setattr(pre_aggregation, "_GROUPS_AT_ONCE", 2 if request.param == 20 else 1 << 16)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute(VIEWS)
        yield db


def blocks_of(db: vk.Database) -> dict[str, list[tuple[bytes, list[bytes], list[tuple[bytes, int]]]]]:
    """By group: what follows the group in the key of each of its blocks, its bounds, and its entries; in key order."""
    (node,) = nodes_of(db.catalog(), "ends")
    assert isinstance(node, AggregateNode)
    found: dict[str, list] = {}
    for table, key, chain in dump(db.store):
        row = version_at(chain, db.epoch, ())
        if table == node.entries[0].table and row is not None:
            blocks = decode_blocks(pa.array([row], pa.binary()), 1)
            (group,) = (one for one in "abcdé" if key.startswith(encode_key(node.key, [one])))
            values = blocks.values.strings.to_arrow().to_pylist()
            entries = list(zip(values, blocks.counts.tolist(), strict=True))
            bounds = blocks.bounds.strings.to_arrow().to_pylist()
            found.setdefault(group, []).append((key[len(encode_key(node.key, [group])) :], bounds, entries))
    return found


def change(db: vk.Database, choose: random.Random, rows: dict[int, dict]) -> None:
    """Few or many changes; now and then a group loses a range of values, or all of them."""
    keys, long, changed = choose.choice([3, 40, 400]), choose.random() < 0.2, list[dict]()
    for key in choose.sample(range(600), keys):
        text = f"{choose.randrange(300):04d}{'x' * choose.randrange(60) if long else ''}"
        rows[key] = {"k": key, "g": choose.choice("aaaabbcdé"), "x": choose.choice([text, text, text, None])}
        changed.append(rows[key])
    db.table("t").put_many(changed)
    if choose.random() < 0.5:
        group, low = choose.choice("abcdé"), f"{choose.randrange(-300, 300):04d}"
        for key in [key for key, row in rows.items() if row["g"] == group and (row["x"] or "") >= low]:
            db.table("t").delete(key)
            del rows[key]


def require_right(db: vk.Database, rows: dict[int, dict]) -> None:
    counted = {group: Counter(row["x"] for row in rows.values() if row["g"] == group) for group in "abcdé"}
    there = {group: sorted(x for x in some if x is not None) for group, some in counted.items() if some}
    shown = {group: (some[0], some[-1], len(some)) if some else (None, None, 0) for group, some in there.items()}
    assert {row["g"]: (row["lo"], row["hi"], row["n"]) for row in db.view("ends").scan()} == shown
    for group, blocks in blocks_of(db).items():
        assert len(there[group]) == sum(len(entries) for _, _, entries in blocks)
        firsts, *others = blocks
        assert firsts[0] == b"" and firsts[1] == [bound for bound, _, _ in others]  # the first knows where others begin
        assert all(not bounds and entries for _, bounds, entries in others)
        borders = [bound for bound, _, _ in blocks[1:]] + [b"\xff" * 80]
        for (bound, _, entries), border in zip(blocks, borders, strict=True):
            assert entries == sorted(entries) and all(bound <= value < border for value, _ in entries)
        assert sorted(count for _, _, entries in blocks for _, count in entries) == sorted(
            count for x, count in counted[group].items() if x is not None
        )


def require_right_slots(db: vk.Database, rows: dict[int, dict]) -> None:
    def texts(group: str, step: int) -> list[str]:
        return sorted({row["x"] for row in rows.values() if row["g"] == group and not row["k"] % step} - {None})

    for row in db.view("slots").scan():
        every, even, rare, third = (texts(row["g"], step) for step in (1, 2, 50, 3))
        ends = [(every or [None])[0], (even or [None])[-1], (rare or [None])[0], (rare or [None])[-1]]
        assert [row["lo"], row["even_hi"], row["rare_lo"], row["rare_hi"]] == ends
        assert row["n"] == len(third)


@pytest.mark.parametrize("seed", range(examples(3, deep=8)))
def test_any_history_ends_in_what_its_rows_say(db: vk.Database, seed: int) -> None:
    choose, rows = random.Random(seed), dict[int, dict]()
    most = 0
    for _ in range(8):
        change(db, choose, rows)
        if choose.random() < 0.3:
            with pytest.raises(Interrupted):
                Coordinator(db.store, RunThenDie(HereRunner(db.store))).catch_up()
        keep_up(db)
        require_right(db, rows)
        require_right_slots(db, rows)
        most = max([most, *map(len, blocks_of(db).values())])
    assert most > 1 or pre_aggregation.BLOCK_BYTES_MAX > 700


def test_a_change_in_a_large_group_reads_and_writes_few_blocks(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute(VIEWS)
        db.table("t").put_many([{"k": key, "g": "a", "x": f"{key:08d}"} for key in range(20_000)])
        keep_up(db)
        (node,) = nodes_of(db.catalog(), "ends")
        assert isinstance(node, AggregateNode)
        assert len(blocks_of(db)["a"]) > 100
        db.table("t").delete(12_345)
        (done,) = Coordinator(db.store, HereRunner(db.store)).catch_up()

    work = done.counts.tables[node.entries[0].table]
    assert (work.reads, work.writes) == (3, 1)  # the group's first block, the one of the value, and the last one
