"""Per operation over HBase: the papers' algorithm (paper 1, section 4; paper 5, section V) as plain requests to HBase.

In: operations in the order of their writing, kinds of views. Out: seconds for all operations, and the view's records.
Always: every operation is its own gets, computation and test-and-sets; operations on one row are done by one manager, in
their order; managers are processes, each with a connection of its own, and a test-and-set that another one came before is
tried again.

Kinder to it than it would be: it gets the operations from memory, where a real one would read the log; records carry no
signature of what was applied, and it keeps no note of how far it is.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa

from benchmarks.hbase_site import FAMILY, HBase, new_name
from tests.support.services.hbase import Cluster

Operation = tuple[str, str | None, int]  # key, x and y; x is None where the row is deleted
_VALUE = b"v"
_NOTHING = b""
SELECTED_BELOW = 500


@dataclass(frozen=True, slots=True)
class Tables:
    """What a view needs; each is an HBase table of its own."""

    delta: str
    groups: str  # PRE-AGGREGATION: a row for each group, a column for each base row in it
    view: str

    @staticmethod
    def new() -> Tables:
        return Tables(*(new_name(name) for name in ("delta", "groups", "view")))

    @property
    def names(self) -> tuple[str, str, str]:
        return self.delta, self.groups, self.view


@dataclass(frozen=True, slots=True)
class Manager:
    """One view manager's connection."""

    types: Any
    client: Any
    tables: Tables

    def get(self, table: str, row: str) -> bytes:
        found = self.client.get(table.encode(), self.types.TGet(row=row.encode())).columnValues
        return found[0].value if found else _NOTHING

    def swap(self, table: str, row: str, expected: bytes, value: bytes) -> bool:
        """Test-and-set; an empty value stands for none."""
        key, types = row.encode(), self.types
        put = types.TPut(row=key, columnValues=[types.TColumnValue(FAMILY, _VALUE, value)])
        mutations = types.TRowMutations(row=key, mutations=[types.TMutation(put=put)])
        equal = types.TCompareOp.EQUAL
        return self.client.checkAndMutate(table.encode(), key, FAMILY, _VALUE, equal, expected, mutations)

    def change(self, table: str, row: str, compute: Callable[[bytes], bytes | None]) -> bytes:
        """Get, compute, test-and-set, until it succeeds; None: nothing is written. Returns what was before."""
        while True:
            found = self.get(table, row)
            value = compute(found)
            if value is None or self.swap(table, row, found, value):
                return found


def apply_selection(manager: Manager, key: str, x: str | None, y: int) -> None:
    """One blind request: the view's key is the base's (paper 1, section 4.2)."""
    types, row, view = manager.types, key.encode(), manager.tables.view.encode()
    if x is None or y >= SELECTED_BELOW:
        manager.client.deleteSingle(view, types.TDelete(row=row))
    else:
        value = types.TColumnValue(FAMILY, _VALUE, _pack(x, y))
        manager.client.put(view, types.TPut(row=row, columnValues=[value]))


def apply_sum(manager: Manager, key: str, x: str | None, y: int) -> None:
    """DELTA, then the record of the old group and that of the new one."""
    old_x, old_y = _told(manager, key, x, y)
    moves = {group: [0, 0] for group in (old_x, x) if group is not None}
    if old_x is not None:
        moves[old_x] = [-1, -old_y]
    if x is not None:
        moves[x] = [moves[x][0] + 1, moves[x][1] + y]
    for group, (rows, amount) in moves.items():
        manager.change(manager.tables.view, group, lambda found, move=(rows, amount): _moved(found, *move))


def _moved(found: bytes, rows: int, amount: int) -> bytes:
    n, s = map(int, found.split(b",")) if found else (0, 0)
    return b"%d,%d" % (n + rows, s + amount) if n + rows else _NOTHING


def apply_min(manager: Manager, key: str, x: str | None, y: int) -> None:
    """DELTA, the PRE-AGGREGATION, then the record where its MIN moves; a MIN that is gone is found in the group's row."""
    old_x, old_y = _told(manager, key, x, y)
    types, client, groups = manager.types, manager.client, manager.tables.groups.encode()
    if old_x is not None and old_x != x:
        column = types.TColumn(FAMILY, key.encode())
        client.deleteSingle(groups, types.TDelete(row=old_x.encode(), columns=[column]))
    if x is not None:
        cell = types.TColumnValue(FAMILY, key.encode(), b"%d" % y)
        client.put(groups, types.TPut(row=x.encode(), columnValues=[cell]))
        manager.change(manager.tables.view, x, lambda found: b"%d" % y if not found or y < int(found) else None)
    if old_x is not None:
        manager.change(manager.tables.view, old_x, lambda found: _least(manager, old_x, found, old_y))


def _least(manager: Manager, group: str, found: bytes, gone: int) -> bytes | None:
    if not found or int(found) != gone:
        return None
    row = manager.client.get(manager.tables.groups.encode(), manager.types.TGet(row=group.encode()))
    values = [int(cell.value) for cell in row.columnValues]
    return b"%d" % min(values) if values else _NOTHING


def _told(manager: Manager, key: str, x: str | None, y: int) -> tuple[str | None, int]:
    """What DELTA had of a row, which has the new values now."""
    new = _NOTHING if x is None else _pack(x, y)
    found = manager.change(manager.tables.delta, key, lambda found: new)
    return _unpack(found) if found else (None, 0)


def _pack(x: str, y: int) -> bytes:
    return f"{x},{y}".encode()


def _unpack(value: bytes) -> tuple[str, int]:
    x, _, y = value.decode().partition(",")
    return x, int(y)


APPLY = {"selection": apply_selection, "COUNT and SUM": apply_sum, "MIN": apply_min}


def load(hbase: HBase, tables: Tables, view: str, rows: pa.Table) -> None:
    """The state before the operations, from base rows; not a part of what is measured."""
    records: dict[str, list[bytes]] = {}
    delta: dict[str, bytes] = {}
    for key, x, y in zip(*(rows[name].to_pylist() for name in ("k", "x", "y")), strict=True):
        delta[key] = _pack(x, y)
        records.setdefault(x, []).append(b"%d" % y)
    with hbase.client() as client:
        if view == "selection":
            chosen = {key: value for key, value in delta.items() if _unpack(value)[1] < SELECTED_BELOW}
            _fill(hbase, client, tables.view, chosen)
            return
        _fill(hbase, client, tables.delta, delta)
        if view == "MIN":
            _fill(hbase, client, tables.view, {x: b"%d" % min(map(int, values)) for x, values in records.items()})
            grouped = [(_unpack(value)[0], key, b"%d" % _unpack(value)[1]) for key, value in delta.items()]
            types = hbase.cluster.types
            puts = [types.TPut(x.encode(), [types.TColumnValue(FAMILY, key.encode(), y)]) for x, key, y in grouped]
            hbase.put(client, tables.groups, puts)
        else:
            sums = {x: b"%d,%d" % (len(values), sum(map(int, values))) for x, values in records.items()}
            _fill(hbase, client, tables.view, sums)


def _fill(hbase: HBase, client: Any, table: str, values: dict[str, bytes]) -> None:
    types = hbase.cluster.types
    puts = [types.TPut(key.encode(), [types.TColumnValue(FAMILY, _VALUE, value)]) for key, value in values.items()]
    hbase.put(client, table, puts)


def records(hbase: HBase, tables: Tables, view: str) -> pa.Table:
    """The view as it is now."""
    with hbase.client() as client:
        found = [(key, value) for key, value in hbase.rows(client, tables.view, ["v"]) if value]
    if view == "selection":
        rows = [(key, *_unpack(value.encode())) for key, value in found]
        return pa.Table.from_pylist([dict(zip(("k", "x", "y"), row, strict=True)) for row in rows])
    names = ("lo",) if view == "MIN" else ("n", "s")
    return pa.Table.from_pylist(
        [{"x": key, **dict(zip(names, map(int, value.split(",")), strict=True))} for key, value in found]
    )


def run(hbase: HBase, tables: Tables, view: str, operations: Sequence[Operation], managers: int) -> float:
    """Seconds for all operations."""
    shares: list[list[Operation]] = [[] for _ in range(managers)]
    for operation in operations:
        shares[crc32(operation[0].encode()) % managers].append(operation)
    folder = hbase.cluster.layout.folder
    with ProcessPoolExecutor(managers, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_ready, range(4 * managers)))
        began = time.perf_counter()
        list(pool.map(_work, [(folder, tables, view, share) for share in shares]))
        return time.perf_counter() - began


def _ready(number: int) -> int:
    time.sleep(0.05)  # so that each process is started for one
    return number


def _work(task: tuple[Path, Tables, str, Iterable[Operation]]) -> None:
    folder, tables, view, operations = task
    cluster = Cluster.find(folder)
    assert cluster is not None
    apply = APPLY[view]
    with cluster.client() as client:
        manager = Manager(cluster.types, client, tables)
        for operation in operations:
            apply(manager, *operation)
