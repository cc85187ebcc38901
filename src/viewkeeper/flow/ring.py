"""Ring: which view manager owns a place.

In: the number of places and of managers. Out: an owner for each place. Always: shares differ by at most one; adding a
manager to n moves about 1/(n+1) of the places, all of them to the new one, and none between two that were there before
(paper 1, section 3.2: consistent hashing; a fixed number of places makes the balance exact).
"""

from __future__ import annotations

from viewkeeper.errors import InputError


def owners_of_places(places: int, managers: int) -> list[int]:
    """`owners[place]` is a manager from 0 to managers − 1."""
    if not 1 <= managers <= places:
        raise InputError(f"{managers} view managers cannot share {places} places", f"use 1 to {places}")
    owners = [0] * places
    for newcomer in range(1, managers):
        for _ in range(places // (newcomer + 1)):
            shares = [owners.count(manager) for manager in range(newcomer)]
            richest = shares.index(max(shares))
            owners[len(owners) - 1 - owners[::-1].index(richest)] = newcomer
    return owners
