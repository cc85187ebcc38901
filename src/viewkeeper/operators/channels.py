"""Channels: the input streams of one node.

In: a kind and a number. Out: a name, the same in every manager. Always: each channel is routed by its own hash, and all
channels of a group by the hash of the group, so that they meet in one manager.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class Channel(NamedTuple):
    """A kind of input: new states of records, contributions to groups, or keys of rows that are set aside.

    The number distinguishes channels of a kind: the sides of a join, the PRE-AGGREGATIONs and exact sums of an
    aggregate, the edges whose rows are set aside.
    """

    kind: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.kind}/{self.number}"

    @staticmethod
    def from_text(text: str) -> Channel:
        kind, _, number = text.partition("/")
        return Channel(kind, int(number))


ROWS = Channel("rows")
GROUPS = Channel("groups")


def side(number: int) -> Channel:
    """New states of the entries of a join's side."""
    return Channel("rows", number)


def entries(number: int) -> Channel:
    """Changes of multiplicity in the PRE-AGGREGATION at `number`."""
    return Channel("entries", number)


def sums(number: int) -> Channel:
    """Mantissas, by their unit, of the exact sum at `number`."""
    return Channel("sums", number)


def aside(number: int) -> Channel:
    """Keys of an edge's rows on which an expression fails, and of those that no longer fail."""
    return Channel("aside", number)


class Input(NamedTuple):
    """Rows for one channel of the node that writes `table`."""

    table: int
    channel: Channel
    rows: pa.Table
