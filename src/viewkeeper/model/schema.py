"""Schemas: the columns of a table, and which of them are its key.

In: columns in declared order and the names of the key columns. Out: frozen values that go to JSON and back. Always: a
column's position never changes, because columns are added at the end. Each ALTER TABLE takes an id of the catalog, as
tables and views do, so ids show which columns a view's text was written for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NewType

from viewkeeper.errors import UnknownName
from viewkeeper.model.positions import Position, Stream
from viewkeeper.model.types import Encoding, SqlType, parse_type
from viewkeeper.model.wording import suggestion

TableId = NewType("TableId", int)


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column, never `nullable` in the key of a base table; `added` is the id of its ALTER TABLE, or 0."""

    name: str
    type: SqlType
    nullable: bool = True
    added: int = 0

    def to_json(self) -> list[object]:
        return [self.name, str(self.type), self.nullable, *([self.added] if self.added else [])]

    @staticmethod
    def from_json(value: list) -> Column:
        return Column(value[0], parse_type(value[1]), *value[2:])


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a foreign table keeps a column, and how: `family` and `qualifier` name the cell in each row."""

    family: str
    qualifier: str
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class Foreign:
    """A table of the store's own users, with a log of cells: its name there, and a cell for each value column.

    `using` is the word of its CREATE TABLE, `key` the encoding of the one key column, which is the row's key there. Earlier
    rows are copied to the log, by the staging of that number, and no view is readable before it has them: `staged` is None
    while they are copied, then the positions up to which the log has them, and empty when these are committed. `aside` is the
    table that lists the rows with a cell that does not decode, with the reason.
    """

    table: str
    cells: tuple[Cell, ...]
    key: Encoding = "text"
    staging: int = 1
    staged: tuple[tuple[Stream, Position], ...] | None = None
    using: str = "hbase"
    aside: TableId | None = None


@dataclass(frozen=True)
class TableSchema:
    """A base table: all columns in declared order, and the names of the key columns in key order.

    `delta` is the table of its DELTA, where the log has no before-images; a `foreign` table always has one. Not slotted, for
    cached properties: a table may have thousands of columns, and each write needs them.
    """

    id: TableId
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    delta: TableId | None = None
    foreign: Foreign | None = None

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.column(name) for name in self.key)

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns stored in the row's bytes: all that are not in the key."""
        key = frozenset(self.key)
        return tuple(column for column in self.columns if column.name not in key)

    @property
    def tables(self) -> tuple[TableId, ...]:
        aside = None if self.foreign is None else self.foreign.aside
        return tuple(number for number in (self.id, self.delta, aside) if number is not None)

    def position(self, name: str) -> int:
        """Index of the column named `name` (any case) among `columns`."""
        if (position := self._positions.get(name.lower())) is not None:
            return position
        names = [column.name for column in self.columns]
        raise UnknownName(f"table {self.name} has no column {name}", suggestion(name, names, "its columns are"))

    @cached_property
    def _positions(self) -> dict[str, int]:
        """Of each column's name in lower case; of two alike the first."""
        return {column.name.lower(): index for index, column in reversed(list(enumerate(self.columns)))}

    def column(self, name: str) -> Column:
        return self.columns[self.position(name)]

    def as_of(self, view: TableId) -> TableSchema:
        """The table as it was when the view with that id was written: without the columns added later."""
        if view >= self.columns[-1].added:
            return self
        return replace(self, columns=tuple(column for column in self.columns if column.added <= view))
