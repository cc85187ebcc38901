"""Images: what changes brought and took away, however many pieces they are decoded in."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import viewkeeper as vk
from viewkeeper.model.positions import Position, Stream
from viewkeeper.operators.delta_rows import Delta, delta_of_changes


def _delta(db: vk.Database, *, rows_max: int = 1_000) -> Delta:
    schema, store = db.table("t").schema, db.store
    ((_, changes),) = store.read_log(Stream("0"), Position(0), store.ends()[Stream("0")])
    return delta_of_changes(schema, changes, [0, 1, 2], rows_max=rows_max)


def test_the_pieces_of_decoding_make_no_difference(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 'store'}") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, a STRING, b BIGINT)")
        table = db.table("t")
        for k in range(20):
            table.put(k, {"a": f"a{k}", "b": None if k % 3 else k})
        for k in range(0, 20, 2):
            table.put(k, {"a": "again", "b": -k})
        for k in range(0, 20, 5):
            table.delete(k)
        whole = _delta(db)
        pieces = _delta(db, rows_max=3)

    order = np.asarray(whole.relation["ord"])
    assert pieces.relation.to_pylist() == whole.relation.to_pylist()
    assert pieces.keys_at(order).to_pylist() == whole.keys_at(order).to_pylist()
    assert np.asarray(whole.relation["sign"]).tolist() == [1] * 30 + [-1] * 14
