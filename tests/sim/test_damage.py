"""Damaged files of a store: what is told, what is harmless, and what nobody notices.

LMDB has no checksums on its pages, nor have rows (docs/decisions/0018-no-checksum-in-rows.md): a changed byte inside a page
may be read as data, or end the process inside LMDB. Everything else is told by an error of ours, or changes no answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support import tiers

ROOT = Path(__file__).parents[2]
PAGES_CHANGED = ("zeroed", "flipped", "garbled")


def damaged(folder: Path, seed: int, trials: int, parts: str) -> list[dict]:
    command = [sys.executable, "-m", "tests.support.damage_lab", str(folder), str(seed), str(trials), parts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_allowed(file: str, damage: str, end: str) -> bool:
    """Whether this may be met after that damage."""
    if end == "right":
        return True
    if file.endswith("lock") or file.endswith("lock.mdb"):
        return False
    if hasattr(vk, end) or end == "InvariantBroken":
        return True
    return file.endswith("data.mdb") and damage in PAGES_CHANGED and (end == "wrong" or end.startswith("signal"))


def require_told(ends: list[dict]) -> None:
    assert [one for one in ends if not is_allowed(**one)] == []
    cut = Counter(one["end"] for one in ends if one["damage"] == "truncated" and one["file"].endswith("data.mdb"))
    assert set(cut) <= {"CorruptStore", "right"} and cut["CorruptStore"]
    print(Counter((one["damage"], one["end"]) for one in ends))


def test_damage_is_told_or_harmless_outside_the_pages_of_lmdb(tmp_path: Path) -> None:
    require_told(damaged(tmp_path, 0, 1, "store.json,meta,partition-0"))


@pytest.mark.deep
def test_damage_to_any_file_is_told_or_harmless_outside_the_pages_of_lmdb(tmp_path: Path) -> None:
    require_told(damaged(tmp_path, tiers.seed() or 1, 2, "all"))
