"""Which shards are divided among all view managers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.coordinator.view_managers import UNEVEN, Balance, owners_of_shards

ROWS = st.lists(st.integers(0, 1_000_000), min_size=8, max_size=8)


def balance_of(rows: list[int]) -> Balance:
    return Balance().after(len(rows), dict(enumerate(rows)))


@given(ROWS, st.integers(1, 8))
def test_no_manager_is_left_with_much_more_than_its_share(rows: list[int], managers: int) -> None:
    owners, balance = owners_of_shards(8, managers), balance_of(rows)
    divided = balance.divided(owners)
    loads = balance.loads(owners, divided)

    assert abs(sum(loads) - sum(rows)) <= 1e-6 * sum(rows)
    assert max(loads) <= UNEVEN * sum(loads) / managers + 1e-6


@given(ROWS, st.integers(1, 8))
def test_no_shard_is_divided_without_need(rows: list[int], managers: int) -> None:
    owners, balance = owners_of_shards(8, managers), balance_of(rows)
    loads = balance.loads(owners, frozenset())

    assert bool(balance.divided(owners)) == (max(loads) > UNEVEN * sum(loads) / managers)


def test_only_the_hot_shard_is_divided() -> None:
    assert balance_of([10, 10, 10, 900, 10, 10, 10, 10]).divided(owners_of_shards(8, 4)) == {3}
    assert balance_of([10] * 8).divided(owners_of_shards(8, 4)) == frozenset()
    assert balance_of([10, 10, 10, 900, 10, 10, 10, 10]).divided([0] * 8) == frozenset()


def test_what_was_measured_with_other_shards_is_forgotten() -> None:
    hot = balance_of([0, 0, 0, 900, 0, 0, 0, 0])

    assert hot.divided(owners_of_shards(8, 11)) == frozenset()
    assert hot.after(64, {1: 5}).rows == (0.0, 5.0, *[0.0] * 62)


def test_a_skew_that_ended_is_forgotten_epoch_by_epoch() -> None:
    balance = balance_of([0, 0, 0, 1_000, 0, 0, 0, 0])
    for _ in range(6):
        balance = balance.after(8, dict.fromkeys(range(8), 1_000))

    assert balance.divided(owners_of_shards(8, 4)) == frozenset()
