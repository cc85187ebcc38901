"""Golden plans of the papers' own examples: a file makes its tables too, and the test of the paper executes it."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.golden.test_plans import RULE
from tests.support.plans import bound_text

FILES = sorted((Path(__file__).parent / "papers").glob("*.plan"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_plan_of_a_papers_example_is_the_recorded_one(path: Path, recording: bool, tmp_path: Path) -> None:
    """Over a log without before-images, as the papers have it: DELTA is stored."""
    text = path.read_text(encoding="utf-8").split(RULE)[0].strip()
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images=off") as db:
        db.execute(text)
        found = RULE.join([text, bound_text(db.catalog()), db.explain()]) + "\n"
    if recording:
        path.write_text(found, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == found
