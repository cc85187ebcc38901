"""Recomputation by Spark SQL: the judge of `check`.

In: Spark SQL text over base tables, and the moment that says which state of them. Out: the answer as Arrow. Always: the
base rows are read in parallel by Spark tasks, and are those as of the given moment: from the base with later changes taken
back, or from DELTA where the log has no before-images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import EpochFailed, PositionLost, StoreReplaced
from viewkeeper.model.positions import Position, Stream
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.tablebatches import decode_table
from viewkeeper.ports.recompute import Base, Moment
from viewkeeper.ports.store import Store
from viewkeeper.stores.open import open_shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRecompute:
    """The port `Recompute` over a Spark session."""

    def __init__(self, store: Store, session: SparkSession) -> None:
        self._store = store
        self._session = session

    def run(self, sql: str, bases: Sequence[Base], moment: Moment) -> pa.Table:
        try:
            for base in bases:
                self._register(base, moment)
            return self._session.sql(sql).toArrow()
        except Exception as error:
            if "viewkeeper.errors.StoreReplaced" in str(error):
                raise StoreReplaced(
                    "the store was removed or replaced while it was checked", "connect again"
                ) from error
            if "PositionLost" in str(error):
                raise PositionLost("the log was truncated while the check ran", "run it again") from error
            raise EpochFailed(f"Spark could not recompute the view: {str(error).splitlines()[0][:300]}") from error
        finally:
            for base in bases:
                self._session.catalog.dropTempView(base.name)

    def _register(self, base: Base, moment: Moment) -> None:
        store = self._store
        reader = BaseReader(store.url, store.incarnation, base.table, moment, base.without)
        fields = ", ".join(f"`{column.name}` {column.type.spark}" for column in base.table.columns)
        parts = reader.parts(store)
        streams = self._session.range(0, len(parts), 1, max(len(parts), 1))
        streams.mapInArrow(reader.read, fields).createOrReplaceTempView(base.name)


@dataclass(frozen=True, slots=True)
class BaseReader:
    """Reads a base table inside Spark tasks, but for the rows whose keys are in `without`."""

    url: str
    incarnation: str
    table: TableSchema
    moment: Moment
    without: frozenset[bytes]

    def parts(self, store: Store) -> list[int]:
        """Streams of the base, or places of DELTA."""
        return sorted(self.moment.positions) if self.table.delta is None else list(range(store.places))

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_shared(self.url, self.incarnation)
        parts, left_out = self.parts(store), pa.array(sorted(self.without), pa.binary())
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in self._rows(store, parts[number]):
                    if len(left_out):
                        rows = rows.filter(pc.invert(pc.is_in(rows["key"], value_set=left_out)))
                    yield pa.record_batch(decode_table(self.table, rows["key"], rows["row"]))

    def _rows(self, store: Store, part: int) -> Iterator[pa.RecordBatch]:
        moment = self.moment
        if self.table.delta is None:
            return store.scan_as_of(self.table.id, Stream(part), Position(moment.positions[Stream(part)]))
        return store.scan_versions(part, self.table.delta, moment.epoch, moment.void)
