"""Base tables as Spark reads them: inside its tasks, straight from the store, as a recomputation on a schedule would.

In: a database and a table. Out: a DataFrame of its rows as they are now. Always: a task for each stream of the log; rows are
decoded by whole columns, and reach Spark as Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.model.positions import Positions
from viewkeeper.model.rowbatches import decode_columns
from viewkeeper.model.schema import TableSchema
from viewkeeper.stores.open import open_shared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from viewkeeper.client.database import Database


def base_frame(spark: SparkSession, db: Database, name: str) -> DataFrame:
    """The rows of a table with before-images in its log."""
    reader = BaseReader(db.url, db.store.incarnation, db.table(name).schema, db.store.ends())
    fields = ", ".join(f"`{column.name}` {column.type.spark}" for column in reader.table.columns)
    parts = len(db.store.parts(reader.table.id))
    return spark.range(0, parts, 1, parts).mapInArrow(reader.read, fields)


@dataclass(frozen=True, slots=True)
class BaseReader:
    url: str
    incarnation: str
    table: TableSchema
    positions: Positions

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_shared(self.url, self.incarnation)
        parts, names = list(store.parts(self.table.id)), [column.name for column in self.table.columns]
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in store.scan_as_of(self.table.id, parts[number], self.positions):
                    arrays = decode_columns(self.table, names, rows["key"], rows["row"])
                    yield pa.record_batch(dict(zip(names, arrays, strict=True)))
