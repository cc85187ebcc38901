"""Set aside: rows set aside, and groups whose value does not fit.

In: an open store and a committed epoch. Out: how many there are, and their keys. Always: both are records of auxiliary
tables, maintained by the same epochs, so a row or group leaves the list with the epoch that repairs it. Rows that an operator
has dropped are not told of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import ErrorList
from viewkeeper.model.epochs import DROPPED
from viewkeeper.model.keys import decode_key
from viewkeeper.model.schema import Column
from viewkeeper.model.stored_values import from_stored

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import Catalog, ViewDefinition
    from viewkeeper.client.session import Snapshot
    from viewkeeper.model.schema import TableId

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """How many keys a list holds, and the first of them; for rows set aside also the reason of each, where known."""

    count: int
    keys: tuple[tuple[object, ...], ...]
    reasons: tuple[str | None, ...] = ()


NONE = Listed(0, ())


@dataclass(frozen=True, slots=True)
class AsideRow:
    """A row on which a view's SQL fails: its key in the source, and why, where that is known. `dropped`: by an operator."""

    key: tuple[object, ...]
    reason: str | None
    dropped: bool = False


def set_aside(
    snapshot: Snapshot,
    view: ViewDefinition,
    why: Callable[[TableId, bytes], str | None] | None = None,
    *,
    filled: Collection[int] | None = None,
) -> Listed:
    """The rows on which the view's expressions fail, by their keys: of base tables, or of what is joined or grouped.

    `why` is called, with the table that lists a row, for the reason of those that are shown. `filled`: the tables that have
    records, where that is known.
    """
    return _together(
        _listed(listed_rows(snapshot, listed.table), listed.key, partial(why, listed.table) if why else None)
        for listed in error_lists(snapshot.catalog, view, "aside")
        if filled is None or listed.table in filled
    )


def each_set_aside(
    snapshot: Snapshot, view: ViewDefinition, why: Callable[[TableId, bytes], str | None], *, with_dropped: bool
) -> Iterator[AsideRow]:
    """All rows that a view sets aside, each with its reason; those that were dropped if these are asked for."""
    for listed in error_lists(snapshot.catalog, view, "aside"):
        for key, row in snapshot.pairs_of(listed.table):
            if with_dropped or row != DROPPED:
                yield AsideRow(_decoded(listed.key, key), why(listed.table, key), row == DROPPED)


def degraded(snapshot: Snapshot, view: ViewDefinition, *, filled: Collection[int] | None = None) -> Listed:
    """The groups with a value that does not fit its type and reads NULL; `filled` as in `set_aside`."""
    lists = error_lists(snapshot.catalog, view, "degraded")
    return _together(
        _listed(_own_keys(snapshot, view, listed), listed.key)
        for listed in lists
        if filled is None or listed.table in filled
    )


def _own_keys(snapshot: Snapshot, view: ViewDefinition, listed: ErrorList) -> Iterator[bytes]:
    """The keys of a list; of one that views share, those of the records that read NULL in this view."""
    if view.sharing is None or listed not in view.node.exceptions:
        yield from snapshot.keys_of(listed.table)
        return
    reader = snapshot.view(view.name)
    for key in snapshot.keys_of(listed.table):
        record = reader.get(*(from_stored(c, v) for c, v in zip(listed.key, decode_key(listed.key, key), strict=True)))
        if record is not None and None in [record[one.column.name] for one in view.shown if one.part == "row"]:
            yield key


def has_listed_errors(snapshot: Snapshot, view: ViewDefinition) -> bool:
    """Whether a row is set aside, dropped or not, or a group degraded."""
    nodes = snapshot.catalog.stored(view)
    return any(True for node in nodes for listed in node.exceptions for _ in snapshot.keys_of(listed.table))


def listed_rows(snapshot: Snapshot, table: int, *, with_dropped: bool = False) -> Iterator[bytes]:
    """The keys of rows that a list holds; without those that an operator has dropped, unless these are asked for."""
    return (key for key, row in snapshot.pairs_of(table) if with_dropped or row != DROPPED)


def error_lists(catalog: Catalog, view: ViewDefinition, kind: str) -> list[ErrorList]:
    """The lists of a view, and those of the foreign tables that it reads."""
    nodes = catalog.stored(view)
    found = [listed for node in nodes for listed in node.exceptions if listed.kind == kind]
    return found + (undecoded_of(catalog, view) if kind == "aside" else [])


def undecoded_of(catalog: Catalog, view: ViewDefinition) -> list[ErrorList]:
    """The lists of rows with a cell that does not decode, of the foreign tables that a view reads."""
    known, read = catalog.tables_by_id, {source for node in catalog.stored(view) for source in node.reads}
    foreign = [(known[one], known[one].foreign) for one in sorted(read & known.keys())]
    return [ErrorList("aside", one.aside, table.key_columns) for table, one in foreign if one and one.aside is not None]


def _together(lists: Iterable[Listed]) -> Listed:
    found = list(lists)
    shown = [key for listed in found for key in listed.keys]
    reasons = [reason for listed in found for reason in listed.reasons]
    return Listed(sum(listed.count for listed in found), tuple(shown[:SHOWN_MAX]), tuple(reasons[:SHOWN_MAX]))


def _listed(
    keys: Iterator[bytes], columns: tuple[Column, ...], why: Callable[[bytes], str | None] | None = None
) -> Listed:
    shown: list[tuple[object, ...]] = []
    reasons: list[str | None] = []
    count = 0
    for key in keys:
        if count < SHOWN_MAX:
            shown.append(_decoded(columns, key))
            reasons += [why(key)] if why else []
        count += 1
    return Listed(count, tuple(shown), tuple(reasons))


def _decoded(columns: tuple[Column, ...], key: bytes) -> tuple[object, ...]:
    return tuple(from_stored(column, value) for column, value in zip(columns, decode_key(columns, key), strict=True))
