"""Channels: the input streams of one node.

In: a kind and a number. Out: a name, the same in every manager. Always: each channel is routed by its own hash, and all
channels of a group by the hash of the group, so that they meet in one manager.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import pyarrow as pa

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
