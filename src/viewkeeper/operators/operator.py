"""Operator: what a kind of node does, wherever it runs.

In: deltas of a node's sources, then the input of its channels. Out: changed records, and the input of its readers.
Always: a function of its inputs and of the records below the epoch (R6, R7). By default input is events (key, hash, ord,
row or NULL), the last of which in log order is the state of its record, so that a row that leaves a key and returns in the
same epoch needs no collapse. An error of a view's own work becomes ViewFailed, or EpochTooLarge where an Arrow array cannot
hold the data; what the view did not cause (a newer epoch, the store, memory) passes. The reason holds no value of a row,
because it goes into the epoch record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import EpochTooLarge, InvariantBroken, LaterRecord, ViewFailed
from viewkeeper.model.keybatches import last_of_keys
from viewkeeper.model.rowbatches import encode_rows
from viewkeeper.model.schema import Column
from viewkeeper.model.wording import cause_of
from viewkeeper.operators.apply import AppliedChanges, Applier
from viewkeeper.operators.delta_rows import Delta, by_sign
from viewkeeper.operators.duck import as_type
from viewkeeper.operators.messages import ROWS, Channel, Input
from viewkeeper.plan.nodes import AppliedNode, Node
from viewkeeper.settings import WorkSettings

# ArrowInvalid is a ValueError; ArrowMemoryError is a MemoryError, for which no view is to blame.
_ITS_OWN = (InvariantBroken, duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError)
_TOO_LARGE = ("offset overflow", "binary array capacity", "maximum total string size")


@contextmanager
def attribute_errors_to(table: int) -> Iterator[None]:
    """The block works for the view with that table."""
    try:
        yield
    except LaterRecord as error:
        raise LaterRecord(error.epoch, table) from error
    except duckdb.OutOfMemoryException:
        raise
    except (pa.ArrowCapacityError, OSError, *_ITS_OWN) as error:
        # one Arrow array would exceed 2 GiB, in an Arrow function or in a result of DuckDB
        if isinstance(error, pa.ArrowCapacityError) or any(words in str(error) for words in _TOO_LARGE):
            raise EpochTooLarge(table, cause_of(error)) from error
        if isinstance(error, OSError):
            raise
        raise ViewFailed(table, cause_of(error)) from error


_FEW_EVENTS = 50_000
_SHARE_WORTH_IT = 0.75  # of events that would be left
_SAMPLED = np.uint32(61)  # one hash in so many tells the share


def events(keys: pa.Array, hashes: np.ndarray, passed: pa.Table, row: tuple[Column, ...]) -> pa.Table:
    """An event for each row of `passed` (`ord`, `sign`, `v0…`), under the given keys."""
    inserted, deleted = by_sign(passed)
    values = [as_type(inserted[f"v{i}"], column.type.arrow) for i, column in enumerate(row)]
    rows = pa.concat_arrays([encode_rows(row, values, len(inserted)), pa.nulls(len(deleted), pa.binary())])
    is_inserted = np.asarray(passed["sign"]) > 0
    if not is_inserted[: len(inserted)].all():  # back to the order of the keys
        rows = rows.take(pa.array(np.where(is_inserted, np.cumsum(is_inserted) - 1, len(inserted))))
    return pa.table({"key": keys, "hash": pa.array(hashes), "ord": passed["ord"], "row": rows})


def fewer_events(parts: Sequence[pa.Table]) -> pa.Table:
    """The same events without those that later ones override, where these are many; in no order."""
    events = pa.concat_tables(parts).combine_chunks()
    if len(events) <= _FEW_EVENTS:  # it is faster to move them than to group them
        return events
    keys, hashes = events["key"].combine_chunks(), np.asarray(events["hash"])
    some = keys.filter(pa.array(hashes % _SAMPLED == hashes[0] % _SAMPLED))  # all events of some records
    if pc.count_distinct(some).as_py() > _SHARE_WORTH_IT * len(some):
        return events
    chosen = last_of_keys(keys, np.asarray(events["ord"]), groups=np.zeros(len(keys), np.int64))
    return events.take(pa.array(chosen))


def last_events(parts: Sequence[pa.Table], partitions: int) -> pa.Table:
    """The last event of each record, ordered by partition and, within it, by key."""
    events = pa.concat_tables(parts).combine_chunks()
    at = (np.asarray(events["hash"]) % partitions).astype(np.int64)
    chosen = last_of_keys(events["key"].combine_chunks(), np.asarray(events["ord"]), groups=at)
    return events.take(pa.array(chosen)).combine_chunks()


N = TypeVar("N", bound=AppliedNode)
R = TypeVar("R", bound=Node)
Reader = tuple[Node, int]  # a node, and one of its edges by index


class Operator(Generic[N]):
    """The steps after a node's input is known. By default input is new states of records, and the last one wins."""

    def __init__(self, settings: WorkSettings) -> None:
        self._settings = settings

    def pre_combine(self, node: N, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        """Before the shuffle: the same input in fewer rows, where that pays."""
        return fewer_events(tables)

    def combine(self, node: N, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        """After the shuffle: the input of a channel with one row for each record, in the order of partitions and keys."""
        return last_events(tables, partitions)

    def apply(self, applier: Applier, node: N, inputs: Mapping[Channel, pa.Table]) -> Iterator[Delta | AppliedChanges]:
        """Change the node's records; yields the input of its readers."""
        if ROWS in inputs:
            yield applier.put_events(node.table, inputs[ROWS])


class EdgeOperator(Operator[R], ABC):
    """An operator whose nodes read deltas by their edges."""

    @abstractmethod
    def read(self, readers: Sequence[tuple[R, int]], delta: Delta) -> Iterator[Input]:
        """Before the shuffle: the input that one delta gives all nodes of this kind that read it."""


class RowsOperator(EdgeOperator[R]):
    """One whose nodes read the rows that pass their edges, each for itself."""

    def read(self, readers: Sequence[tuple[R, int]], delta: Delta) -> Iterator[Input]:
        for node, number in readers:
            with attribute_errors_to(node.table):
                rows, failing = delta.passing(node.edges[number])
                if failing is not None:
                    yield Input(node.table, Channel("aside", number), failing)
                for channel, mine in self.input_of(node, number, rows):
                    yield Input(node.table, channel, mine)

    @abstractmethod
    def input_of(self, node: R, number: int, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
        """The input that rows mean which passed the node's edge at `number`."""
