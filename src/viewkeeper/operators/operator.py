"""Operator: what a kind of node does, wherever it runs.

In: deltas of a node's sources, then the input of its channels. Out: changed records, and the input of its readers.
Always: a function of its inputs and of the records below the epoch (R6, R7); the same on the driver, in Spark and in
tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from viewkeeper.operators.apply import Applier, Changes
from viewkeeper.operators.blame import blamed
from viewkeeper.operators.channels import Channel, Input
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.record_events import fewer_events, last_events
from viewkeeper.plan.nodes import AppliedNode, Node
from viewkeeper.settings import WorkSettings

N = TypeVar("N", bound=AppliedNode)
R = TypeVar("R", bound=Node)
Reader = tuple[Node, int]  # a node, and one of its edges by index


class Operator(ABC, Generic[N]):
    """The steps after a node's input is known. By default input is new states of records, and the last one wins."""

    def __init__(self, settings: WorkSettings) -> None:
        self._settings = settings

    def lessen(self, node: N, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        """Before the shuffle: the same input in fewer rows, where that pays."""
        return fewer_events(tables)

    def combine(self, node: N, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        """After the shuffle: the input of a channel with one row for each record, in the order of partitions and keys."""
        return last_events(tables, partitions)

    @abstractmethod
    def apply(self, applier: Applier, node: N, inputs: Mapping[Channel, pa.Table]) -> Iterator[Delta | Changes]:
        """Change the node's records; yields the input of its readers."""


class EdgeOperator(Operator[R]):
    """An operator whose nodes read deltas by their edges."""

    def read(self, readers: Sequence[tuple[R, int]], delta: Delta) -> Iterator[Input]:
        """Before the shuffle: the input that one delta gives all nodes of this kind that read it."""
        for node, number in readers:
            with blamed(node.table):
                rows, failing = delta.passing(node.edges[number])
                if failing is not None:
                    yield Input(node.table, Channel("aside", number), failing)
                for channel, mine in self.input_of(node, number, rows):
                    yield Input(node.table, channel, mine)

    @abstractmethod
    def input_of(self, node: R, number: int, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
        """The input that rows mean which passed the node's edge at `number`."""
