"""The tables of the random views: their columns, random histories of their rows, and a model of what they hold.

In: a random source. Out: changes as plain values. Always: few different values, so that joins meet and sets overlap; the
model is written from `docs/api.md` and shares no code with the product.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa

from tests.support.edge_values import FEW_LENGTHS, texts
from tests.support.random_conditions import DATES
from tests.support.random_from import Column, Relation
from tests.support.random_values import STRINGS
from tests.support.sql_texts import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, Type, decimal

Key = tuple[object, ...]
Rows = dict[Key, dict[str, object]]
_SIZES = {"INT": 5, "BIGINT": 6, "DOUBLE": 4, "DECIMAL": 4}
_ROWS = 11.0  # how many there are of a table, about
_LONG = texts(FEW_LENGTHS)
_HERD = range(100, 190)  # keys of rows of `items` that change together


Named = tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table; `required` columns are NOT NULL, `late` ones are added when views are there already."""

    name: str
    key: Named
    values: Named
    required: tuple[str, ...] = ()
    late: Named = ()

    @property
    def columns(self) -> Named:
        return (*self.key, *self.values, *self.late)

    @property
    def ddl(self) -> str:
        shown = [f"{n} {t.text}{' NOT NULL' if n in self.required else ''}" for n, t in (*self.key, *self.values)]
        return f"CREATE TABLE {self.name} ({', '.join(shown)}, PRIMARY KEY ({', '.join(n for n, _ in self.key)}))"

    @property
    def late_ddl(self) -> list[str]:
        return [f"ALTER TABLE {self.name} ADD COLUMN {name} {type_.text}" for name, type_ in self.late]

    def relation(self, *, with_late: bool = False, wide: bool = False) -> Relation:
        never_null = {name for name, _ in self.key} | set(self.required)
        there = self.columns if with_late else (*self.key, *self.values)
        columns = (
            Column(name, type_, _SIZES.get(type_.kind, 0), nullable=name not in never_null) for name, type_ in there
        )
        rows = _ROWS + (len(_HERD) if wide and self is TABLES[0] else 0)
        return Relation(self.name, tuple(columns), rows, "table", grows=bool(self.late))

    def to_arrow(self, rows: Rows) -> pa.Table:
        keys = {name: [key[place] for key in rows] for place, (name, _) in enumerate(self.key)}
        values = {name: [row[name] for row in rows.values()] for name, _ in (*self.values, *self.late)}
        return pa.table({n: pa.array((keys | values)[n], _arrow(t)) for n, t in self.columns})


TABLES = (
    TableShape(
        "items",
        (("k", INT),),
        (("a", INT), ("b", BIGINT), ("s", STRING), ("d", decimal(8, 2)), ("f", DOUBLE), ("ok", BOOLEAN), ("day", DATE)),
    ),
    TableShape(
        "parts",
        (("s", STRING), ("n", INT)),
        (("a", INT), ("b", BIGINT), ("t", STRING), ("d", decimal(6, 1)), ("day", DATE)),
    ),
    TableShape("marks", (("k", BIGINT),), (("a", INT), ("s", STRING), ("f", DOUBLE), ("ok", BOOLEAN)), ("a",)),
    TableShape(
        "times",
        (("day", DATE), ("d", decimal(6, 1))),
        (("s", STRING), ("a", INT), ("b", BIGINT), ("ok", BOOLEAN)),
        late=(("z", INT),),
    ),
)


@dataclass(frozen=True, slots=True)
class RowChange:
    """One client operation on one table: `put`, `clear` of columns, or `delete`."""

    table: str
    kind: str
    key: Key
    columns: tuple[tuple[str, object], ...] = ()


class Tables:
    """What all tables hold after the changes so far."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows] = {shape.name: {} for shape in TABLES}

    def apply(self, change: RowChange) -> None:
        rows = self.rows[change.table]
        shape = next(one for one in TABLES if one.name == change.table)
        match change.kind:
            case "put":
                empty = dict.fromkeys(name for name, _ in (*shape.values, *shape.late))
                rows.setdefault(change.key, empty).update(change.columns)
            case "clear":
                if change.key in rows:
                    rows[change.key].update(dict.fromkeys(name for name, _ in change.columns))
            case "delete":
                rows.pop(change.key, None)


def random_changes(
    choose: random.Random, tables: Tables, count: int, *, with_late: bool = False, wide: bool = False
) -> list[RowChange]:
    """So many changes of rows that `tables` has or lacks; the model is brought along. `wide`: some texts are long."""
    changes = []
    for _ in range(count):
        shape = choose.choice(TABLES)
        there = (*shape.values, *shape.late) if with_late else shape.values
        change = _change(choose, replace(shape, values=there), tables)
        if wide:
            change = replace(change, columns=tuple((name, _lengthened(choose, old)) for name, old in change.columns))
        tables.apply(change)
        changes.append(change)
    return changes


def herd_changes(choose: random.Random, tables: Tables) -> list[RowChange]:
    """Changes of many rows of one table: most of them alike, so that many come into a view, or leave it, and few do the
    opposite."""
    shape, common = TABLES[0], choose.random() < 0.3
    alike = tuple((name, _lengthened(choose, _value(choose, type_, True))) for name, type_ in shape.values)
    changes = []
    for key in _HERD:
        own = tuple((name, _value(choose, type_, True)) for name, type_ in shape.values)
        written = (
            own if (key,) not in tables.rows[shape.name] or choose.random() < 0.1 else alike[: choose.randint(1, 7)]
        )
        kind = "delete" if common and choose.random() < 0.8 else "put"
        changes.append(RowChange(shape.name, kind, (key,), () if kind == "delete" else written))
        tables.apply(changes[-1])
    return changes


def _lengthened(choose: random.Random, value: object) -> object:
    """A long text in the place of some, often the same one."""
    if not isinstance(value, str) or choose.random() < 0.6:
        return value
    return _LONG[-1] if choose.random() < 0.5 else choose.choice(_LONG)


def _change(choose: random.Random, shape: TableShape, tables: Tables) -> RowChange:
    rows = tables.rows[shape.name]
    if rows and choose.random() < 0.5:
        key = choose.choice(list(rows))
    else:
        key = tuple(_key_part(choose, type_) for _, type_ in shape.key)
    draw = choose.random()
    optional = [name for name, _ in shape.values if name not in shape.required]
    if key in rows and draw < 0.12:
        return RowChange(shape.name, "delete", key)
    if draw < 0.2:
        names = choose.sample(optional, min(2, len(optional)))
        return RowChange(shape.name, "clear", key, tuple((name, None) for name in names))
    types = dict(shape.values)
    names = choose.sample(list(types), choose.randint(1, 2)) if draw < 0.55 else list(types)
    if key not in rows:
        names = list(dict.fromkeys((*names, *shape.required)))
    written = tuple((n, _value(choose, types[n], n not in shape.required)) for n in names)
    return RowChange(shape.name, "put", key, written)


def _key_part(choose: random.Random, type_: Type) -> object:
    match type_.kind:
        case "INT":
            return choose.randint(0, 4) if choose.random() < 0.5 else choose.randint(0, 15)
        case "BIGINT":
            return choose.randint(0, 13)
        case "STRING":
            return choose.choice(STRINGS[:5])
        case "DATE":
            return dt.date.fromisoformat(choose.choice(DATES))
    return Decimal(choose.choice(("0.5", "1.0", "1.5", "2.0")))


def _value(choose: random.Random, type_: Type, nullable: bool) -> object:
    if nullable and choose.random() < 0.12:
        return None
    match type_.kind:
        case "INT":
            return choose.choice((0, 1, 1, 2, 2, 3, 4, -1))
        case "BIGINT":
            return choose.choice((0, 1, 2, 2, 3, 5, -2))
        case "DOUBLE":
            return choose.choice((0.0, -0.0, 0.5, 0.5, 1.0, 1.5, -2.25, float("nan") if choose.random() < 0.2 else 1.0))
        case "DECIMAL":
            return Decimal(choose.choice(("0.5", "1.0", "1.5", "2.0", "-1.5")))
        case "STRING":
            return choose.choice(STRINGS)
        case "BOOLEAN":
            return choose.choice((True, True, False))
    return dt.date.fromisoformat(choose.choice(DATES))


def _arrow(type_: Type) -> pa.DataType:
    if type_.kind == "DECIMAL":
        return pa.decimal128(type_.digits, type_.scale)
    kinds = {
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "STRING": pa.string(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
    }
    return kinds[type_.kind]
