"""Ring: which view manager owns a shard, that is, a partition or a part of one.

In: the number of partitions and of managers. Out: an owner for each shard. Always: shares differ by at most one shard; adding
a manager to n moves about 1/(n+1) of the keys, all of them to the new one, and none between two that were there before (paper
1, section 3.2: consistent hashing; a fixed number of shards makes the balance exact). Up to one manager for each partition,
shards are whole partitions, and no two managers write to one, unless a hot one is divided (`balance`).
"""

from __future__ import annotations

from viewkeeper.errors import InputError

_SHARDS_EACH = 4  # at least, where partitions are divided: so shares are even to about a quarter


def owners_of_shards(partitions: int, managers: int) -> list[int]:
    """`owners[hash % len(owners)]` is a manager from 0 to managers − 1; the length is a multiple of `partitions`.

    So a shard lies in one partition. Twice as many shards, each with the owner of the shard that it was half of, move
    nothing.
    """
    if managers < 1:
        raise InputError(f"{managers} view managers cannot do any work", "use 1 or more")
    owners = [0] * partitions
    for newcomer in range(1, managers):
        while newcomer >= partitions and len(owners) < _SHARDS_EACH * (newcomer + 1):
            owners += owners
        shares = [owners.count(manager) for manager in range(newcomer)]
        for _ in range(len(owners) // (newcomer + 1)):
            richest = shares.index(max(shares))
            shares[richest] -= 1
            owners[len(owners) - 1 - owners[::-1].index(richest)] = newcomer
    return owners
