"""Statements as values: what a text requests, before any name is looked up.

In: nothing. Out: one frozen dataclass for each kind of statement. Always: names and queries are the user's own characters.
"""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass

from viewkeeper.model.schema import Column

Value = bool | int | float | decimal.Decimal | str | bytes | datetime.date | datetime.datetime | None
# In the meta of a node of sqlglot's tree: the user's spelling of a function or type.
WRITTEN = "written"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`using` and `options` map the table to one of the store's users: see `table_options`."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    if_not_exists: bool
    using: str | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ALTER TABLE … ADD COLUMN: the columns are nullable and come last."""

    table: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class AddNode:
    """ALTER STORE ADD NODE."""


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """ALTER STORE REMOVE NODE."""

    number: int


@dataclass(frozen=True, slots=True)
class Drop:
    """`kind` is "table", "view" or "index"."""

    kind: str
    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateView:
    """`query_text` is the SELECT as the user wrote it: Spark judges the view by the same characters."""

    name: str
    query_text: str
    if_not_exists: bool
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class Rename:
    """ALTER … RENAME TO."""

    name: str
    new_name: str
    is_table: bool


@dataclass(frozen=True, slots=True)
class CreateIndex:
    name: str
    table: str
    columns: tuple[str, ...]
    covered: tuple[str, ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class ShowTables:
    pass


@dataclass(frozen=True, slots=True)
class ShowViews:
    pass


@dataclass(frozen=True, slots=True)
class OptimizeViews:
    """`without` are the names of rules that are off from now on."""

    without: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """`kind` is "table", "view" or "index"."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Describe:
    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """A view by name, a query that is not created, or (both None) all views."""

    name: str | None
    query_text: str | None


@dataclass(frozen=True, slots=True)
class Select:
    text: str


@dataclass(frozen=True, slots=True)
class Insert:
    """`columns` is empty if the statement names none: then the table's order applies."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Update:
    table: str
    assignments: tuple[tuple[str, Value], ...]
    key: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class DeleteRow:
    table: str
    key: tuple[tuple[str, Value], ...]


Statement = (
    CreateTable
    | AddColumns
    | AddNode
    | RemoveNode
    | Rename
    | Drop
    | CreateView
    | CreateIndex
    | ShowTables
    | ShowViews
    | OptimizeViews
    | ShowCreate
    | Describe
    | Explain
    | Select
    | Insert
    | Update
    | DeleteRow
)
