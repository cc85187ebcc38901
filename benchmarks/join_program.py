"""The papers' work for each change of a join's tables: REVERSE-JOIN, then JOIN (paper 1, sections 4.1 and 4.2).

In: changes of R and S as plain values, a transaction. Out: the join's records. Always: before-images stand for DELTA; the
REVERSE-JOIN is stored tall, an entry (join key, side, row key) → row, as ours is, so that a change reads and writes its own
entry and not all of its join key; a row's partners are those under its join key on the other side. One loop without
helpers, for the reason given in `update_programs`; rows stay the bytes that the log has, so that nothing is packed anew.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import lmdb
import numpy as np
import pyarrow as pa

from benchmarks.per_operation import STREAM
from benchmarks.views import V3
from viewkeeper.model.keybatches import decode_keys, encode_keys
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.schema import TableSchema

_R, _S = 0, 1
_ABSENT = -1  # x of an image that is not there
_PREFIX = struct.Struct(">iB")  # x is not negative, so bytes are in the order of numbers
_X = struct.Struct(">i")
_SIGNATURE = struct.Struct("<IQ")
_HEAD = _SIGNATURE.size
_PUT_AT_ONCE = 100_000
# A change is (position, side, key, x before, x after, row after).


class JoinProgram:
    """V3: a change applies its entry, then a record for each partner it had and for each it has."""

    view = V3

    def __init__(self, environment: lmdb.Environment) -> None:
        self.environment = environment
        self._entries = environment.open_db(b"entries")
        self._schemas: Mapping[str, TableSchema] = {}

    def load(self, first: Mapping[str, pa.Table], schemas: Mapping[str, TableSchema], position: int) -> None:
        self._schemas = schemas
        signature = _SIGNATURE.pack(STREAM, position)
        sides = [_first_entries(first[name], schemas[name]) for name in ("r", "s")]
        rows_of_s = {x: row for _, x, row in sides[_S]}
        for start in range(0, len(sides[_R]), _PUT_AT_ONCE):
            with self.environment.begin(write=True) as transaction:
                part = sides[_R][start : start + _PUT_AT_ONCE]
                pairs = ((key + _X.pack(x), signature + row + rows_of_s[x]) for key, x, row in part if x in rows_of_s)
                transaction.cursor().putmulti(pairs)
        for side, entries in enumerate(sides):
            pairs = sorted((_PREFIX.pack(x, side) + key, signature + row) for key, x, row in entries)
            with self.environment.begin(write=True) as transaction:
                transaction.cursor(self._entries).putmulti(pairs)

    def columns(self, batch: pa.RecordBatch, schema: TableSchema) -> Iterator[list]:
        side = _R if schema.name == "r" else _S
        yield batch["position"].to_pylist()
        yield [side] * len(batch)
        yield batch["key"].to_pylist()
        for image in ("before", "after"):
            if side == _R:
                x = decode_rows(schema.value_columns, batch[image], [0])[0].fill_null(_ABSENT)
            else:
                known = np.asarray(decode_keys(schema.key_columns, batch["key"])[0])
                x = pa.array(np.where(np.asarray(batch[image].is_valid()), known, _ABSENT))
            yield x.to_pylist()
        yield batch["after"].to_pylist()

    def apply(self, transaction: lmdb.Transaction, changes: list) -> None:
        get, put, delete, entries = transaction.get, transaction.put, transaction.delete, self._entries
        cursor = transaction.cursor(entries)
        prefix_of, pack_x, sign, signed = _PREFIX.pack, _X.pack, _SIGNATURE.pack, _SIGNATURE.unpack_from
        for position, side, key, x_before, x_after, row in changes:
            for x, comes in ((x_before, False), (x_after, True)):
                if x == _ABSENT or (x_before == x_after and not comes):
                    continue  # no image, or a row that stays under its join key: what comes takes the place of what was
                signature = sign(STREAM, position)
                entry = prefix_of(x, side) + key
                while True:
                    found = get(entry, db=entries)
                    if found is None:
                        if not comes or put(entry, signature + row, db=entries, overwrite=False):
                            break
                        continue
                    _, processed = signed(found)
                    if processed >= position:
                        break
                    now = get(entry, db=entries)  # the test: the entry still carries the signature that was read
                    if now is None or signed(now)[1] != processed:
                        continue
                    if comes:
                        put(entry, signature + row, db=entries)
                    else:
                        delete(entry, db=entries)
                    break
                partners = []
                prefix = prefix_of(x, 1 - side)
                if cursor.set_range(prefix):
                    for stored, value in cursor.iternext():
                        if not stored.startswith(prefix):
                            break
                        partners.append((stored[5:], value[_HEAD:]))
                for other, partner in partners:
                    if side == _R:
                        record = key + pack_x(x)
                        shown = signature + row + partner if comes else b""
                    else:
                        record = other + pack_x(x)
                        shown = signature + partner + row if comes else b""
                    while True:
                        found = get(record)
                        if found is None:
                            if not comes or put(record, shown, overwrite=False):
                                break
                            continue
                        _, processed = signed(found)
                        if processed >= position:
                            break
                        now = get(record)
                        if now is None or signed(now)[1] != processed:
                            continue
                        if comes:
                            put(record, shown)
                        else:
                            delete(record)
                        break

    def records(self) -> pa.Table:
        with self.environment.begin() as transaction:
            pairs = [(key, value) for key, value in transaction.cursor() if key != b"entries"]
        r, s = self._schemas["r"], self._schemas["s"]
        size = len(encode_rows(r.value_columns, [pa.array([1], pa.int32())] * 2, 1)[0].as_py())  # of every row of R
        k = decode_keys(r.key_columns, pa.array([key[: -_X.size] for key, _ in pairs], pa.binary()))[0]
        x, y = decode_rows(r.value_columns, pa.array([value[_HEAD : _HEAD + size] for _, value in pairs], pa.binary()))
        rows_of_s = pa.array([value[_HEAD + size :] for _, value in pairs], pa.binary())
        name, z = decode_rows(s.value_columns, rows_of_s)
        return pa.table({"k": k, "x": x, "y": y, "name": name, "z": z})


def _first_entries(rows: pa.Table, schema: TableSchema) -> list[tuple[bytes, int, bytes]]:
    """(key, x, row) of each row of a table."""
    columns = {name: rows[name].combine_chunks() for name in rows.schema.names}
    keys, _ = encode_keys(schema.key_columns, [columns[name] for name in schema.key], len(rows))
    values = [columns[column.name] for column in schema.value_columns]
    encoded = encode_rows(schema.value_columns, values, len(rows))
    return list(zip(keys.to_pylist(), columns["x"].to_pylist(), encoded.to_pylist(), strict=True))
