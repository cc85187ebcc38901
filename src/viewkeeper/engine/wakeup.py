"""The Spark side of the log: a streaming source that signals when there is something to do.

In: the store's URL and incarnation. Out: offsets: the end of each stream, and the catalog's version, because a new view
is work too. Always: it carries no data; an epoch reads its own stored ranges, so losing this source's checkpoint loses
nothing (R9).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from viewkeeper.model.positions import positions_to_json
from viewkeeper.stores.open import open_shared

NAME = "viewkeeper_wakeup"


class WakeupSource(DataSource):
    """Registered under `NAME`; the options `url` and `incarnation` name the store."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "wakeup binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return WakeupReader(self.options["url"], self.options["incarnation"])


class WakeupReader(DataSourceStreamReader):
    """Polled by Spark; each poll makes two small reads of the store."""

    def __init__(self, url: str, incarnation: str) -> None:
        self._url = url
        self._incarnation = incarnation

    def initialOffset(self) -> dict:
        return {"catalog": 0, "ends": "{}"}

    def latestOffset(self, start: dict | None = None, limit: object = None) -> dict:
        store = open_shared(self._url, self._incarnation)
        ends = positions_to_json(store.ends())
        return {"catalog": store.read_horizon().catalog_version, "ends": json.dumps(ends, sort_keys=True)}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())
