"""Expressions, judged by Spark: the same rows for Spark and for our SQL in DuckDB.

In: a table's columns and rows, and texts of expressions. Out: lists of differences, empty when there are none. Always: a
value that fails in Spark (ANSI) must be set aside by our SQL, and the other way round.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.algebra.expressions import Expression, columns_of
from viewkeeper.algebra.relations import Relation, Scan, expressions_of
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import TIMESTAMP, parse_type
from viewkeeper.operators.delta_rows import run_edge
from viewkeeper.plan.lower import lower_view
from viewkeeper.sql.bind_query import bind_query
from viewkeeper.sql.query_parser import ViewSpark, parse_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Spark says when a value fails under ANSI; the last ones are Python's words for a year beyond 9999 or before 1.
FAILURES = (
    "OVERFLOW",
    "BY_ZERO",
    "OUT_OF_RANGE",
    "OUT_OF_BOUNDS",
    "CAST_INVALID_INPUT",
    "out of range",
    "ordinal must be",
    "signed integer is",
    "Invalid isoformat",
)
# A failing row costs Spark a query of its own.
COMBINATIONS = 12


def entries(text: str) -> list[str]:
    """Expressions that stand on lines, several of them parted by semicolons."""
    return [entry.strip() for line in text.strip().splitlines() for entry in line.split(";")]


@dataclass(frozen=True)
class Sample:
    """A table `name` with the first column as its key, and its rows; a DECIMAL is written as a string."""

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: Sequence[tuple[object, ...]]

    @property
    def table(self) -> TableSchema:
        key = self.columns[0][0]
        columns = tuple(Column(name, parse_type(type_), nullable=name != key) for name, type_ in self.columns)
        return TableSchema(TableId(1), self.name, columns, (key,))

    @property
    def values(self) -> list[tuple[object, ...]]:
        return [
            tuple(_value(type_, value) for (_, type_), value in zip(self.columns, row, strict=True))
            for row in self.rows
        ]

    def delta(self) -> pa.Table:
        """The rows for DuckDB."""
        columns = enumerate(self.table.columns)
        return pa.table({c.name: pa.array([row[place] for row in self.values], c.type.arrow) for place, c in columns})

    def show(self, spark: SparkSession) -> None:
        """The rows as a view of Spark.

        They are literals, so that Spark evaluates small queries in the driver: a failing row costs no task.
        """
        table = self.table
        tuples = [", ".join(_literal(*pair) for pair in zip(table.columns, row, strict=True)) for row in self.values]
        listed = ", ".join(f"({entry})" for entry in tuples)
        names = ", ".join(name for name, _ in self.columns)
        spark.sql(f"SELECT * FROM VALUES {listed} AS t({names})").createOrReplaceTempView(self.name)

    def bound(self, text: str) -> Expression:
        (expression,) = expressions_of(self._query(text))
        return expression

    def _query(self, text: str) -> Relation:
        return bind_query(f"SELECT {text} AS o FROM {self.name}", lambda name: Scan(self.table))

    def printed(self, text: str) -> str:
        """The expression as it was read and printed again, which is how `check` asks Spark."""
        return parse_query(f"SELECT {text} AS o FROM {self.name}").selects[0].this.sql(dialect=ViewSpark)

    def distinct(self, text: str, rows: Sequence[tuple[object, ...]]) -> list[object]:
        """Keys of the rows: one for each value that the expression reads; of combinations of values a few."""
        read = columns_of(self.bound(text))
        keys = list({tuple(repr(row[place]) for place in read): row[0] for row in rows}.values())
        return keys if len(read) == 1 else keys[:: max(1, len(keys) // COMBINATIONS)]

    def ours(self, text: str, delta: pa.Table) -> dict[object, object]:
        """Key → value, without the rows that are set aside."""
        lowered = lower_view(self._query(text))
        (edge,), shown = lowered.root.edges, lowered.shown
        place = {"key": "k", "row": "v"}[shown[0].part] + str(shown[0].index)
        renamed = {"ord": pa.array(range(len(delta)), pa.int64()), "sign": pa.array([1] * len(delta), pa.int32())}
        renamed |= {f"c{position}": delta.column(position) for position in edge.columns}
        rows = run_edge(edge, pa.table(renamed)).to_pylist()
        return {row["k0"]: row[place] for row in rows if not row.get("fails")}


def _value(type_: str, value: object) -> object:
    return Decimal(value) if type_.startswith("DECIMAL") and isinstance(value, str) else value


def _literal(column: Column, value: object) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    quoted = f"'{text}'"
    return f"CAST({'NULL' if value is None else quoted} AS {column.type})"


def listed(expressions: dict[str, str]) -> str:
    return ", ".join(f"{text} AS {name}" for name, text in expressions.items())


def wrong_types(spark: SparkSession, sample: Sample, texts: Sequence[str]) -> list[tuple[object, ...]]:
    """Expression, our type, Spark's type, where they differ."""
    names = {f"o{place}": text for place, text in enumerate(texts)}
    fields = spark.sql(f"SELECT {listed(names)} FROM {sample.name}").schema
    pairs = [
        (text, sample.bound(text).type.spark.lower(), fields[name].dataType.simpleString())
        for name, text in names.items()
    ]
    return [pair for pair in pairs if pair[1] != pair[2]]


def wrong_values(
    spark: SparkSession, sample: Sample, delta: pa.Table, texts: Sequence[str]
) -> list[tuple[object, ...]]:
    """Expression, key, our value, Spark's value, where they differ; of expressions that cannot fail."""
    sure = [text for text in texts if not sample.bound(text).fallible]
    theirs = _spark_rows(spark, sample, sure, "true")
    wrong: list[tuple[object, ...]] = []
    for place, text in enumerate(sure):
        ours, key = sample.ours(text, delta), sample.columns[0][0]
        wrong += [
            (text, row[key], ours.get(row[key], "set aside"), row[f"o{place}"])
            for row in theirs
            if row[key] not in ours or not _same(ours[row[key]], row[f"o{place}"])
        ]
        if not sample.bound(text).nullable and None in ours.values():
            wrong.append((text, "is NULL, but was said never to be"))
    return wrong


def wrong_failures(
    spark: SparkSession, sample: Sample, delta: pa.Table, texts: Sequence[str]
) -> list[tuple[object, ...]]:
    """The same of expressions that may fail: values, and rows that fail on one side only."""
    wrong: list[tuple[object, ...]] = []
    key = sample.columns[0][0]
    for text in [text for text in texts if sample.bound(text).fallible]:
        ours = sample.ours(text, delta)
        kept = ", ".join(str(value) for value in ours) or "null"
        try:
            theirs = _spark_rows(spark, sample, [text], f"{key} IN ({kept})")
        except Exception as error:
            failing = [value for value in ours if _fails(spark, sample, text, value)]
            wrong.append((text, "fails in Spark", str(error)[:80], failing))
            continue
        wrong += [(text, row[key], ours[row[key]], row["o0"]) for row in theirs if not _same(ours[row[key]], row["o0"])]
        aside = sample.distinct(text, [row for row in sample.rows if row[0] not in ours])
        fine = [value for value in aside if not _fails(spark, sample, text, value)]
        wrong += [(text, value, "set aside, but fine in Spark") for value in fine]
    return wrong


def wrong_prints(spark: SparkSession, sample: Sample, texts: Sequence[str]) -> list[str]:
    """What no longer means the same when it was read and printed again; of expressions that cannot fail."""
    sure = {text: sample.printed(text) for text in texts if not sample.bound(text).fallible}
    same = {f"o{place}": f"every(({a}) <=> ({b}))" for place, (a, b) in enumerate(sure.items())}
    found = spark.sql(f"SELECT {listed(same)} FROM {sample.name}").first()
    return [text for text, value in zip(sure.values(), found or (), strict=True) if value is not True]


def _spark_rows(spark: SparkSession, sample: Sample, texts: Sequence[str], where: str) -> list[dict[str, object]]:
    """Key and values of the expressions, by place. A timestamp comes as text: collect() gives local time."""
    key = sample.columns[0][0]
    names = {f"o{place}": text for place, text in enumerate(texts)}
    shown = {
        name: f"CAST({text} AS STRING)" if sample.bound(text).type == TIMESTAMP else text
        for name, text in names.items()
    }
    rows = spark.sql(f"SELECT {key}, {listed(shown)} FROM {sample.name} WHERE {where}").collect()
    return [{name: _read(row[name], shown[name] != names[name]) for name in names} | {key: row[key]} for row in rows]


def _read(value: object, is_moment: bool) -> object:
    if is_moment and value is not None:
        return datetime.datetime.fromisoformat(_padded(str(value)))
    return bytes(value) if isinstance(value, bytearray) else value


def _fails(spark: SparkSession, sample: Sample, text: str, key: object) -> bool:
    try:
        _spark_rows(spark, sample, [text], f"{sample.columns[0][0]} = {key}")
    except Exception as error:
        assert any(word in str(error) for word in FAILURES), error
        return True
    return False


def _padded(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(6, '0')}" if fraction else whole


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        same_sign = math.copysign(1, ours) == math.copysign(1, theirs)
        return (ours == theirs and same_sign) or (math.isnan(ours) and math.isnan(theirs))
    return type(ours) is type(theirs) and ours == theirs
