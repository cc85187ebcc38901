"""Golden plans before and after each step of the optimizer (paper 3, algorithm 2 and figure 5).

A file has the statements and rows that it begins with; then, under the heading of each step, the plan after that step's
statement. After each step the views must hold the same rows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.golden.test_plans import RULE
from tests.support.running import keep_up
from viewkeeper.plan.explain.explain import explain
from viewkeeper.plan.optimize import SWITCHES

FILES = sorted((Path(__file__).parent / "steps").glob("*.plan"))
STEPS = {
    "each view by itself": f"OPTIMIZE VIEWS WITHOUT ({', '.join(SWITCHES)})",
    "step 1, equal nodes": "OPTIMIZE VIEWS WITHOUT (share_copies, share_groupings, evaluate_once)",
    "steps 2 and 3, similar nodes": "OPTIMIZE VIEWS",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_plan_after_each_step_is_the_recorded_one(path: Path, recording: bool, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8").split(RULE)[0].strip()
    parts, held = [text], {}
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images=off") as db:
        db.execute(text)
        keep_up(db)
        for step, statement in STEPS.items():
            db.execute(statement)
            keep_up(db)
            names = [view.name for view in db.catalog().views]
            rows = {name: list(db.view(name).scan()) for name in names}
            assert all(rows.values()) and rows == (held or rows)
            held = rows
            asked = [None] if step != next(iter(STEPS)) else names
            plans = [explain(db.catalog(), name) for name in asked]  # without costs
            parts.append("\n".join([f"-- {step}", *plans]))
    found = RULE.join(parts) + "\n"
    if recording:
        path.write_text(found, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == found
