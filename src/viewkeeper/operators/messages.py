"""Messages: what the tasks of an epoch send to view managers.

In: input for a channel, the receipt of a task, or its failure. Out: the same, also as columns that any shuffle can
carry. Always: one envelope for all three, with a named kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.model.counts import Counts
from viewkeeper.operators.channels import Channel, Input
from viewkeeper.operators.receipts import Failure, Receipt, Task

_BLOCK_BYTES = 32 << 20

ENVELOPE = pa.schema(
    [
        ("manager", pa.int32()),
        ("kind", pa.string()),  # "input", "receipt" or "failure"
        ("table", pa.int32()),  # of an input
        ("channel", pa.string()),  # of an input
        ("stage", pa.int32()),  # of a receipt's task
        ("number", pa.int32()),  # of a receipt's task
        ("body", pa.binary()),  # an Arrow stream, or JSON
    ]
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to one manager."""

    to: int
    body: Input | Receipt | Failure


def in_pieces(message: Message, bytes_max: int = _BLOCK_BYTES) -> Iterator[Message]:
    """The message in pieces that any shuffle can carry, each with at least one row of input."""
    if not isinstance(message.body, Input):
        yield message
        return
    table, channel, rows = message.body
    count = max(1, len(rows) * bytes_max // max(1, rows.nbytes))
    for start in range(0, len(rows), count):
        yield Message(message.to, Input(table, channel, rows.slice(start, count)))


def encode(message: Message) -> tuple:
    """The message as a row of the envelope."""
    match message.body:
        case Input(table, channel, rows):
            return message.to, "input", table, str(channel), 0, 0, _to_block(rows)
        case Receipt(Task(stage, number), counts):
            return message.to, "receipt", 0, "", stage, number, json.dumps(counts.to_json()).encode()
        case Failure() as failure:
            return message.to, "failure", 0, "", 0, 0, json.dumps(failure.to_json()).encode()


def to_batch(rows: Sequence[tuple]) -> pa.RecordBatch:
    """Encoded messages as a batch."""
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=ENVELOPE)


def from_batch(batch: pa.RecordBatch) -> Iterator[Message]:
    return map(decode, batch.to_pylist())


def decode(row: Mapping) -> Message:
    """The message of a row of the envelope, by the names of its columns."""
    return Message(row["manager"], _body(row))


def _body(row: Mapping) -> Input | Receipt | Failure:
    match row["kind"]:
        case "input":
            return Input(row["table"], Channel.from_text(row["channel"]), _from_block(row["body"]))
        case "receipt":
            return Receipt(Task(row["stage"], row["number"]), Counts(**json.loads(row["body"])))
    return Failure.from_json(json.loads(row["body"]))


def _to_block(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _from_block(block: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(block)).read_all()
