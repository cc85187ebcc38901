"""The ring: even shares, and no key moves that need not (paper 1, section 3.2)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.coordinator.view_managers import owners_of_shards
from viewkeeper.errors import InputError

SIZES = st.integers(1, 64).flatmap(lambda partitions: st.tuples(st.just(partitions), st.integers(1, partitions)))


@given(SIZES)
def test_every_partition_has_an_owner_and_shares_differ_by_one_at_most(size: tuple[int, int]) -> None:
    partitions, managers = size
    owners = owners_of_shards(partitions, managers)
    shares = Counter(owners)

    assert len(owners) == partitions
    assert set(shares) == set(range(managers))
    assert max(shares.values()) - min(shares.values()) <= 1


@given(SIZES.filter(lambda size: size[0] > size[1]))
def test_a_manager_that_joins_only_takes(size: tuple[int, int]) -> None:
    partitions, managers = size
    before, after = owners_of_shards(partitions, managers), owners_of_shards(partitions, managers + 1)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]

    assert set(moved) <= {managers}  # all to the newcomer, none between two that were there
    assert len(moved) == partitions // (managers + 1)


MORE = st.integers(1, 16).flatmap(
    lambda partitions: st.tuples(st.just(partitions), st.integers(partitions, 5 * partitions))
)


@given(MORE)
def test_more_managers_than_partitions_divide_them_and_a_newcomer_only_takes(size: tuple[int, int]) -> None:
    partitions, managers = size
    before, after = owners_of_shards(partitions, managers), owners_of_shards(partitions, managers + 1)
    shares = Counter(after)
    moved = {(before[shard % len(before)], new) for shard, new in enumerate(after)}

    assert len(after) % partitions == 0 and len(after) % len(before) == 0  # a shard lies in one partition
    assert set(shares) == set(range(managers + 1)) and min(shares.values()) >= 3
    assert max(shares.values()) - min(shares.values()) <= 1
    assert {new for old, new in moved if old != new} == {managers}


@pytest.mark.parametrize("managers", [-1, 0])
def test_no_managers_are_refused(managers: int) -> None:
    with pytest.raises(InputError, match="cannot do any work"):
        owners_of_shards(8, managers)
