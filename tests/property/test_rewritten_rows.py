"""A row that is written again as it was is no update and no change, whatever DOUBLE it holds; one that differs is both."""

from __future__ import annotations

import math

from hypothesis import example, given, settings
from hypothesis import strategies as st

import viewkeeper as vk
from tests.support.running import keep_up
from tests.support.tiers import examples
from viewkeeper.testing.levels import Level
from viewkeeper.testing.recording import Recorder

DOUBLES = (math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 1.5, None)
VIEWS = {
    "copies": "SELECT k, y FROM t",
    "greatest": "SELECT g, MAX(y) AS y FROM t GROUP BY g",
}
writes = st.lists(st.tuples(st.sampled_from((math.nan, 0.0, -0.0, 2.0)), st.sampled_from(DOUBLES)), max_size=4)


def _shown(rows: object) -> list[str]:
    """Rows as texts: NaN is one, and a zero has its sign."""
    return sorted(repr(row).replace("-nan", "nan") for row in rows)


@settings(max_examples=examples(3, deep=30))
@given(writes)
@example([(2.0, math.nan), (math.nan, 0.0), (math.nan, -0.0)])
def test_a_rewritten_row_is_no_update_and_no_change(history: list[tuple[float, float | None]]) -> None:
    db = vk.connect("memory:?nodes=1")
    db.execute("CREATE TABLE t (k DOUBLE PRIMARY KEY, g INT, y DOUBLE)")
    for name, select in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    keep_up(db)
    recorder = Recorder(db, *VIEWS)
    recorder.look()
    copies: dict[str, dict[str, object]] = {name: {} for name in VIEWS}
    for k, y in history * 2:  # the second time some rows are as they are written
        table, before = db.table("t"), db.epoch
        same = _shown([table.get(k)]) == _shown([{"k": k + 0.0, "g": 1, "y": y}])
        recorder.put("t", k, {"k": k, "g": 1, "y": y})
        assert table.put_if(k, {"y": y}, expect=table.get(k))
        keep_up(db)
        recorder.look()
        for name, copy in copies.items():
            changes = list(db.view(name).changes(since=before))
            assert not (same and changes)
            for change in changes:
                copy.pop(repr(change.before), None)
                copy.update({repr(change.after): change.after} if change.after else {})
            assert _shown(copy.values()) == _shown(db.view(name).scan())
    assert {name: recorder.observed(name).level for name in VIEWS} == dict.fromkeys(VIEWS, Level.COMPLETE)
