"""Messages travel through Spark in batches: all of them, in order, and small ones together."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from viewkeeper.engine import jobs
from viewkeeper.operators.messages import Channel, Input, Message, encode, from_batch


def message(number: int) -> Message:
    return Message(number % 3, Input(number, Channel("rows", 0), pa.table({"n": [number]})))


@pytest.mark.parametrize(("less", "sizes"), [(-1, [4, 4, 2]), (0, [3, 3, 3, 1]), (1, [3, 3, 3, 1])])
def test_a_batch_ends_with_the_message_that_fills_it(
    monkeypatch: pytest.MonkeyPatch, less: int, sizes: list[int]
) -> None:
    sent = [message(number) for number in range(10)]
    monkeypatch.setattr(jobs, "_BATCH_BYTES", 3 * len(encode(sent[0])[-1]) - less)
    batches = list(jobs._batched(iter(sent)))

    assert [len(batch) for batch in batches] == sizes
    assert [one for batch in batches for one in from_batch(batch)] == sent
    assert list(jobs._batched(iter([]))) == []
