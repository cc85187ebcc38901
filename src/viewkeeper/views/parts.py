"""Parts: the streams of input that one node has.

In: a node. Out: numbers. Always: the same number means the same part in every manager; each part is routed by its own
hash, and all parts of a group by the hash of the group, so that they meet in one manager.
"""

from __future__ import annotations

from viewkeeper.plan.physical import FoldNode

MAIN = 0  # events of a copy, contributions to the groups of a fold
ASIDE = 1  # base keys of rows on which the view's expression fails
_FIRST = 2


def entries_part(place: int) -> int:
    """Multiplicities of the entries of the PRE-AGGREGATION at `place`."""
    return _FIRST + place


def double_part(node: FoldNode, place: int) -> int:
    """Mantissas by unit of the exact sum at `place`."""
    return _FIRST + len(node.entries) + place


def kind_of(node: FoldNode, part: int) -> str:
    """What a part of a fold is: "main", "aside", "entries" or "doubles"."""
    if part < _FIRST:
        return "aside" if part == ASIDE else "main"
    return "entries" if part < _FIRST + len(node.entries) else "doubles"
