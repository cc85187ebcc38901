"""Relations over what views share: a γ, or a copy.

In: a view's relation, and those of all members of its sharing. Out: the same over the shared node. Always: what the
members are decides what they share.
"""

from __future__ import annotations

from viewkeeper.plan.rules import share_copies, share_groupings
from viewkeeper.plan.rules.share_groupings import Grouped
from viewkeeper.sql.relations import Relation


def fits(relation: Relation, members: tuple[Relation, ...]) -> bool:
    """Whether what `members` share has all that a view needs."""
    return (share_copies if Grouped.of(members[0]) is None else share_groupings).fits(relation, members)


def over_shared(relation: Relation, members: tuple[Relation, ...]) -> Relation:
    """A view's relation over what `members` share, one of which it is, or is like."""
    return (share_copies if Grouped.of(members[0]) is None else share_groupings).over_shared(relation, members)
