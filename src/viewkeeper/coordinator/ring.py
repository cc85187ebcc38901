"""Ring: which view manager owns a partition.

In: the number of partitions and of managers. Out: an owner for each partition. Always: shares differ by at most one; adding a
manager to n moves about 1/(n+1) of the partitions, all of them to the new one, and none between two that were there before
(paper 1, section 3.2: consistent hashing; a fixed number of partitions makes the balance exact).
"""

from __future__ import annotations

from viewkeeper.errors import InputError


def owners_of_partitions(partitions: int, managers: int) -> list[int]:
    """`owners[partition]` is a manager from 0 to managers − 1."""
    if not 1 <= managers <= partitions:
        raise InputError(f"{managers} view managers cannot share {partitions} partitions", f"use 1 to {partitions}")
    owners = [0] * partitions
    for newcomer in range(1, managers):
        for _ in range(partitions // (newcomer + 1)):
            shares = [owners.count(manager) for manager in range(newcomer)]
            richest = shares.index(max(shares))
            owners[len(owners) - 1 - owners[::-1].index(richest)] = newcomer
    return owners
