"""Every failpoint in the source fires in some test of every run: one that none reaches would promise nothing."""

from __future__ import annotations

from tests.support.killing import LAB_POINTS
from tests.support.simulation.summary import all_points
from tests.support.source_tree import ROOT

# Each test arms its points one by one, and fails unless the process that it starts is killed there (`anew.`: ends there;
# `stage.`: the coordinator does).
ARMED = {
    "tests/sim/test_foreign_tables.py": ("stage.ready",),
    "tests/sim/test_verification_kills.py": (
        *("check.started", "check.judged", "check.remembered", "twins.requested"),
        *("repair.checked", "repair.logged", "repair.rebuilt", "repair.repaired"),
    ),
    "tests/unit/cli/test_lost_log.py": ("anew.logged", "anew.swapped"),
    "tests/unit/stores/test_backup.py": (
        *("backup.copied", "backup.manifest", "newdirectory.filled", "newdirectory.renamed"),
        *("restore.copied", "restore.written"),
    ),
    "tests/unit/stores/test_compact.py": ("compact.copied", "compact.renamed", "compact.done"),
    "tests/unit/stores/test_moves_and_kills.py": (
        *("node.made", "node.listed", "move.intent", "move.left", "move.arrived", "move.placed", "move.finished"),
    ),
    "tests/unit/stores/test_parts.py": ("layout.part",),
    "tests/unit/stores/test_processes.py": ("node.write.before_commit", "node.write.committed"),
}


def test_every_failpoint_kills_in_some_test() -> None:
    armed = {point for points in (*LAB_POINTS.values(), *ARMED.values()) for point in points}

    assert armed == all_points()


def test_the_tests_arm_what_is_said_of_them() -> None:
    for file, points in ARMED.items():
        text = (ROOT / file).read_text()
        assert [point for point in points if f'"{point}' not in text] == [], file
