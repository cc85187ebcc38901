"""The level checker agrees with brute force over all cuts, on histories that keep every level and that break it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.brute_levels import NAMES, Case, CaseMaker, copied, level_of, summed
from tests.support.tiers import seed
from viewkeeper.testing.levels import Level, State, Update, Verdict, observed_level

CASES = 1_000
EACH_LEVEL_MIN = 40


def judge(case: Case) -> Verdict:
    updates = [Update(table, (key,), row) for table, key, row in case.versions]
    states = [
        State(rows, None if claim is None else [{"": count} for count in claim])
        for rows, claim in zip(case.states, case.claims, strict=True)
    ]
    return observed_level(updates, states, case.view, key=case.key and [case.key])


def levels_seen(seed: int, cases: int) -> Counter:
    """How often each level was found, by both alike: whole or by record, with a claim or without."""
    maker, seen = CaseMaker(seed), Counter()
    for number in range(cases):
        case = maker.case()
        verdict, (level, broken) = judge(case), level_of(case)

        assert verdict.level.name == level, (number, case, verdict)
        assert {found.level.name: found.state for found in verdict.breaks} == broken, (number, case, verdict)
        seen[level, case.key is None, case.claims[0] is None] += 1
    return seen


def test_the_checker_and_brute_force_agree_on_level_and_first_break() -> None:
    seen = levels_seen(1, CASES)

    assert len(seen) == len(NAMES) * 4  # each level, whole and by record, with a claim and without
    for name in NAMES:
        assert sum(count for (level, *_), count in seen.items() if level == name) >= EACH_LEVEL_MIN, seen


@pytest.mark.deep
def test_they_agree_on_fresh_histories_too() -> None:
    assert len(levels_seen(seed(), 10_000)) == len(NAMES) * 4


def history_of(rows: int, versions: int) -> list[tuple[str, int, dict]]:
    """Update n adds 4^n, so that every cut has a sum of its own."""
    amounts = [4**n for n in range(rows * versions)]
    return [
        ("r", n % rows, {"k": n % rows, "x": "a", "y": sum(amounts[n % rows : n + 1 : rows])})
        for n in range(rows * versions)
    ]


@pytest.mark.parametrize("view", [summed, copied])
def test_all_cuts_of_six_rows_with_four_versions_are_searched(view: object) -> None:
    versions = history_of(6, 4)
    latest: dict[int, dict] = {}
    states = []
    for _, key, row in versions:
        latest[key] = row
        states.append(view({"r": [latest[k] for k in sorted(latest)]}))
    claims = [None] * len(states)

    assert judge(Case(view, versions, states, claims, None)).level is Level.COMPLETE

    swapped = Case(view, versions, [*states[:10], states[11], states[10], *states[12:]], claims, None)
    verdict = judge(swapped)
    assert (verdict.level, verdict.breaks[0].state) == (Level.WEAK, 11)
    assert level_of(swapped) == ("WEAK", {"STRONG": 11})
