"""Histories: random sequences of changes to one table, and what a table holds after them.

In: a seed, or a hypothesis draw. Out: changes as plain values. Always: the same seed gives the same history; the model
(`apply`) is written from `docs/api.md` and shares no code with the product.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import strategies as st

from tests.support.edge_values import texts

Key = tuple[object, ...]
Model = dict[Key, dict[str, object]]

VALUE_COLUMNS = {
    "x": "STRING",
    "y": "BIGINT",
    "i": "INT",
    "d": "DECIMAL(12,2)",
    "b": "BOOLEAN",
    "z": "BINARY",
    "f": "DOUBLE",
    "day": "DATE",
}
EVENTS = (
    "put of all columns",
    "partial put",
    "put of nothing",
    "column delete",
    "column delete of an absent row",
    "row delete",
    "row delete of an absent row",
    "re-insert",
    "NULL written",
    "group key changed",
    "group became empty",
    "hot key",
    "unicode key",
    "key with a NUL",
    "binary key",
    "composite key",
    "long key",
    "DECIMAL written",
    "largest BIGINT",
    "NaN written",
    "infinity written",
    "-0.0 written",
    "double near the end of its range",
    "long text written",
)
_BIG = (2**63 - 1, -(2**63), 2**62, -(2**62))
_EDGES = (1e308, -1e308, 1.7976931348623157e308, 5e-324, -2.2250738585072014e-308, 1e16, 2.0**53 + 2)
_HOT = 6  # changes of one key in one history
_LONG = texts((125, 126, 127, 128, 256, 500, 2_000, 5_000))  # the same ones in all histories


@dataclass(frozen=True, slots=True)
class Change:
    """One client operation: `put` of columns, `clear` of columns, or `delete` of the row."""

    kind: str
    key: Key
    columns: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """The key of a table: its columns, and which of the events its keys can show."""

    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def ddl(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in (*self.columns, *VALUE_COLUMNS.items()))
        return f"({columns}, PRIMARY KEY ({', '.join(name for name, _ in self.columns)}))"


TEXT = Shape("text", (("k", "STRING"),))
COMPOSITE = Shape("composite", (("k", "BINARY"), ("k2", "BIGINT")))


def apply(model: Model, change: Change) -> None:
    """What a change does to a table: a row is there from its first put to its row delete."""
    match change.kind:
        case "put":
            row = model.setdefault(change.key, dict.fromkeys(VALUE_COLUMNS))
            row.update(change.columns)
        case "clear":
            if change.key in model:
                model[change.key].update(dict.fromkeys(name for name, _ in change.columns))
        case "delete":
            model.pop(change.key, None)


def state_after(changes: Sequence[Change]) -> Model:
    model: Model = {}
    for change in changes:
        apply(model, change)
    return model


class HistoryMaker:
    """Makes histories and counts what happens in them."""

    def __init__(self, shape: Shape, seed: int, seen: Counter[str] | None = None) -> None:
        self._shape = shape
        self._random = random.Random(seed)
        self._seen = Counter() if seen is None else seen

    def history(self, number: int, steps: int) -> list[Change]:
        """`steps` changes of the rows of history `number`, which are no other history's."""
        keys = [self._key(number, place) for place in range(self._random.randint(2, 8))]
        changes: list[Change] = []
        model: Model = {}
        known: set[Key] = set()
        touched: Counter[Key] = Counter()
        for _ in range(steps):
            key = keys[0] if self._random.random() < 0.3 else self._random.choice(keys)
            change = self._change(number, key, model)
            self._count(change, model, known)
            apply(model, change)
            known |= model.keys()
            touched[key] += 1
            changes.append(change)
        self._seen["hot key"] += max(touched.values(), default=0) >= _HOT
        return changes

    def interleaved(self, first: int, histories: int, steps: int) -> list[Change]:
        """Several histories, each in its own order, shuffled into each other."""
        waiting = [self.history(first + place, steps) for place in range(histories)]
        turns = [place for place, history in enumerate(waiting) for _ in history]
        self._random.shuffle(turns)
        iterators = [iter(history) for history in waiting]
        return [next(iterators[place]) for place in turns]

    def _key(self, number: int, place: int) -> Key:
        form = self._random.choice(("plain", "odd", "long"))
        if self._shape is TEXT:
            tail = {
                "plain": "",
                "odd": self._random.choice(("ключ", "\x00", "é", "🜁\x00\x00", "ÿ\uffff")),
                "long": "ж" * 300,
            }
            return (f"h{number}{tail[form]}{place}",)
        tail = {
            "plain": b"",
            "odd": self._random.choice((b"\x00", b"\xff\xff", b"\x00\xff\x00")),
            "long": b"\xfe" * 520,
        }
        return (b"h%d" % number + tail[form], place - 3)

    def _change(self, number: int, key: Key, model: Model) -> Change:
        draw = self._random.random()
        if draw < 0.12:
            return Change("delete", key)
        if draw < 0.22:
            names = self._random.sample(list(VALUE_COLUMNS), self._random.randint(1, 3))
            return Change("clear", key, tuple((name, None) for name in names))
        if draw < 0.24:
            return Change("put", key)
        if draw < 0.60:
            names = self._random.sample(list(VALUE_COLUMNS), self._random.randint(1, 3))
        else:
            names = list(VALUE_COLUMNS)
        return Change("put", key, tuple((name, self._value(number, name)) for name in names))

    def _value(self, number: int, column: str) -> object:
        choose = self._random.choice
        if self._random.random() < 0.12:
            return None
        match column:
            case "x" if self._random.random() < 0.1:
                return choose(_LONG[:2]) if self._random.random() < 0.7 else choose(_LONG)
            case "z" if self._random.random() < 0.1:
                return choose(_LONG).encode()
            case "x":
                return choose((f"g{number}", f"g{number}ü\x00", f"g{number}-2", "", "all"))
            case "y":
                return choose(_BIG) if self._random.random() < 0.04 else self._random.randint(-50, 50)
            case "i":
                return choose((0, 1, 2, 3, -(2**31), 2**31 - 1))
            case "d":
                return choose(
                    (Decimal("0.05"), Decimal("-9999999999.99"), Decimal(self._random.randint(-999, 999)) / 100)
                )
            case "b":
                return choose((True, False))
            case "z":
                return choose((b"", b"\x00", b"\xff" * 3, bytes([self._random.randrange(256)])))
            case "f":
                if self._random.random() < 0.5:
                    return choose((self._random.random(), -1.5, 0.1, 3.0))
                return choose((0.0, -0.0, float("nan"), float("inf"), -float("inf"), *_EDGES))
        return dt.date(1969, 12, 28) + dt.timedelta(days=self._random.randrange(9))

    def _count(self, change: Change, model: Model, known: set[Key]) -> None:
        seen = self._seen
        self._count_key(change.key)
        before = model.get(change.key)
        if change.kind == "delete":
            seen["row delete" if before else "row delete of an absent row"] += 1
        elif change.kind == "clear":
            seen["column delete" if before else "column delete of an absent row"] += 1
        else:
            full = len(change.columns) == len(VALUE_COLUMNS)
            seen["put of all columns" if full else "partial put" if change.columns else "put of nothing"] += 1
            seen["re-insert"] += before is None and change.key in known
            values = dict(change.columns)
            seen["NULL written"] += None in values.values()
            seen["DECIMAL written"] += values.get("d") is not None
            seen["largest BIGINT"] += values.get("y") in (2**63 - 1, -(2**63))
            double = values.get("f")
            seen["NaN written"] += double != double
            seen["infinity written"] += double in (float("inf"), -float("inf"))
            seen["-0.0 written"] += str(double) == "-0.0"
            seen["double near the end of its range"] += double in _EDGES
            seen["long text written"] += values.get("x") in _LONG
        after = {key: dict(row) for key, row in model.items()}
        apply(after, change)
        row = after.get(change.key)
        if before and row and before["x"] != row["x"]:
            seen["group key changed"] += 1
        own = before is not None and str(before["x"]).startswith("g")  # a group that no other history writes to
        if own and before["x"] not in {other["x"] for other in after.values()}:
            seen["group became empty"] += 1

    def _count_key(self, key: Key) -> None:
        first = key[0]
        self._seen["binary key"] += isinstance(first, bytes)
        self._seen["composite key"] += len(key) > 1
        encoded = first if isinstance(first, bytes) else str(first).encode()
        self._seen["unicode key"] += isinstance(first, str) and not first.isascii()
        self._seen["key with a NUL"] += b"\x00" in encoded
        self._seen["long key"] += len(encoded) > 511


def chunks(changes: Sequence[Change], seed: int, *, most: int) -> Iterator[list[Change]]:
    """The changes in runs of random length, each to be written before the next epoch."""
    choose, at = random.Random(seed), 0
    while at < len(changes):
        size = choose.randint(1, most)
        yield list(changes[at : at + size])
        at += size


def histories(shape: Shape, *, steps_max: int = 40) -> st.SearchStrategy[list[Change]]:
    """One history as a hypothesis strategy; it shrinks to fewer steps."""
    return st.builds(
        lambda seed, steps: HistoryMaker(shape, seed).history(0, steps),
        st.integers(0, 2**32 - 1),
        st.integers(1, steps_max),
    )
