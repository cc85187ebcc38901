"""Parts: the streams of input that one node has.

In: a node. Out: numbers. Always: the same number means the same part in every manager; each part is routed by its own
hash, and all parts of a group by the hash of the group, so that they meet in one manager.
"""

from __future__ import annotations

from viewkeeper.plan.nodes import FoldNode, Node

MAIN = 0  # events of a copy or a top-n, contributions to the groups of a fold; a join has a part for each side
_FIRST = 1


def aside_part(feed: int) -> int:
    """Keys of rows of a feed on which the view's expression fails."""
    return -1 - feed


def feed_of_aside(part: int) -> int | None:
    """The feed whose rows set aside a part holds, if it does."""
    return -1 - part if part < 0 else None


def entries_part(place: int) -> int:
    """Multiplicities of the entries of the PRE-AGGREGATION at `place`."""
    return _FIRST + place


def double_part(node: FoldNode, place: int) -> int:
    """Mantissas by unit of the exact sum at `place`."""
    return _FIRST + len(node.entries) + place


def kind_of(node: Node | None, part: int) -> str:
    """What a part is: "events" of records, "contributions" to groups, "entries" or "doubles"; a DELTA has events."""
    if not isinstance(node, FoldNode) or part < 0:
        return "events"
    if part == MAIN:
        return "contributions"
    return "entries" if part < _FIRST + len(node.entries) else "doubles"
