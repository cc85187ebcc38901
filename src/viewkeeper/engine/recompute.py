"""Recomputation by Spark SQL: the judge of `check`.

In: Spark SQL text over tables in Parquet files. Out: the result as Parquet files. Always: a session of its own, with
settings for batch SQL; the user's session is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.engine.spark_errors import is_lost, spark_lost, translate_spark_lost
from viewkeeper.errors import EpochFailed, ReadError
from viewkeeper.model.schema import Column
from viewkeeper.model.wording import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BYTES_PER_PARTITION = 1 << 25
_PARTITIONS_MAX = 200
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.subexpressionElimination.enabled": "false",  # else what is also outside a TRY is computed before it
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "lz4_raw",
}
# Many queries over few rows: optimizing the code takes longer than running it as it is.
FEW_ROWS_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TRY = "viewkeeper_try"
_TRY_CLASS = "org.apache.spark.sql.catalyst.expressions.TryEval"


class SparkRecompute:
    """The port `Recompute` over a Spark session; `size_bytes` is the approximate size of its tables."""

    def __init__(self, session: SparkSession, size_bytes: int) -> None:
        partitions = min(1 + size_bytes // _BYTES_PER_PARTITION, _PARTITIONS_MAX)
        sized = {
            # what AQE learns during a query pays for the stages it adds only where there is much to learn
            "spark.sql.adaptive.enabled": str(partitions > 1).lower(),
            "spark.sql.shuffle.partitions": str(partitions),
        }
        with translate_spark_lost(session):
            self._session = session.newSession()
            for name, value in (_SETTINGS | sized).items():
                self._session.conf.set(name, value)
            _add_try(self._session)

    def register(self, name: str, columns: Sequence[Column], file: Path) -> None:
        fields = ", ".join(f"`{column.name}` {column.type.spark}" for column in columns)
        with translate_spark_lost(self._session):
            self._session.read.schema(fields).parquet(file.as_uri()).createOrReplaceTempView(name)

    def answer(self, sql: str, target: Path, name: str | None = None) -> None:
        try:
            self._session.sql(sql).write.mode("overwrite").parquet(target.as_uri())
            if name is not None:
                self._session.read.parquet(target.as_uri()).createOrReplaceTempView(name)
        except Exception as error:
            if is_lost(self._session):
                raise spark_lost(self._session) from error
            if "CANCELLED" in str(error):  # by an interrupt: no more queries follow
                raise ReadError("Spark's jobs were cancelled", "run it again") from error
            raise EpochFailed(f"Spark could not recompute the view: {cause_of(error)}") from error

    def cancel(self) -> None:
        if not is_lost(self._session):
            self._session.interruptAll()


def _add_try(session: SparkSession) -> None:
    """Make `viewkeeper_try(x)` known to SQL: Catalyst has such an expression, but no name for it."""
    jvm = session._jvm
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(_TRY_CLASS))
    functions = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase
    built = functions.build(_TRY, jvm.scala.Option.empty(), kind)
    registry = session._jsparkSession.sessionState().functionRegistry()
    registry.createOrReplaceTempFunction(_TRY, built._2(), "scala_udf")
