"""⋈ of every kind: rows that gain and lose matches, on either side or on both, in one epoch or over several (R6)."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import written_by
from tests.support.joining import (
    COUNTED,
    VIEWS,
    delete,
    make_joins,
    match_counts,
    put,
    side_counts,
    wrong,
)
from tests.support.plans import nodes_of
from tests.support.running import keep_up

WITH_A_COUNT = ("left", "full", "semi", "anti")


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    return make_joins(tmp_path / "s")


def shown(db: vk.Database, name: str) -> list[tuple]:
    return [tuple(row.values()) for row in db.view(f"{name}_v").scan()]


def test_a_match_comes_and_goes_over_epochs(db: vk.Database) -> None:
    put(db, "l", {"a": ("j", 1)})
    keep_up(db)
    assert shown(db, "left") == shown(db, "left_if") == [("a", "j", 1, None, None, None)]
    assert shown(db, "anti") == shown(db, "anti_if") == [("a", "j", 1)]
    assert shown(db, "semi") == shown(db, "semi_if") == []
    put(db, "r", {"b": ("j", 2)})
    keep_up(db)
    assert shown(db, "left") == shown(db, "full") == shown(db, "full_if") == [("a", "j", 1, "b", "j", 2)]
    assert shown(db, "semi") == shown(db, "semi_if") == [("a", "j", 1)]
    assert shown(db, "anti") == shown(db, "anti_if") == []
    delete(db, "r", "b")
    keep_up(db)

    assert shown(db, "full") == shown(db, "full_if") == [("a", "j", 1, None, None, None)]
    assert shown(db, "anti") == shown(db, "anti_if") == [("a", "j", 1)]
    assert wrong(db) == {}


def test_a_match_that_comes_and_goes_in_one_epoch_writes_nothing(db: vk.Database) -> None:
    put(db, "l", {"a": ("j", 1)})
    keep_up(db)
    put(db, "r", {"b": ("j", 2)})
    delete(db, "r", "b")
    keep_up(db)

    assert db.epoch == 2 and written_by(db.store, 2) == []
    assert wrong(db) == {}


def test_a_match_that_goes_and_comes_back_in_one_epoch_writes_nothing(db: vk.Database) -> None:
    put(db, "l", {"a": ("j", 1)})
    put(db, "r", {"b": ("j", 2)})
    keep_up(db)
    delete(db, "r", "b")
    delete(db, "l", "a")
    put(db, "r", {"b": ("j", 2)})
    put(db, "l", {"a": ("other", 7)})
    put(db, "l", {"a": ("j", 1)})
    keep_up(db)

    assert db.epoch == 2 and written_by(db.store, 2) == []
    assert wrong(db) == {}


@pytest.mark.parametrize("name", ["left", "full", "semi", "anti"])
def test_one_match_takes_the_place_of_another_in_one_epoch(db: vk.Database, name: str) -> None:
    """The count is 1 before and 1 after, by way of 0 or of 2: the row is never told of as alone."""
    put(db, "l", {"a": ("j", 1)})
    put(db, "r", {"b": ("j", 2)})
    keep_up(db)
    delete(db, "r", "b")
    put(db, "r", {"c": ("j", 3)})
    keep_up(db)

    assert shown(db, name) == {
        "left": [("a", "j", 1, "c", "j", 3)],
        "full": [("a", "j", 1, "c", "j", 3)],
        "semi": [("a", "j", 1)],
        "anti": [],
    }[name]  # fmt: skip
    assert wrong(db) == {}


def test_both_sides_move_to_another_join_key_in_one_epoch(db: vk.Database) -> None:
    """R6: the old key's task takes the pair away, the new key's brings it; it must stay, and be written once at most."""
    put(db, "l", {"a": ("p", 1)})
    put(db, "r", {"b": ("p", 2)})
    keep_up(db)
    put(db, "l", {"a": ("q", 1)})
    put(db, "r", {"b": ("q", 2)})
    keep_up(db)

    assert shown(db, "inner") == shown(db, "full") == shown(db, "left_if") == [("a", "q", 1, "b", "q", 2)]
    assert wrong(db) == {}


def test_sides_that_swap_their_join_keys_pair_anew(db: vk.Database) -> None:
    put(db, "l", {"a": ("p", 1), "b": ("q", 1)})
    put(db, "r", {"a": ("p", 2), "b": ("q", 2)})
    keep_up(db)
    put(db, "l", {"a": ("q", 1), "b": ("p", 1)})
    keep_up(db)
    assert {(row[0], row[3]) for row in shown(db, "inner")} == {("a", "b"), ("b", "a")}
    put(db, "r", {"a": ("q", 2), "b": ("p", 2)})
    put(db, "l", {"b": ("q", 1)})
    keep_up(db)

    assert {(row[0], row[3]) for row in shown(db, "full")} == {("a", "a"), ("b", "a"), (None, "b")}
    assert wrong(db) == {}


def test_both_sides_change_under_one_join_key(db: vk.Database) -> None:
    """dL × R + L × dR − dL × dR: rows that change together are paired once, old with old and new with new."""
    put(db, "l", {"a": ("j", 1), "b": ("j", 2), "stays": ("j", 0)})
    put(db, "r", {"a": ("j", 1), "b": ("j", 2), "stays": ("j", 9)})
    keep_up(db)
    put(db, "l", {"a": ("j", 5), "c": ("j", 1)})
    delete(db, "l", "b")
    put(db, "r", {"a": ("j", 6), "c": ("j", 1)})
    delete(db, "r", "b")
    keep_up(db)

    assert len(shown(db, "inner")) == 9
    assert wrong(db) == {}


def test_a_null_join_key_matches_nothing_and_is_shown_where_its_side_is_kept(db: vk.Database) -> None:
    put(db, "l", {"a": (None, 1)})
    put(db, "r", {"a": (None, 2), "b": (None, 3)})
    keep_up(db)
    assert shown(db, "inner") == shown(db, "semi") == shown(db, "semi_if") == []
    assert shown(db, "left") == [("a", None, 1, None, None, None)]
    assert shown(db, "anti") == shown(db, "anti_if") == [("a", None, 1)]
    assert len(shown(db, "full")) == len(shown(db, "full_if")) == 3
    put(db, "l", {"a": ("j", 1)})  # from NULL to a value, on one side and then on the other
    put(db, "r", {"a": ("j", 2)})
    keep_up(db)
    assert shown(db, "left") == [("a", "j", 1, "a", "j", 2)]
    put(db, "l", {"a": (None, 1)})
    keep_up(db)

    assert shown(db, "semi") == []
    assert wrong(db) == {}


def test_a_value_that_changes_who_matches_without_a_change_of_key(db: vk.Database) -> None:
    """With a residual condition a row has a match count of its own (`docs/epochs.md`, "⋈")."""
    put(db, "l", {"a": ("j", 1), "b": ("j", 5), "none": ("j", None)})
    put(db, "r", {"c": ("j", 3), "d": ("j", 9)})
    keep_up(db)
    assert match_counts(db, "full_if") == {(0, "a"): 2, (0, "b"): 1, (1, "c"): 1, (1, "d"): 2}
    assert match_counts(db, "left_if") == match_counts(db, "anti_if") == {(0, "a"): 2, (0, "b"): 1}
    put(db, "r", {"d": ("j", 4)})
    keep_up(db)
    assert match_counts(db, "full_if") == {(0, "a"): 2, (1, "c"): 1, (1, "d"): 1}
    assert shown(db, "anti_if") == [("b", "j", 5), ("none", "j", None)]
    put(db, "l", {"a": ("j", 7)})
    put(db, "r", {"c": ("j", 8)})
    keep_up(db)

    assert match_counts(db, "full_if") == {(0, "a"): 1, (0, "b"): 1, (1, "c"): 2}
    assert wrong(db) == {}


def test_side_counts_are_those_of_the_rows_and_go_with_the_last_of_them(db: vk.Database) -> None:
    put(db, "l", {"a": ("p", 1), "b": ("p", 1), "n": (None, 1)})
    put(db, "r", {"c": ("p", 1), "d": ("q", 1), "n": (None, 1)})
    keep_up(db)
    for name in WITH_A_COUNT:
        assert side_counts(db, name) == {"p": (2, 1), "q": (0, 1)}
    delete(db, "l", "a", "b")
    delete(db, "r", "c")
    keep_up(db)

    for name in WITH_A_COUNT:
        assert side_counts(db, name) == {"q": (0, 1)}
    assert wrong(db) == {}


def test_an_inner_join_keeps_no_counts(db: vk.Database) -> None:
    nodes = {name: nodes_of(db.catalog(), f"{name}_v")[0] for name in VIEWS}

    assert {name for name, node in nodes.items() if node.counts is not None} == set(WITH_A_COUNT)
    assert {name for name, node in nodes.items() if node.matches is not None} == {f"{n}_if" for n in WITH_A_COUNT}


def test_pairs_of_which_both_rows_change_are_counted_once(tmp_path: Path) -> None:
    """A copy of pairs forgives what is told twice; an aggregate over the join does not."""
    db = make_joins(tmp_path / "s", *COUNTED)
    put(db, "l", {"a": ("p", 1), "b": ("p", 4), "c": ("q", None)})
    put(db, "r", {"a": ("p", 3), "b": ("p", 5), "c": (None, 1)})
    keep_up(db)
    assert shown(db, "inner_count") == [("p", "p", 4, 16)]
    put(db, "l", {"a": ("p", 2), "b": ("q", 1), "d": ("p", 1)})
    put(db, "r", {"a": ("p", 9), "b": ("q", 2), "d": ("p", 2)})
    keep_up(db)
    assert shown(db, "inner_count") == [("p", "p", 4, 22), ("q", "q", 2, 4)]
    assert wrong(db) == {}
    delete(db, "l", "a", "b")
    delete(db, "r", "a", "d")
    keep_up(db)

    assert wrong(db) == {}
