"""Changes: what each committed epoch did to the records of a view.

In: version chains in key order, and the epochs asked for. Out: changes ordered by epoch and key. Always: only committed
epochs that are not void; a version that shows a reader nothing new (an epoch whose effects cancel out, or that moved only
what the view does not show) is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from viewkeeper.errors import ChangesLost, InputError

if TYPE_CHECKING:
    from viewkeeper.client.reading import Moment

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """One record in one epoch: `before` is None where the record is new, `after` where it is gone."""

    epoch: int
    key: tuple[object, ...]
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True)
class Step:
    """A change as it is stored."""

    epoch: int
    key: bytes
    before: bytes | None
    after: bytes | None


class Changes:
    """The changes of the epochs behind `since` up to `epoch`; ask next time with `since=changes.epoch`."""

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
    """`since`, if all that happened behind it is still known at `moment`."""
    if not isinstance(since, int) or isinstance(since, bool) or since < 0:
        raise InputError(f"since={since!r} is not an epoch", "pass the epoch of a snapshot, or of earlier changes")
    if since > moment.epoch:
        raise InputError(f"epoch {since} is not committed yet, {moment.epoch} is", "pass an epoch that was read")
    # what fills a view says nothing of the records that readers may have seen before it was filled anew
    oldest = max(moment.horizon.floor, filled)
    if since < oldest:
        raise ChangesLost(
            f"the changes of {label} since epoch {since} are no longer all there",
            f"scan the view instead; changes may be asked for since epoch {oldest}",
        )
    return since


def collect_steps(pairs: Iterable[tuple[bytes, bytes]], since: int, moment: Moment) -> list[Step]:
    """The steps of all chains behind `since`, ordered by epoch and key."""
    from viewkeeper.stores.versions import newest_epoch, versions_of

    steps: list[Step] = []
    for key, chain in pairs:
        if newest_epoch(chain) <= since:
            continue
        seen = [(e, row) for e, row in versions_of(chain) if e <= moment.epoch and e not in moment.void]
        olders = [*seen[1:], (0, None)]  # before the oldest version there was no record
        pairs_of_versions = zip(seen, olders, strict=False)  # `seen` is empty where a record is of an epoch in flight
        steps += [Step(e, key, before, row) for (e, row), (_, before) in pairs_of_versions if e > since]
    return sorted(steps, key=attrgetter("epoch"))


def _shows_the_same(before: Row | None, after: Row | None) -> bool:
    if before is None or after is None:
        return before is after
    # NaN equals NaN here as it does in SQL, although not in Python
    return all(
        after[name] == value or (value != value and after[name] != after[name]) for name, value in before.items()
    )
