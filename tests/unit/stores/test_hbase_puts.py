"""Puts to HBase are the bytes that a Thrift library writes of the same puts, in batches of bounded size."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.transport import TMemoryBuffer

from viewkeeper.stores.hbase import thrift_cells
from viewkeeper.stores.hbase.thrift_cells import Puts, thrift, with_first


def written_by_a_library(table: bytes, made: Puts) -> bytes:
    cell, rows = thrift().TColumnValue, zip(made.rows.to_pylist(), made.values.to_pylist(), strict=True)
    texts = [(name, array.to_pylist()) for name, array in made.columns]
    buffer = TMemoryBuffer()
    arguments = thrift().THBaseService.putMultiple_args()
    arguments.table, arguments.tputs = (
        table,
        [
            thrift().TPut(
                row=row,
                columnValues=[cell(b"r", b"r", value), *(cell(b"c", name, text[at]) for name, text in texts)],
                timestamp=made.epoch,
            )
            for at, (row, value) in enumerate(rows)
        ],
    )
    arguments.write(TBinaryProtocolFactory().get_protocol(buffer))
    return buffer.getvalue()


def drawn(draw: random.Random, count: int) -> Puts:
    def values(longest: int) -> pa.Array:
        return pa.array([draw.randbytes(draw.choice((0, 1, 7, longest))) for _ in range(count)], pa.binary())

    first = np.array([draw.randrange(256) for _ in range(count)])
    names = [b"n%d" % number for number in range(draw.randrange(4))]
    rows, columns = with_first(first, values(300)), tuple((name, values(40)) for name in names)
    return Puts(draw.choice((1, 255, 1 << 40)), rows, values(70_000), columns)


@pytest.mark.parametrize("seed", range(20))
def test_puts_are_the_bytes_that_a_library_writes(seed: int) -> None:
    draw = random.Random(seed)
    made = drawn(draw, draw.choice((1, 2, 50)))
    assert made.arguments(b"ns:view.7") == written_by_a_library(b"ns:view.7", made)
    assert {value[0] for value in made.rows.to_pylist()} <= set(range(256))


@pytest.mark.parametrize("seed", range(5))
def test_batches_hold_all_puts_in_order_and_are_bounded_beyond_one_put(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift_cells, "BATCH_RECORDS", 7)
    monkeypatch.setattr(thrift_cells, "BATCH_BYTES", 100_000)
    made = drawn(random.Random(seed), 60)
    batches = list(made.batches())

    assert [row for batch in batches for row in batch.rows.to_pylist()] == made.rows.to_pylist()
    assert [value for batch in batches for value in batch.values.to_pylist()] == made.values.to_pylist()
    for batch in batches:
        assert batch.arguments(b"t") == written_by_a_library(b"t", batch)
        assert len(batch) <= 7
        assert sum(map(len, batch.values.to_pylist()[:-1])) < 100_000


@pytest.mark.parametrize(
    ("bytes_max", "sizes"), [(29, [3, 3, 3, 1]), (30, [3, 3, 3, 1]), (31, [4, 4, 2]), (99, [5, 5])]
)
def test_puts_of_base_rows_are_sent_in_batches_that_end_with_the_put_that_fills_them(
    bytes_max: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift_cells, "BATCH_RECORDS", 5)
    monkeypatch.setattr(thrift_cells, "BATCH_BYTES", bytes_max)
    cell = thrift().TColumnValue
    given = [
        thrift().TPut(row=b"%d" % at, columnValues=[cell(b"f", b"a", b"x" * 4), cell(b"f", b"b", b"y" * 5)])
        for at in range(10)
    ]
    batches = list(thrift_cells.by_size(given))

    assert [put for batch in batches for put in batch] == given
    assert [len(batch) for batch in batches] == sizes
