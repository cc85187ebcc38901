"""The level of consistency that states of a view have: the paper's own examples, and defects that must be found."""

from __future__ import annotations

import math

import pytest

from viewkeeper.errors import InputError
from viewkeeper.testing.levels import Level, State, Update, Verdict, observed_level
from viewkeeper.testing.recording import select_view

R = "k VARCHAR, x VARCHAR, y BIGINT"
SUM = select_view("SELECT x, SUM(y) AS s FROM r GROUP BY x", r=R)
MIN = select_view("SELECT x, MIN(y) AS s FROM r GROUP BY x", r=R)
SELECTION = select_view("SELECT k, x, y FROM r WHERE y < 25", r=R)


def row(k: str, x: str, y: int) -> Update:
    return Update("r", (k,), {"k": k, "x": x, "y": y})


def gone(k: str) -> Update:
    return Update("r", (k,), None)


def groups(**sums: int) -> State:
    return State([{"x": x, "s": s} for x, s in sums.items()])


def first(y: int) -> State:
    return State([{"k": "k1", "x": "x1", "y": y}])


def test_paper_5_example_1_a_lost_update_does_not_converge() -> None:
    initial = [row("k1", "x1", 100), row("k2", "x1", 200), row("k3", "x2", 300), row("k4", "x2", 400)]
    updates = [row("k2", "x2", 200), row("k4", "x1", 400)]
    states = [groups(x1=300, x2=700), groups(x1=100, x2=900), groups(x1=700, x2=300)]

    verdict = observed_level(updates, states, SUM, initial=initial)

    assert verdict.level is Level.NONE
    assert str(verdict.why_not(Level.CONVERGENT)) == (
        "not convergent: state 2 is the last one and not the view of the final base: "
        "shows (s=300, x='x2'), (s=700, x='x1') and not (s=500, x='x1'), (s=500, x='x2')"
    )
    right = [*states[:2], groups(x1=500, x2=500)]
    assert observed_level(updates, right, SUM, initial=initial).level is Level.COMPLETE


def test_paper_5_example_2_an_update_counted_twice_is_not_weak() -> None:
    initial, updates = [row("k1", "x1", 100), row("k2", "x1", 200)], [row("k3", "x1", 100)]
    states = [groups(x1=300), groups(x1=500), groups(x1=400)]  # repaired in the end

    verdict = observed_level(updates, states, SUM, initial=initial)

    assert (verdict.level, verdict.why_not(Level.STRONG).state) == (Level.CONVERGENT, 1)
    assert verdict.why_not(Level.WEAK).reason == "is the view of no cut of the base"
    assert observed_level(updates, states[:2], SUM, initial=initial).level is Level.NONE


@pytest.mark.parametrize(
    ("seen", "level", "place"),
    [
        ([5, 10, 20, 15], Level.COMPLETE, None),
        ([5, 5, 10, 20, 15, 15], Level.COMPLETE, None),  # read again: nothing is added
        ([5, 20, 15], Level.STRONG, 1),
        ([15], Level.STRONG, 0),
        ([5, 20, 10, 15], Level.WEAK, 2),  # as the paper has it
        ([5, 10, 15, 20, 15], Level.WEAK, 3),
        ([5, 10, 15, 20], Level.NONE, 3),  # its variation: u2 last
        ([5, 10, 11, 15], Level.CONVERGENT, 2),
    ],
)
def test_paper_5_example_3_out_of_order_updates_are_not_strong(seen: list[int], level: Level, place: int) -> None:
    updates = [row("k1", "x1", y) for y in (10, 20, 15)]

    verdict = observed_level(updates, [first(y) for y in seen], SELECTION, initial=[row("k1", "x1", 5)])

    assert verdict.level is level
    assert [found.state for found in verdict.breaks[:1]] == ([] if place is None else [place])


def test_paper_5_theorem_2_a_minimum_scanned_late_is_weak() -> None:
    initial, updates = [row("k1", "x1", 4)], [gone("k1"), row("k2", "x1", 2), row("k2", "x1", 5)]
    late, none = [groups(x1=4), groups(x1=5), groups(x1=2), groups(x1=5)], State([])

    assert observed_level(updates, late, MIN, initial=initial).level is Level.WEAK
    in_turn = [groups(x1=4), none, groups(x1=2), groups(x1=5)]
    assert observed_level(updates, in_turn, MIN, initial=initial).level is Level.COMPLETE


def test_updates_of_different_rows_may_be_seen_in_any_order() -> None:
    """Section III.A: {(u3, u2), (u3, u1)} is a base state, although u1 was inserted last; but only until u5 is there."""
    friends = select_view("SELECT * FROM friends", friends="fid VARCHAR")

    def friend(name: str) -> Update:
        return Update("friends", (name,), {"fid": name})

    initial, updates = [friend("u2")], [friend("u5"), Update("friends", ("u2",), None), friend("u1")]

    def level(*states: str) -> Level:
        shown = [State([{"fid": name} for name in state.split()]) for state in states]
        return observed_level(updates, shown, friends, initial=initial).level

    assert level("u2", "u2 u1", "u1", "u1 u5") is Level.COMPLETE
    assert level("u2 u1", "u2 u5", "u1 u5") is Level.WEAK


# A run to spoil: update n adds 4^n to its row, so every cut shows another sum; the fourth moves a row to another group.
UPDATES = [row("k1", "a", 1), row("k2", "b", 4), row("k1", "a", 17), row("k2", "a", 4), row("k3", "b", 256)]
RUN = [groups(a=1), groups(a=1, b=4), groups(a=17, b=4), groups(a=21), groups(a=21, b=256)]


def spoiled(place: int, *states: State) -> list[State]:
    return [*RUN[:place], *states, *RUN[place + len(states) :]]


def claiming(states: list[State]) -> list[State]:
    return [State(state.rows, [{"": place}]) for place, state in enumerate(states, 1)]


def judge(states: list[State], key: list[str] | None = None) -> Verdict:
    return observed_level(UPDATES, states, SUM, key=key)


DEFECTS = {
    "skips an update of a row": (spoiled(2, groups(a=16, b=4)), Level.CONVERGENT, 2),
    "applies an update twice": (spoiled(1, groups(a=1, b=8)), Level.CONVERGENT, 1),
    "mixes two cuts, a row in both": (spoiled(3, groups(a=21, b=4)), Level.CONVERGENT, 3),
    # the row has left b and is not yet in a: the view of a cut before its first version
    "mixes two cuts, a row in neither": (spoiled(3, groups(a=17)), Level.WEAK, 3),
    "ends wrong": (spoiled(4, groups(a=21, b=255)), Level.NONE, 4),
    "ends early": (RUN[:4], Level.NONE, 3),
    "goes back": ([*RUN[:3], RUN[1], *RUN[2:]], Level.WEAK, 3),
    "swaps two states": (spoiled(1, RUN[2], RUN[1]), Level.WEAK, 2),
    "adds two updates at once": ([*RUN[:1], *RUN[2:]], Level.STRONG, 1),
    "adds nothing wrong": (RUN, Level.COMPLETE, None),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_every_defect_is_found_with_its_level_and_place(name: str) -> None:
    states, level, place = DEFECTS[name]

    verdict = judge(states)

    assert verdict.level is level
    assert [found.state for found in verdict.breaks[:1]] == ([] if place is None else [place])


CLAIMED = {name: case for name, case in DEFECTS.items() if len(case[0]) == len(RUN)}
CLAIMED["mixes two cuts, a row in neither"] = (DEFECTS["mixes two cuts, a row in neither"][0], Level.CONVERGENT, 3)
CLAIMED["swaps two states"] = (DEFECTS["swaps two states"][0], Level.CONVERGENT, 1)  # each shows what the other claims


@pytest.mark.parametrize("name", CLAIMED)
def test_a_state_must_be_the_view_of_the_cut_that_it_claims(name: str) -> None:
    states, level, place = CLAIMED[name]

    verdict = judge(claiming(states))

    assert verdict.level is level
    assert [found.state for found in verdict.breaks[:1]] == ([] if place is None else [place])


@pytest.mark.parametrize(
    ("order", "level", "reason"),
    [
        ([1, 3, 2, 4, 5], Level.WEAK, "goes back: it lacks an update that a state before it showed"),
        ([1, 4, 5], Level.STRONG, "adds 3 updates at once"),
        (
            [2, 3, 4, 5],
            Level.STRONG,
            "adds 2 updates at once",
        ),  # the initial base was not shown, the first update neither
        ([1, 1, 2, 2, 3, 4, 5, 5], Level.COMPLETE, None),
    ],
)
def test_claimed_cuts_are_compared_with_each_other(order: list[int], level: Level, reason: str) -> None:
    states = claiming(RUN)

    verdict = judge([states[place - 1] for place in order])

    assert (verdict.level, [found.reason for found in verdict.breaks]) == (level, [reason] if reason else [])


def test_a_record_that_moves_may_be_seen_half_done_when_each_record_is_judged_by_itself() -> None:
    for name in ("mixes two cuts, a row in both", "mixes two cuts, a row in neither"):
        assert judge(DEFECTS[name][0]).level < Level.STRONG
        assert judge(DEFECTS[name][0], key=["x"]).level >= Level.STRONG


def test_a_break_names_the_record() -> None:
    verdict = judge([*RUN[:2], State([*RUN[2].rows[:1], {"x": "b", "s": 5}]), *RUN[3:]], key=["x"])

    assert str(verdict) == "convergent; not weak: state 2, record ('b',) is the view of no cut of the base"


def test_with_several_claims_each_record_may_be_of_any_of_them() -> None:
    """What a read of the newest versions shows: some records of the epoch in flight, the others of the one before."""
    claims = [{"": 3}, {"": 4}]
    mixed = State([{"x": "a", "s": 17}], claims)
    states = claiming(RUN)

    assert judge([*states[:3], mixed, *states[3:]], key=["x"]).level is Level.COMPLETE
    assert judge([*states[:3], mixed, *states[3:]]).why_not(Level.WEAK).reason == (
        "is the view of none of the 2 cuts that it may be of"
    )
    older = State([{"x": "a", "s": 1}], claims)
    assert judge([*states[:3], older, *states[3:]], key=["x"]).why_not(Level.WEAK).record == ("a",)


def test_positions_in_several_streams_make_a_claim() -> None:
    updates = [Update("r", ("k1",), row("k1", "a", 1).row, "0", 7), Update("r", ("k2",), row("k2", "a", 4).row, "1", 3)]

    def level(*claims: dict[str, int]) -> Level:
        return observed_level(updates, [State(g.rows, [c]) for g, c in zip(sums, claims, strict=True)], SUM).level

    sums = [groups(a=4), groups(a=5)]
    assert level({"0": 6, "1": 3}, {"0": 7, "1": 9}) is Level.COMPLETE
    assert level({"0": 7}, {"0": 7, "1": 3}) is Level.CONVERGENT


def test_a_write_that_changes_nothing_is_no_update() -> None:
    again = [UPDATES[0], UPDATES[0], *UPDATES[1:]]

    assert observed_level(again, RUN, SUM).level is Level.COMPLETE


def test_nan_is_equal_to_itself() -> None:
    updates = [Update("r", ("k",), {"k": "k", "y": float("nan")})]

    def copy(base: object) -> list:
        return base["r"]

    assert observed_level(updates, [State([{"k": "k", "y": float("nan")}])], copy).level is Level.COMPLETE


def _copy(base: object) -> list:
    return base["r"]


def test_writing_a_row_with_nan_again_is_no_update() -> None:
    updates = [Update("r", ("k",), {"k": "k", "y": float("nan")}) for _ in range(3)]
    states = [State([]), State([{"k": "k", "y": float("nan")}])]

    assert observed_level(updates, states, _copy).level is Level.COMPLETE


def test_a_zero_that_changes_its_sign_is_an_update() -> None:
    updates = [Update("r", ("k",), {"k": "k", "y": y}) for y in (0.0, -0.0)]

    def sign(base: object) -> list:
        return [{"sign": math.copysign(1, row["y"])} for row in base["r"]]

    states = [State([]), State([{"sign": 1.0}]), State([{"sign": -1.0}])]
    assert observed_level(updates, states, sign).level is Level.COMPLETE


def test_nan_in_a_key_is_one_row_and_one_record() -> None:
    updates = [Update("r", (float("nan"),), {"k": float("nan"), "y": y}) for y in (1, 2)]
    states = [State([])] + [State([{"k": float("nan"), "y": y}]) for y in (1, 2)]

    assert observed_level(updates, states, _copy).level is Level.COMPLETE
    assert observed_level(updates, states, _copy, key=["k"]).level is Level.COMPLETE


def test_nan_is_not_the_text_of_its_name() -> None:
    updates = [Update("r", ("k",), {"k": "k", "y": float("nan")})]

    assert observed_level(updates, [State([{"k": "k", "y": "NaN"}])], _copy).level is Level.NONE


def test_a_row_that_is_shown_twice_is_not_one_that_is_shown_once() -> None:
    towns = select_view("SELECT x FROM r", r=R)
    updates = [row("k1", "a", 1), row("k2", "a", 1)]
    once, twice = State([{"x": "a"}]), State([{"x": "a"}, {"x": "a"}])

    assert observed_level(updates, [once, twice], towns).level is Level.COMPLETE
    assert observed_level(updates, [twice, once], towns).level is Level.NONE


def _too_many() -> list[Update]:
    return [row(f"k{n}", "a", n) for n in range(20)]


@pytest.mark.parametrize(
    ("updates", "states", "fact"),
    [
        (UPDATES, [], "there is no state to judge"),
        (_too_many(), [groups(a=1)], "the base has 1048576 cuts, more than the 100000 that are searched"),
        (
            [Update("r", ("k",), {"k": "k"}, "0", 2), Update("r", ("k",), None, "0", 1)],
            [groups()],
            "the updates of r ('k',) are not in the order of their positions",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(updates: list[Update], states: list[State], fact: str) -> None:
    with pytest.raises(InputError) as error:
        observed_level(updates, states, SUM)

    assert error.value.fact == fact


def test_claims_are_judged_however_many_cuts_there_are() -> None:
    updates, total, states = _too_many(), 0, []
    for place, update in enumerate(updates, 1):
        total += update.row["y"]
        states.append(State(groups(a=total).rows, [{"": place}]))

    assert observed_level(updates, states, SUM).level is Level.COMPLETE
    assert observed_level(updates, states, SUM, key=["x"]).level is Level.COMPLETE


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (3, "shows (s=0, x='x0'), (s=1, x='x1'), (s=2, x='x2')"),
        (4, "shows (s=0, x='x0'), (s=1, x='x1'), (s=2, x='x2') and 1 more"),
        (5, "shows (s=0, x='x0'), (s=1, x='x1'), (s=2, x='x2') and 2 more"),
    ],
)
def test_a_reason_quotes_three_rows_and_counts_the_others(shown: int, told: str) -> None:
    states = [groups(), groups(**{f"x{number}": number for number in range(shown)})]
    verdict = observed_level([row("k1", "x9", 9)], states, SUM)

    assert verdict.why_not(Level.CONVERGENT).reason.endswith(f": {told} and not (s=9, x='x9')")
