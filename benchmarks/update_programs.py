"""Update programs: the papers' work for each change of the log, for V1 and V2, with before-images and with DELTA.

In: changes as plain values, a transaction. Out: records. Always: one loop without helpers, because a call for each record
made it 8 % slower, and so the comparison too kind to us; only the rare write of a MIN or MAX is a call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import duckdb
import lmdb
import numpy as np
import pyarrow as pa

from benchmarks.per_operation import STREAM, UpdateProgram
from benchmarks.views import V1, V2
from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import TableSchema

_KEY = struct.Struct(">i")
_ENTRY_KEY = struct.Struct(">ii")  # group, value: neither is negative, so bytes are in the order of numbers
_ENTRY = struct.Struct("<qIQ")  # multiplicity, then the signature: stream, position
_RECORD = struct.Struct("<qqIQ")  # two values of the view, then the signature
_ROW = struct.Struct("<iiIQ")  # x, y, then the signature
_ABSENT = -1  # x of an image that is not there
# A change is (position, x and y before, x and y after); with DELTA it is (position, key, x and y after) at first.


class SumProgram:
    """V1 as written: read; unless processed, compute; test-and-set on the signature; again when that fails."""

    view = V1
    names = ("x", "n", "s")

    def __init__(self, environment: lmdb.Environment) -> None:
        self.environment = environment

    def load(self, first: Mapping[str, pa.Table], schemas: Mapping[str, TableSchema], position: int) -> None:
        with duckdb.connect() as connection, self.environment.begin(write=True) as transaction:
            connection.register("r", first["r"])
            for x, a, b in connection.sql(self.view).fetchall():
                transaction.put(_KEY.pack(x), _RECORD.pack(a, int(b), STREAM, position))

    def columns(self, batch: pa.RecordBatch, schema: TableSchema) -> Iterator[list]:
        yield batch["position"].to_pylist()
        for side in ("before", "after"):
            x, y = decode_rows(schema.value_columns, batch[side])
            yield x.fill_null(_ABSENT).to_pylist()
            yield y.fill_null(0).to_pylist()

    def apply(self, transaction: lmdb.Transaction, changes: list) -> None:
        get, put, delete = transaction.get, transaction.put, transaction.delete
        pack, unpack, key_of = _RECORD.pack, _RECORD.unpack, _KEY.pack
        moves: tuple[tuple[int, int, int], ...]
        for position, x_before, y_before, x_after, y_after in changes:
            if x_before == x_after:
                moves = ((x_after, 0, y_after - y_before),)
            elif x_before == _ABSENT:
                moves = ((x_after, 1, y_after),)
            elif x_after == _ABSENT:
                moves = ((x_before, -1, -y_before),)
            else:
                moves = ((x_before, -1, -y_before), (x_after, 1, y_after))
            for x, rows, amount in moves:
                key = key_of(x)
                while True:
                    found = get(key)
                    if found is None:
                        if put(key, pack(rows, amount, STREAM, position), overwrite=False):
                            break
                        continue
                    n, s, _, processed = unpack(found)
                    if processed >= position:
                        break
                    now = get(key)  # the test: the record still carries the signature that was read
                    if now is None or unpack(now)[3] != processed:
                        continue
                    if n + rows:
                        put(key, pack(n + rows, s + amount, STREAM, position))
                    else:
                        delete(key)
                    break

    def records(self) -> pa.Table:
        with self.environment.begin() as transaction:
            pairs = [(key, value) for key, value in transaction.cursor() if len(key) == _KEY.size]
        rows = [(*_KEY.unpack(key), *_RECORD.unpack(value)[:2]) for key, value in pairs]
        return pa.table(list(np.array(rows, np.int64).reshape(-1, 3).T), names=list(self.names))


class FusedSumProgram(SumProgram):
    """The same with all that a single writer may leave out: the read inside the transaction is the test."""

    def apply(self, transaction: lmdb.Transaction, changes: list) -> None:
        get, put, delete = transaction.get, transaction.put, transaction.delete
        pack, unpack, key_of = _RECORD.pack, _RECORD.unpack, _KEY.pack
        for position, x_before, y_before, x_after, y_after in changes:
            moves = x_before != x_after
            if moves and x_before != _ABSENT:
                key = key_of(x_before)
                n, s, _, processed = unpack(get(key))
                if processed < position:
                    if n > 1:
                        put(key, pack(n - 1, s - y_before, STREAM, position))
                    else:
                        delete(key)
            if x_after != _ABSENT:
                key = key_of(x_after)
                found = get(key)
                n, s, _, processed = unpack(found) if found else (0, 0, 0, 0)
                if processed < position:
                    rows, amount = (1, y_after) if moves else (0, y_after - y_before)
                    put(key, pack(n + rows, s + amount, STREAM, position))


class DeltaSumProgram(SumProgram):
    """V1 over a log without before-images: DELTA tells a row's old columns and takes the new ones (paper 1, section 4.1)."""

    def __init__(self, environment: lmdb.Environment) -> None:
        super().__init__(environment)
        self._delta = environment.open_db(b"delta")

    def load(self, first: Mapping[str, pa.Table], schemas: Mapping[str, TableSchema], position: int) -> None:
        super().load(first, schemas, position)
        r = first["r"]
        keys, _ = encode_keys(schemas["r"].key_columns, [r["k"].combine_chunks()], len(r))
        with self.environment.begin(write=True, db=self._delta) as transaction:
            rows = zip(keys.to_pylist(), r["x"].to_pylist(), r["y"].to_pylist(), strict=True)
            pairs = ((key, _ROW.pack(x, y, STREAM, position)) for key, x, y in rows)
            transaction.cursor().putmulti(pairs)

    def columns(self, batch: pa.RecordBatch, schema: TableSchema) -> Iterator[list]:
        x, y = decode_rows(schema.value_columns, batch["after"])
        yield batch["position"].to_pylist()
        yield batch["key"].to_pylist()
        yield x.fill_null(_ABSENT).to_pylist()
        yield y.fill_null(0).to_pylist()

    def apply(self, transaction: lmdb.Transaction, changes: list) -> None:
        """A get and a test-and-set of DELTA for each change, then the view's records, in the same transaction."""
        get, put, delete, delta = transaction.get, transaction.put, transaction.delete, self._delta
        pack, unpack = _ROW.pack, _ROW.unpack
        known = []
        for position, key, x, y in changes:
            while True:
                found = get(key, db=delta)
                if found is None:
                    x_before, y_before = _ABSENT, 0
                    if x == _ABSENT or put(key, pack(x, y, STREAM, position), db=delta, overwrite=False):
                        break
                    continue
                x_before, y_before, _, processed = unpack(found)
                if processed >= position:
                    x_before, y_before = x, y  # nothing is left to tell
                    break
                now = get(key, db=delta)
                if now is None or unpack(now)[3] != processed:
                    continue
                if x == _ABSENT:
                    delete(key, db=delta)
                else:
                    put(key, pack(x, y, STREAM, position), db=delta)
                break
            known.append((position, x_before, y_before, x, y))
        super().apply(transaction, known)


class MinMaxProgram(SumProgram):
    """V2: PRE-AGGREGATION entries (group, value) → multiplicity, then the record (paper 1, section 4.2).

    A record is written only when its MIN or MAX is another (paper 5, section V.A.2), and a MIN that is gone is the first
    entry of the group's prefix: nothing is scanned.
    """

    view = V2
    names = ("x", "lo", "hi")

    def __init__(self, environment: lmdb.Environment) -> None:
        super().__init__(environment)
        self._entries = environment.open_db(b"entries")

    def load(self, first: Mapping[str, pa.Table], schemas: Mapping[str, TableSchema], position: int) -> None:
        super().load(first, schemas, position)
        with duckdb.connect() as connection:
            connection.register("r", first["r"])
            counted = connection.sql("SELECT x, y, COUNT(*) FROM r GROUP BY x, y ORDER BY x, y").fetchall()
        with self.environment.begin(write=True, db=self._entries) as transaction:
            pairs = ((_ENTRY_KEY.pack(x, y), _ENTRY.pack(many, STREAM, position)) for x, y, many in counted)
            transaction.cursor().putmulti(pairs, append=True)

    def apply(self, transaction: lmdb.Transaction, changes: list) -> None:
        get, put, delete, entries = transaction.get, transaction.put, transaction.delete, self._entries
        pack, unpack, key_of = _RECORD.pack, _RECORD.unpack, _KEY.pack
        pack_entry, unpack_entry, entry_key = _ENTRY.pack, _ENTRY.unpack, _ENTRY_KEY.pack
        groups: tuple[tuple[int, int, int], ...]
        for position, x_before, y_before, x_after, y_after in changes:
            gone = False  # whether no row of the old group has the old value any more
            for x, y, step in ((x_before, y_before, -1), (x_after, y_after, 1)):
                if x == _ABSENT:
                    continue
                key = entry_key(x, y)
                while True:
                    found = get(key, db=entries)
                    if found is None:
                        if put(key, pack_entry(step, STREAM, position), db=entries, overwrite=False):
                            break
                        continue
                    many, _, processed = unpack_entry(found)
                    if processed >= position:
                        break
                    now = get(key, db=entries)
                    if now is None or unpack_entry(now)[2] != processed:
                        continue
                    if many + step:
                        put(key, pack_entry(many + step, STREAM, position), db=entries)
                    else:
                        gone = delete(key, db=entries)
                    break
            if x_before == x_after:
                groups = ((x_after, y_before if gone else _ABSENT, y_after),)
            else:
                groups = ((x_before, y_before if gone else _ABSENT, _ABSENT), (x_after, _ABSENT, y_after))
            for x, left, come in groups:
                if x == _ABSENT or left == come:  # no group, or nothing that could move an end of it
                    continue
                key = key_of(x)
                while True:
                    found = get(key)
                    if found is None:
                        if put(key, pack(come, come, STREAM, position), overwrite=False):
                            break
                        continue
                    lo, hi, _, processed = unpack(found)
                    if processed >= position or (left != lo and left != hi and (come == _ABSENT or lo <= come <= hi)):
                        break  # done before, or ignored: neither end moves
                    now = get(key)
                    if now is None or unpack(now)[3] != processed:
                        continue
                    self._set_ends(transaction, x, (lo, hi), left, come, position)
                    break

    def _set_ends(
        self, transaction: lmdb.Transaction, x: int, ends: tuple[int, int], left: int, come: int, position: int
    ) -> None:
        """Write a group's record after `left` went and `come` came; without entries the group is gone."""
        lo, hi = ends
        if left in ends:
            cursor = transaction.cursor(db=self._entries)
            if not cursor.set_range(_ENTRY_KEY.pack(x, 0)) or _ENTRY_KEY.unpack(cursor.key())[0] != x:
                transaction.delete(_KEY.pack(x))
                return
            lo = _ENTRY_KEY.unpack(cursor.key())[1]
            _ = cursor.prev() if cursor.set_range(_ENTRY_KEY.pack(x + 1, 0)) else cursor.last()
            hi = _ENTRY_KEY.unpack(cursor.key())[1]
        elif come != _ABSENT:
            lo, hi = min(lo, come), max(hi, come)
        if (lo, hi) != ends:
            transaction.put(_KEY.pack(x), _RECORD.pack(lo, hi, STREAM, position))


# By view and log: the variants of the papers' algorithm, each with its program.
SYSTEMS: dict[tuple[str, bool], dict[str, type[UpdateProgram]]] = {
    ("V1", True): {"each": SumProgram, "batched": SumProgram, "fused": FusedSumProgram},
    ("V1", False): {"each": DeltaSumProgram, "batched": DeltaSumProgram},
    ("V2", True): {"each": MinMaxProgram, "batched": MinMaxProgram},
}
