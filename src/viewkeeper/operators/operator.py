"""Operator: what a kind of node does, wherever it runs.

In: deltas of a node's sources, then the input of its channels. Out: changed records, and the input of its readers.
Always: a function of its inputs and of the records below the epoch (R6, R7); the same on the driver, in Spark and in
tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from viewkeeper.operators.apply import Applier, Changes
from viewkeeper.operators.channels import Channel
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.record_events import fewer_events, last_events
from viewkeeper.plan.nodes import Node
from viewkeeper.settings import WorkSettings

if TYPE_CHECKING:
    from viewkeeper.operators.inputs import DeltaCollector

N = TypeVar("N")
Reader = tuple[Node, int]  # a node, and one of its edges by index


class Operator(Generic[N]):
    """The four methods of every operator. By default input is new states of records, and the last one wins."""

    def __init__(self, settings: WorkSettings) -> None:
        self._settings = settings

    def read(self, readers: Sequence[tuple[N, int]], delta: Delta, out: DeltaCollector) -> None:
        """Before the shuffle: the input that one delta gives all nodes of this kind that read it."""
        raise NotImplementedError

    def lessen(self, node: N, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        """Before the shuffle: the same input in fewer rows, where that pays."""
        return fewer_events(tables)

    def combine(self, node: N, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        """After the shuffle: the input of a channel with one row for each record, in the order of partitions and keys."""
        return last_events(tables, partitions)

    def apply(self, applier: Applier, node: N, inputs: Mapping[Channel, pa.Table]) -> Iterator[Delta | Changes]:
        """Change the node's records; yields the input of its readers."""
        raise NotImplementedError
