"""Set aside: the rows on which a view's SQL fails, and the groups with a value that does not fit.

In: an open store and a committed epoch. Out: how many there are, and their keys. Always: both are records of auxiliary
tables, so one leaves the list with the epoch that repairs it. Rows that an operator has dropped are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from viewkeeper.catalog.catalog import Catalog, ErrorList, ViewDefinition
from viewkeeper.client.arguments import key_values
from viewkeeper.client.session import Snapshot
from viewkeeper.model.epochs import DROPPED
from viewkeeper.model.schema import TableId

SHOWN_MAX = 5
Why = Callable[[TableId, bytes], str | None]  # the reason of a row, by the table that lists it and its key there


@dataclass(frozen=True, slots=True)
class Listed:
    """How many keys a list holds, and the first of them; for rows set aside also the reason of each, where known."""

    count: int
    keys: tuple[tuple[object, ...], ...]
    reasons: tuple[str | None, ...] = ()


NONE = Listed(0, ())


@dataclass(frozen=True, slots=True)
class AsideRow:
    """A row on which a view's SQL fails: its key in the source, and the reason where known. `dropped`: by an operator."""

    key: tuple[object, ...]
    reason: str | None
    dropped: bool = False


def set_aside(
    snapshot: Snapshot, view: ViewDefinition, why: Why | None = None, *, filled: Collection[int] | None = None
) -> Listed:
    """The rows on which the view's expressions fail, by their keys: of base tables, or of what is joined or grouped.

    `why` is called, with the table that lists a row, for the reason of those that are shown. `filled`: the tables that
    have records, where that is known.
    """
    lists = [one for one in error_lists(snapshot.catalog, view, "aside") if filled is None or one.table in filled]
    return _listed(((one, listed_rows(snapshot, one.table)) for one in lists), why)


def each_set_aside(snapshot: Snapshot, view: ViewDefinition, why: Why, *, with_dropped: bool) -> Iterator[AsideRow]:
    """All rows that a view sets aside, each with its reason; those that were dropped if these are asked for."""
    for listed in error_lists(snapshot.catalog, view, "aside"):
        for key, row in snapshot.pairs_of(listed.table):
            if with_dropped or row != DROPPED:
                yield AsideRow(key_values(listed.key, key), why(listed.table, key), row == DROPPED)


def degraded(snapshot: Snapshot, view: ViewDefinition, *, filled: Collection[int] | None = None) -> Listed:
    """The groups with a value that does not fit its type and reads NULL; `filled` as in `set_aside`."""
    lists = [one for one in error_lists(snapshot.catalog, view, "degraded") if filled is None or one.table in filled]
    return _listed((one, _own_keys(snapshot, view, one)) for one in lists)


def _own_keys(snapshot: Snapshot, view: ViewDefinition, listed: ErrorList) -> Iterator[bytes]:
    """The keys of a list; of one that views share, those of the records that read NULL in this view."""
    if view.sharing is None or listed not in view.node.exceptions:
        yield from snapshot.keys_of(listed.table)
        return
    reader = snapshot.view(view.name)
    for key in snapshot.keys_of(listed.table):
        record = reader.get(*key_values(listed.key, key))
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
    read = {source for node in catalog.stored(view) for source in node.reads}
    tables = [catalog.tables_by_id[one] for one in sorted(read & catalog.tables_by_id.keys())]
    return [
        ErrorList("aside", table.foreign.aside, table.key_columns)
        for table in tables
        if table.foreign and table.foreign.aside is not None
    ]


def _listed(lists: Iterable[tuple[ErrorList, Iterator[bytes]]], why: Why | None = None) -> Listed:
    shown: list[tuple[object, ...]] = []
    reasons: list[str | None] = []
    count = 0
    for one, keys in lists:
        for key in keys:
            if count < SHOWN_MAX:
                shown.append(key_values(one.key, key))
                reasons += [why(one.table, key)] if why else []
            count += 1
    return Listed(count, tuple(shown), tuple(reasons))
