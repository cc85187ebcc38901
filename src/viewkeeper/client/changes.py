"""Changes: what each committed epoch did to the records of a view.

In: the steps of records, and the epochs asked for. Out: changes ordered by epoch and key. Always: only committed epochs
that are not aborted; a version that shows a reader nothing new (an epoch whose effects cancel out, or that changed only
what the view does not show) is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewkeeper.errors import ChangesLost, InputError
from viewkeeper.model.values import are_stored_alike

if TYPE_CHECKING:
    from viewkeeper.model.moments import Moment, Step

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """One record in one epoch: `before` is None if it was inserted, `after` if it was deleted."""

    epoch: int
    key: tuple[object, ...]
    before: Row | None
    after: Row | None


class Changes:
    """The changes of the epochs after `since` up to `epoch`; ask next time with `since=changes.epoch`."""

    def __init__(self, since: int, epoch: int, steps: list[Step], decode: Callable[[Step], Change]) -> None:
        self.since = since
        self.epoch = epoch
        self._steps = steps
        self._decode = decode

    def __iter__(self) -> Iterator[Change]:
        for step in self._steps:
            change = self._decode(step)
            if not _shows_the_same(change.before, change.after):
                yield change


def require_kept(label: str, since: object, moment: Moment, filled: int) -> int:
    """`since`, if all changes after it are still kept at `moment`."""
    if not isinstance(since, int) or isinstance(since, bool) or since < 0:
        raise InputError(f"since={since!r} is not an epoch", "pass the epoch of a snapshot, or of earlier changes")
    if since > moment.epoch:
        raise InputError(f"epoch {since} is not committed yet, {moment.epoch} is", "pass an epoch that was read")
    # a backfill does not show which records readers may have seen before the view was filled anew
    oldest = max(moment.horizon.floor, filled)
    if since < oldest:
        raise ChangesLost(
            f"the changes of {label} since epoch {since} are no longer all there",
            f"scan the view instead; changes may be asked for since epoch {oldest}",
        )
    return since


def _shows_the_same(before: Row | None, after: Row | None) -> bool:
    if before is None or after is None:
        return before is after
    return all(are_stored_alike(after[name], value) for name, value in before.items())
