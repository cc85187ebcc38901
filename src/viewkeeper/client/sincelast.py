"""Since the last check: which views can be judged by what changed since, and what that is.

In: cases, and what the store remembers of earlier checks. Out: the same cases, those of which only touched records are to be
compared marked so, the others with the reason. Always: only after a check that found nothing, as long as the log holds every
change since, and the records are those that were checked; whatever is in doubt is checked as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from viewkeeper.check.affected import affected_by_changes
from viewkeeper.client.judging import Case
from viewkeeper.errors import PositionLost
from viewkeeper.model.positions import Position, Positions

if TYPE_CHECKING:
    from viewkeeper.client.session import Snapshot
    from viewkeeper.model.verdicts import Checked
    from viewkeeper.ports.store import Store


def since_last(
    store: Store, snapshot: Snapshot, checked: Mapping[int, Checked], cases: Sequence[Case]
) -> tuple[list[Case], Positions]:
    """The cases, and the positions from which on changes are to be read for those that are judged by them."""
    stop = snapshot.horizon.positions
    tables = [case.view.node.table for case in cases]
    starts = {checked[table].epoch: checked[table].positions for table in tables if table in checked}
    logged = frozenset(epoch for epoch, start in starts.items() if _is_logged(store, start, stop))
    found = [_marked(snapshot, checked.get(case.view.node.table), case, logged) for case in cases]
    used = [starts[case.since] for case in found if case.since is not None]
    return found, {stream: min((one.get(stream, Position(0)) for one in used), default=stop[stream]) for stream in stop}


def _marked(snapshot: Snapshot, last: Checked | None, case: Case, logged: frozenset[int]) -> Case:
    affected = affected_by_changes(snapshot.catalog, case.view)
    why = _why_whole(snapshot, last, case, logged) or affected.why_not
    if last is None or why is not None or case.question.key is None:
        return replace(case, why_whole=why or "its text does not tell the key of its records")
    return replace(case, since=last.epoch, affected=affected.sql)


def _why_whole(snapshot: Snapshot, last: Checked | None, case: Case, logged: frozenset[int]) -> str | None:
    """Why the last check cannot be built upon; the log holds all changes after the epochs that are `logged`."""
    if last is None or not last.whole:
        return "no check of it is known"
    if last.findings:
        return f"the check as of epoch {last.epoch} found it wrong"
    if snapshot.horizon.filled.get(case.view.node.backfill, 0) > last.epoch:
        return f"it was filled anew after epoch {last.epoch}"
    if last.epoch > snapshot.epoch:
        return f"another check ended meanwhile, as of epoch {last.epoch}"
    if any(table.delta is not None for table in case.question.tables.values()):
        return "the log does not hold rows as they were before a change"
    return None if last.epoch in logged else f"the log no longer holds all changes after epoch {last.epoch}"


def _is_logged(store: Store, start: Positions, stop: Positions) -> bool:
    if not start.keys() <= store.ends().keys():  # a node was removed, with its log
        return False
    try:
        for stream, end in stop.items():
            next(store.read_log(stream, start.get(stream, Position(0)), end), None)
    except PositionLost:
        return False
    return True
