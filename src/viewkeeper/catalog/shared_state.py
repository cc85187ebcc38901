"""Shared state: which views are computed by one γ or one copy.

In: nothing; OPTIMIZE makes these values. Out: frozen values that go to JSON and back. Always: a sharing keeps the texts of
all views that its node was made from, dropped ones too, because the node is found by its canonical text.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.model.schema import TableId


@dataclass(frozen=True, slots=True)
class Source:
    """A view's text, and what it means: `names` maps each name in it to a table or view, with its columns at `written`."""

    text: str
    names: tuple[tuple[str, TableId], ...]
    written: TableId


@dataclass(frozen=True, slots=True)
class Sharing:
    """The γ that all `members` are read from."""

    id: TableId
    members: tuple[Source, ...]
