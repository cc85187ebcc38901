"""Messages: what the tasks of an epoch send to view managers, and the channels of a node that the input is for.

In: input for a channel, the receipt of a task, or its failure. Out: the same as columns that any shuffle can carry.
Always: one envelope for all, with a named kind. All channels of a group are routed by the hash of the group, so that they
meet in one manager.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import pyarrow as pa

from viewkeeper.operators.receipts import Failure, Receipt, result_from_json, result_to_json

Kind = Literal["rows", "groups", "entries", "sums", "aside"]


class Channel(NamedTuple):
    """A kind of input, and a number where a node has several of a kind.

    "rows": new states of records, of a join those of the side at `number`. "groups": contributions to groups.
    "entries": changes of multiplicity in the PRE-AGGREGATION at `number`. "sums": mantissas, by their unit, of the exact
    sum at `number`. "aside": keys of rows on which an expression of the edge at `number` fails, or no longer does.
    """

    kind: Kind
    number: int = 0

    def __str__(self) -> str:
        return f"{self.kind}/{self.number}"

    @staticmethod
    def from_text(text: str) -> Channel:
        kind, _, number = text.partition("/")
        return Channel(cast(Kind, kind), int(number))


ROWS = Channel("rows")
GROUPS = Channel("groups")


class Input(NamedTuple):
    """Rows for one channel of the node that writes `table`."""

    table: int
    channel: Channel
    rows: pa.Table


_BLOCK_BYTES = 32 << 20

ENVELOPE = pa.schema(
    [
        ("manager", pa.int32()),
        ("kind", pa.string()),  # "input", or "result": a receipt or a failure
        ("table", pa.int32()),  # of an input
        ("channel", pa.string()),  # of an input
        ("body", pa.binary()),  # an Arrow stream, or a result as JSON
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
    if isinstance(message.body, Input):
        table, channel, rows = message.body
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return message.to, "input", table, str(channel), sink.getvalue().to_pybytes()
    return message.to, "result", 0, "", json.dumps(result_to_json(message.body)).encode()


def to_batch(rows: Sequence[tuple]) -> pa.RecordBatch:
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=ENVELOPE)


def from_batch(batch: pa.RecordBatch) -> Iterator[Message]:
    return map(decode, batch.to_pylist())


def decode(row: Mapping) -> Message:
    """The message of a row of the envelope, by the names of its columns."""
    if row["kind"] == "result":
        return Message(row["manager"], result_from_json(json.loads(row["body"])))
    rows = pa.ipc.open_stream(pa.py_buffer(row["body"])).read_all()
    return Message(row["manager"], Input(row["table"], Channel.from_text(row["channel"]), rows))
