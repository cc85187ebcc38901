"""One mutation of a foreign client, of any kind that Thrift offers.

In: a random source, and which rows the client alone gives explicit timestamps. Out: a kind, and a call. Always: a put is
never at or below the timestamp of an earlier delete of its row: once a major compaction has removed that delete, HBase shows
the put, and no log tells (docs/hbase.md). So rows are of three sorts: of some single versions are deleted, some get
timestamps of their client's choice, and are written by that client alone, and the others get whatever has none.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tests.support.hbase_soak.tables import MAPPINGS

ROWS = {"l": 90, "r": 36}
LINKS = 12  # the first so many keys of `r` are what rows of `l` and `r` refer to
BIG_GROUPS = 40
VERSIONED, STAMPED, PLAIN = 0, 1, 2  # sorts of rows, by the remainder of their number
_PAST_MS, _FUTURE_MS = 1_000_000, 3_600_000
_BATCH = 15

Call = Callable[[Any], object]
Cells = dict[tuple[bytes, bytes], bytes]

WEIGHTS = {
    **{"put row": 14, "put columns": 14, "put with timestamp": 8, "put rows": 6, "put and delete in one row": 5},
    **{"delete version": 3, "delete family version": 2, "delete column": 5, "delete family": 3, "delete row": 4},
    **{"delete rows": 2, "delete up to timestamp": 2, "check and put": 3, "check and delete": 2, "check and mutate": 3},
    **{"increment": 5, "append": 4, "put unreadable": 2, "put unmapped": 2},
}


def key_of(table: str, number: int) -> bytes:
    """The row keys of a table: all letters, so all regions."""
    return (
        b"%04x-%06d" % (number * 40_503 & 0xFFFF, number) if table == "big" else b"%c%02d" % (97 + number % 26, number)
    )


@dataclass(slots=True)
class Mutations:
    """What one of `writers` clients writes."""

    types: ModuleType
    names: dict[str, str]  # of the tables in HBase
    draw: random.Random
    number: int
    writers: int
    big_rows: int = 0  # of the table `big`, if it is written to
    _floors: dict[bytes, int] = field(default_factory=dict)  # of a stamped row: puts go above

    def next(self) -> tuple[str, Call]:
        """The next one."""
        if self.big_rows and self.draw.random() < 0.4:
            return self._on_big()
        kind = self.draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        return kind, getattr(self, "_" + kind.replace(" ", "_"))(self.draw.choice("llr"))

    def cells(self, table: str) -> Cells:
        """A value for each column."""
        draw = self.draw
        link = draw.choice([key_of("r", number) for number in range(LINKS)] + [b"none", b"L\xc3\xb6"])
        small = b"%d" % draw.choice((-3, 0, 1, 2, 2, 3, 5, 8, 40))
        if table == "l":
            values = (
                link,
                small,
                b"%.2f" % draw.uniform(-9, 9),
                b"%d" % 4 ** draw.randrange(50),
                draw.randbytes(3).hex().encode(),
            )
        elif table == "r":
            values = (link, small, struct.pack(">q", draw.randrange(-9, 99)))
        else:
            values = (draw.choice([key_of("r", number) for number in range(BIG_GROUPS)]), b"%d" % draw.randrange(1_000))
        places = [column.place for column in MAPPINGS[table][1].values()]
        return dict(zip(places, values, strict=True))

    def put(self, row: bytes, cells: Cells, stamp: int | None = None) -> Any:
        values = [self.types.TColumnValue(*place, value) for place, value in cells.items()]
        return self.types.TPut(row=row, columnValues=values, timestamp=stamp)

    def _row(self, table: str, *sorts: int) -> bytes:
        wanted = [n for n in range(ROWS[table]) if n % 3 in sorts]
        return key_of(table, self.draw.choice(wanted))

    def _some(self, table: str) -> Cells:
        cells = list(self.cells(table).items())
        return dict(self.draw.sample(cells, self.draw.randint(1, len(cells) - 1)))

    def _column(self, table: str) -> Any:
        return self.types.TColumn(*self.draw.choice(list(self.cells(table))))

    def _call(self, method: str, table: str, *arguments: object) -> Call:
        return lambda client: getattr(client, method)(self.names[table].encode(), *arguments)

    def _put_row(self, table: str) -> Call:
        return self._call("put", table, self.put(self._row(table, VERSIONED, PLAIN), self.cells(table)))

    def _put_columns(self, table: str) -> Call:
        return self._call("put", table, self.put(self._row(table, VERSIONED, PLAIN), self._some(table)))

    def _put_unreadable(self, table: str) -> Call:
        column = (b"f", b"x" if table == "l" else b"y")
        return self._call("put", table, self.put(self._row(table, PLAIN), {column: b"no number"}))

    def _put_unmapped(self, table: str) -> Call:
        row = self._row(table, PLAIN) if self.draw.random() < 0.5 else b"unmapped%d" % self.draw.randrange(3)
        return self._call("put", table, self.put(row, {(b"f", b"other"): b"of others"}))

    def _put_rows(self, table: str) -> Call:
        puts = [self.put(self._row(table, VERSIONED, PLAIN), self.cells(table)) for _ in range(_BATCH)]
        return self._call("putMultiple", table, puts)

    def _stamped_row(self, table: str) -> bytes:
        """A row that nobody else writes to."""
        wanted = [n for n in range(ROWS[table]) if n % 3 == STAMPED and n // 3 % self.writers == self.number]
        return key_of(table, self.draw.choice(wanted))

    def _put_with_timestamp(self, table: str) -> Call:
        row, now = self._stamped_row(table), time.time_ns() // 1_000_000
        floor = max(self._floors.get(self._known(table, row), 0), now - _PAST_MS)
        stamp = floor + 1 + int(self.draw.random() ** 3 * (now + _FUTURE_MS - floor))
        return self._call("put", table, self.put(row, self._some(table), stamp))

    def _delete_up_to_timestamp(self, table: str) -> Call:
        row, now = self._stamped_row(table), time.time_ns() // 1_000_000
        stamp = now - int(self.draw.random() * _PAST_MS)
        known = self._known(table, row)
        self._floors[known] = max(self._floors.get(known, 0), stamp)
        whole = self.types.TDelete(row=row, timestamp=stamp)
        column = self._column(table)
        column.timestamp = stamp
        part = self.types.TDelete(row=row, columns=[column], deleteType=self.types.TDeleteType.DELETE_COLUMNS)
        return self._call("deleteSingle", table, self.draw.choice((whole, part)))

    def _known(self, table: str, row: bytes) -> bytes:
        return table.encode() + row

    def _delete(self, table: str, kind: str, column: Any) -> Call:
        kinds = self.types.TDeleteType
        row = self._row(table, PLAIN, VERSIONED)
        return self._call(
            "deleteSingle", table, self.types.TDelete(row=row, columns=[column], deleteType=getattr(kinds, kind))
        )

    def _delete_version(self, table: str) -> Call:
        kind, row = self.types.TDeleteType.DELETE_COLUMN, self._row(table, VERSIONED)
        delete = self.types.TDelete(row=row, columns=[self._column(table)], deleteType=kind)
        return self._call("deleteSingle", table, delete)

    def _delete_family_version(self, table: str) -> Call:
        """Of the version that a column shows: the others of its family may have one with the same timestamp."""
        row, kind = self._row(table, VERSIONED), self.types.TDeleteType.DELETE_FAMILY_VERSION
        name = self.names[table].encode()

        def call(client: Any) -> None:
            found = client.get(name, self.types.TGet(row=row)).columnValues
            if found:
                column = self.types.TColumn(found[0].family, None, timestamp=found[0].timestamp)
                client.deleteSingle(name, self.types.TDelete(row=row, columns=[column], deleteType=kind))

        return call

    def _delete_column(self, table: str) -> Call:
        return self._delete(table, "DELETE_COLUMNS", self._column(table))

    def _delete_family(self, table: str) -> Call:
        return self._delete(table, "DELETE_FAMILY", self.types.TColumn(self.draw.choice((b"f", b"d"))))

    def _delete_row(self, table: str) -> Call:
        return self._call("deleteSingle", table, self.types.TDelete(row=self._row(table, PLAIN, VERSIONED)))

    def _delete_rows(self, table: str) -> Call:
        rows = {self._row(table, PLAIN) for _ in range(4)}
        return self._call("deleteMultiple", table, [self.types.TDelete(row=row) for row in sorted(rows)])

    def _mixed(self, table: str, row: bytes) -> Any:
        types = self.types
        delete = types.TDelete(row=row, columns=[self._column(table)], deleteType=types.TDeleteType.DELETE_COLUMNS)
        both = [types.TMutation(put=self.put(row, self._some(table))), types.TMutation(deleteSingle=delete)]
        self.draw.shuffle(both)
        return types.TRowMutations(row=row, mutations=both)

    def _put_and_delete_in_one_row(self, table: str) -> Call:
        return self._call("mutateRow", table, self._mixed(table, self._row(table, PLAIN)))

    def _expected(self, table: str) -> tuple[bytes, bytes, bytes | None]:
        """A column, and a value that it may have."""
        place, value = self.draw.choice(list(self.cells(table).items()))
        return *place, self.draw.choice((None, value))

    def _check_and_put(self, table: str) -> Call:
        row = self._row(table, PLAIN)
        return self._call("checkAndPut", table, row, *self._expected(table), self.put(row, self._some(table)))

    def _check_and_delete(self, table: str) -> Call:
        row = self._row(table, PLAIN)
        return self._call("checkAndDelete", table, row, *self._expected(table), self.types.TDelete(row=row))

    def _check_and_mutate(self, table: str) -> Call:
        row, (family, qualifier, value) = self._row(table, PLAIN), self._expected(table)
        compare = self.draw.choice((self.types.TCompareOp.EQUAL, self.types.TCompareOp.NOT_EQUAL))
        mutations = self._mixed(table, row)
        return self._call("checkAndMutate", table, row, family, qualifier, compare, value or b"", mutations)

    def _increment(self, table: str) -> Call:
        column = self.types.TColumnIncrement(b"d", b"n", self.draw.randint(-2, 5))
        return self._call("increment", "r", self.types.TIncrement(row=self._row("r", PLAIN), columns=[column]))

    def _append(self, table: str) -> Call:
        value = self.types.TColumnValue(b"d", b"s", b"+" + self.draw.randbytes(1).hex().encode())
        return self._call("append", "l", self.types.TAppend(row=self._row("l", PLAIN), columns=[value]))

    def _on_big(self) -> tuple[str, Call]:
        """Rows of the large table: put anew, new ones, and deletes."""
        numbers = [self.draw.randrange(self.big_rows + self.big_rows // 50) for _ in range(_BATCH)]
        rows = sorted({key_of("big", number) for number in numbers})
        if self.draw.random() < 0.3:
            deletes = [self.types.TDelete(row=row) for row in rows[:5]]
            return "delete rows", self._call("deleteMultiple", "big", deletes)
        cells = self.cells if self.draw.random() < 0.5 else self._some
        return "put rows", self._call("putMultiple", "big", [self.put(row, cells("big")) for row in rows])
