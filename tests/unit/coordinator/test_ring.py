"""The ring: even shares, and no partition moves that need not (paper 1, section 3.2)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.coordinator.ring import owners_of_partitions
from viewkeeper.errors import InputError

SIZES = st.integers(1, 64).flatmap(lambda partitions: st.tuples(st.just(partitions), st.integers(1, partitions)))


@given(SIZES)
def test_every_partition_has_an_owner_and_shares_differ_by_one_at_most(size: tuple[int, int]) -> None:
    partitions, managers = size
    owners = owners_of_partitions(partitions, managers)
    shares = Counter(owners)

    assert len(owners) == partitions
    assert set(shares) == set(range(managers))
    assert max(shares.values()) - min(shares.values()) <= 1


@given(SIZES.filter(lambda size: size[0] > size[1]))
def test_a_manager_that_joins_only_takes(size: tuple[int, int]) -> None:
    partitions, managers = size
    before, after = owners_of_partitions(partitions, managers), owners_of_partitions(partitions, managers + 1)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]

    assert set(moved) <= {managers}  # all to the newcomer, none between two that were there
    assert len(moved) == partitions // (managers + 1)


@pytest.mark.parametrize("managers", [-1, 0, 9])
def test_more_managers_than_partitions_or_none_are_refused(managers: int) -> None:
    with pytest.raises(InputError, match="cannot share 8 partitions"):
        owners_of_partitions(8, managers)
