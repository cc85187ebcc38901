"""Troubles of views: rows set aside, and groups whose value does not fit.

In: an open store and a committed epoch. Out: how many there are, and their keys. Always: both are records of tables beside
the view, kept by the same epochs, so a row or group that is well again is gone from here with the epoch that made it well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewkeeper.model.keys import decode_key
from viewkeeper.model.schema import Column
from viewkeeper.model.values import from_stored
from viewkeeper.plan.physical import FoldNode

if TYPE_CHECKING:
    from viewkeeper.client.session import Snapshot
    from viewkeeper.plan.catalog import Catalog, ViewDefinition

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """How many keys a list holds, and the first of them."""

    count: int
    keys: tuple[tuple[object, ...], ...]


NONE = Listed(0, ())


def set_aside(snapshot: Snapshot, catalog: Catalog, view: ViewDefinition) -> Listed:
    """The base rows on which the view's expression fails."""
    if view.node.aside is None:
        return NONE
    return _listed(snapshot.keys_of(view.node.aside), catalog.table_by_id(view.source).key_columns)


def degraded(snapshot: Snapshot, view: ViewDefinition) -> Listed:
    """The groups of which a value does not fit its type and reads NULL."""
    if not isinstance(view.node, FoldNode) or view.node.degraded is None:
        return NONE
    return _listed(snapshot.keys_of(view.node.degraded), view.node.key)


def _listed(keys: Iterator[bytes], columns: tuple[Column, ...]) -> Listed:
    shown: list[tuple[object, ...]] = []
    count = 0
    for key in keys:
        if count < SHOWN_MAX:
            values = decode_key(columns, key)
            shown.append(tuple(from_stored(column, value) for column, value in zip(columns, values, strict=True)))
        count += 1
    return Listed(count, tuple(shown))
