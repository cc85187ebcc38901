"""Recomputation by Spark SQL: the judge of `check`.

In: Spark SQL text over one base table, and the positions that say which state of it. Out: the answer as Arrow. Always: the
base rows are read in parallel by Spark tasks, one for each stream, and are those as of the given positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.errors import EpochFailed, PositionLost
from viewkeeper.model.positions import Position, Positions, Stream
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.tablebatches import decode_table
from viewkeeper.stores.open import open_shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRecompute:
    """The port `Recompute` over a Spark session."""

    def __init__(self, url: str, session: SparkSession) -> None:
        self._url = url
        self._session = session

    def run(self, sql: str, table: TableSchema, positions: Positions) -> pa.Table:
        reader = BaseReader(self._url, table, dict(sorted(positions.items())))
        fields = ", ".join(f"`{column.name}` {column.type.spark}" for column in table.columns)
        streams = self._session.range(0, len(positions), 1, max(len(positions), 1))
        streams.mapInArrow(reader.read, fields).createOrReplaceTempView(table.name)
        try:
            return self._session.sql(sql).toArrow()
        except Exception as error:
            if "PositionLost" in str(error):
                raise PositionLost("the log was truncated while the check ran", "run it again") from error
            raise EpochFailed(f"Spark could not recompute the view: {str(error).splitlines()[0][:300]}") from error
        finally:
            self._session.catalog.dropTempView(table.name)


@dataclass(frozen=True, slots=True)
class BaseReader:
    """Reads a base table inside Spark tasks."""

    url: str
    table: TableSchema
    positions: Positions

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store, streams = open_shared(self.url), list(self.positions)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                stream = Stream(streams[number])
                for rows in store.scan_as_of(self.table, stream, Position(self.positions[stream])):
                    yield pa.record_batch(decode_table(self.table, rows["key"], rows["row"]))
