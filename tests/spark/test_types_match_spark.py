"""The bound types and DuckDB's values are Spark's: one table of expressions, judged by Spark itself.

A value that fails in Spark (ANSI) must be set aside by our SQL, and the other way round.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import parse_type
from viewkeeper.plan.build import build_view
from viewkeeper.plan.compile import compile_view
from viewkeeper.sql.bind import bind_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    ("id", "INT"),
    ("i", "INT"),
    ("j", "INT"),
    ("b", "BIGINT"),
    ("d", "DECIMAL(10,2)"),
    ("e", "DECIMAL(38,10)"),
    ("g", "DECIMAL(18,6)"),
    ("h", "DECIMAL(4,4)"),
    ("f", "DOUBLE"),
    ("s", "STRING"),
    ("p", "BOOLEAN"),
    ("dt", "DATE"),
    ("ts", "TIMESTAMP"),
    ("x", "BINARY"),
)
TABLE = TableSchema(
    TableId(1),
    "t",
    tuple(Column(name, parse_type(type_), nullable=name != "id") for name, type_ in COLUMNS),
    ("id",),
)
DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 500000)
INT_MIN, INT_MAX, BIGINT_MIN, BIGINT_MAX = -(2**31), 2**31 - 1, -(2**63), 2**63 - 1
NAN = math.nan
ROWS = [
    (1, 3, 2, 7, "1.25", "0.0000000001", "-0.333333", "0.0500", 2.5, "añ😀", True, DAY, MOMENT, b"\x00\xff"),
    (2, None, None, None, None, None, None, None, None, None, None, None, None, None),
    (3, INT_MAX, 1, BIGINT_MAX, "99999999.99", "9" * 28 + ".9999999999", "999999999999.999999", "0.9999", NAN, "", False,
     datetime.date(1, 1, 1), datetime.datetime(2024, 12, 31, 23, 59, 59, 999999), b""),
    (4, INT_MIN, -1, BIGINT_MIN, "-99999999.99", "-" + "9" * 28 + ".9999999999", "0.000001", "-0.0001", -0.0,
     "  it's\n% ", True, datetime.date(9999, 12, 31), datetime.datetime(1970, 1, 1), b"abc"),
    (5, 0, 0, 0, "0.00", "0", "0", "0", 0.0, "a_b", None, DAY, None, None),
    (6, -7, 3, -1, "-0.05", "-2.5", "2.500000", "-0.9999", math.inf, "ABC", False, None, MOMENT, b"\x01"),
    (7, 10, 4, 9007199254740993, "0.15", "123456789012345678.1234567891", "7.000000", "0.0001", -1e308, "b",
     True, DAY, MOMENT, None),
    (8, None, 0, 5, "2.50", None, None, None, 1e-320, "x", None, None, None, None),
    (9, 5, None, None, "-2.50", "1", "3.141592", "0.5000", 0.1, " a ", True, DAY, None, None),
]  # fmt: skip

EXPRESSIONS = """
i + j; i - j; i * j; i / j; i % j; i div j; b + i; b * 2; b div -1; b div i; b % i; b % -1; i / b; -i; -b; abs(i); abs(b)
d + 1; d + i; d - b; d * 2; d * i; d * d; d / 3; d / i; d / b; i / d; b / d; d / d; d / g; g / d; d % 7; d % i; d % g; g % d
e % d; e / d; e / 3; h / d; d / h; h * h; h + h; h - d; g * d; g + d; g / 7; b * d; b + e; e + 1; -d; abs(e); d * 1.1; i + 1.5
d + f; d * f; g + f; e * 1e0; f + f; f * f; f - 1; f / 2; f / f; f % 2; f % j; f / 0; -f; abs(f); i + 1e0; null + 1
i = j; i <> j; i < b; i <= d; d > e; d >= 1; e = b; i = f; d < f; g < f; f = f; f < 1e308; f > 0; f <=> f; i <=> null; s = 'b'
s < 'b'; s >= ''; p = true; p <=> false; dt > '2024-01-01'; dt = DATE '2024-02-29'; ts < TIMESTAMP '1970-01-01 00:00:00'
ts > dt; dt <= ts; x = X'00ff'; x < X'01'; 1 = 1.0
p and i > 0; p or i > 0; not p; p and null; i = 0 or j / i > 1; i <> 0 and j / i > 0; p or i + 1 > 0; p and i + 1 > 0
i is null; i is not null; p is true; p is not false; i in (1, 2.5, null); i not in (3, 5); d in (1.25, 0); s in ('a', '')
dt in ('2024-02-29'); i between j and 10; d between -1 and 1.5; not (i between 1 and 5)
case when p then 1 else d end; case when i = 0 then 0 else j / i end; case i when 3 then 'three' when 0 then 'zero' end
case when p then d else e end; if(p, 1, 1.5); if(i > 0, 1 / i, 0); if(null, 1, 2)
coalesce(i, 0); coalesce(i, d); coalesce(d, f); coalesce(j, i + 1); nullif(i, j); nullif(d, 0); nvl(s, 'none'); ifnull(b, i)
i + (i + 1); b + (b + 1); null + (i + 1); (i + 1) / j; (j + 1) % i; i / (j / i); (i * i) + (i * i)
cast(i as bigint); cast(b as int); cast(i as decimal(12,2)); cast(i as decimal(5,2)); cast(b as decimal(20,2)); cast(d as int)
cast(e as bigint); cast(d as decimal(8,1)); cast(d as decimal(12,4)); cast(d as decimal(3,1)); cast(e as decimal(38,2))
cast(e as decimal(38,12)); cast(g as decimal(13,0)); cast(h as decimal(1,0)); cast(d as double); cast(e as double)
cast(g as double); cast(i as double); cast(b as double); cast(i as string); cast(b as string); cast(d as string)
cast(h as string); cast(e as string); cast(p as string); cast(dt as string); cast(s as string); cast(p as int)
cast(p as bigint); cast(ts as date); cast(dt as timestamp); cast(null as int); cast('2024-01-01' as date)
length(s); char_length(s); length(x); s || 'x'; concat(s, s, '!'); concat(s, cast(i as string)); trim(s); ltrim(s); rtrim(s)
substring(s, 1, 2); substr(s, 2); substring(s, 3, 0); substring(s, 9, 2); s like 'a%'; s like '%b'; s like 'a_b'; s like ''
s not like '%a%'; year(dt); month(dt); day(dt); dayofmonth(dt); year(ts); month(ts); day(ts)
'it''s'; 'a' 'b'; 'tab\\t nl\\n q\\' bs\\\\ pct\\% us\\_'; "double ""quoted"" x"; 1L; 1.5BD; 2D; 1e3; -2147483648; 3000000000; .5
X'0aFF'; DATE '0001-01-01'; TIMESTAMP '2024-01-01 12:30:00.25'; TIMESTAMP '2024-01-01 12:30:00+02:00'; true; -1.50
"""
ALL = [entry.strip() for line in EXPRESSIONS.strip().splitlines() for entry in line.split(";")]


def _value(name: str, value: object) -> object:
    type_ = dict(COLUMNS)[name]
    return Decimal(value) if type_.startswith("DECIMAL") and isinstance(value, str) else value


@pytest.fixture(scope="module")
def base(spark: SparkSession) -> DataFrame:
    rows = [tuple(_value(name, value) for (name, _), value in zip(COLUMNS, row, strict=True)) for row in ROWS]
    table = pa.table(
        {
            column.name: pa.array([row[place] for row in rows], column.type.arrow)
            for place, column in enumerate(TABLE.columns)
        }
    )
    ddl = ", ".join(f"{name} {type_}{' NOT NULL' if name == 'id' else ''}" for name, type_ in COLUMNS)
    moment = [name for name, _ in COLUMNS].index("ts")
    utc = [
        tuple(
            value.replace(tzinfo=datetime.UTC) if place == moment and value is not None else value
            for place, value in enumerate(row)
        )
        for row in rows
    ]
    frame = spark.createDataFrame(utc, ddl)
    frame.createOrReplaceTempView("t")
    frame.images = table  # type: ignore[attr-defined]
    return frame


def _ours(text: str, images: pa.Table) -> dict[int, object]:
    """Key → value, without the rows that are set aside."""
    query = bind_query(f"SELECT {text} AS o FROM t", lambda name: TABLE)
    node, shown = compile_view(build_view(query, view_id=TableId(2), name="v"))
    place = {"key": "k", "row": "v"}[shown[0].part] + str(shown[0].index)
    renamed = {"ord": pa.array(range(len(images)), pa.int64())}
    renamed |= {f"c{position}": images.column(position) for position in node.columns}
    connection = duckdb.connect()
    connection.register("images", pa.table(renamed))
    rows = connection.sql(node.project).to_arrow_table().to_pylist()
    return {row["k0"]: row[place] for row in rows}


def _theirs(text: str, spark: SparkSession) -> dict[int, object]:
    """Key → value, row by row, because one failing row fails a whole query."""
    try:
        return dict(_spark_rows(spark, f"SELECT id, {text} AS o FROM t"))
    except Exception as error:
        if "ARITHMETIC_OVERFLOW" not in str(error) and "DIVIDE" not in str(error) and "NUMERIC" not in str(error):
            if "OVERFLOW" not in str(error) and "REMAINDER_BY_ZERO" not in str(error):
                raise
    found: dict[int, object] = {}
    for row in ROWS:
        try:
            found.update(_spark_rows(spark, f"SELECT id, {text} AS o FROM t WHERE id = {row[0]}"))
        except Exception as error:
            assert "OVERFLOW" in str(error) or "ZERO" in str(error) or "NUMERIC" in str(error), error
    return found


def _spark_rows(spark: SparkSession, sql: str) -> list[tuple[int, object]]:
    frame = spark.sql(sql)
    if frame.schema["o"].dataType.simpleString() == "timestamp":
        # collect() would give local time; as text it is UTC, the session's zone.
        frame = spark.sql(sql.replace(" AS o ", " AS o0 ")).selectExpr("id", "cast(o0 as string) as o")
        return [(row.id, row.o and datetime.datetime.fromisoformat(_padded(row.o))) for row in frame.collect()]
    return [(row.id, bytes(row.o) if isinstance(row.o, bytearray) else row.o) for row in frame.collect()]


def _padded(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(6, '0')}" if fraction else whole


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    return type(ours) is type(theirs) and ours == theirs


def test_each_type_is_the_one_of_sparks_analyzer(spark: SparkSession, base: DataFrame) -> None:
    wrong = []
    for text in ALL:
        bound = bind_query(f"SELECT {text} AS o FROM t", lambda name: TABLE).outputs[0].expression
        field = spark.sql(f"SELECT {text} AS o FROM t").schema["o"]
        if bound.type.spark.lower() != field.dataType.simpleString():
            wrong.append((text, str(bound.type), field.dataType.simpleString()))
    assert wrong == []


def test_each_value_is_sparks_and_each_failing_row_is_set_aside(spark: SparkSession, base: DataFrame) -> None:
    wrong = []
    for text in ALL:
        ours, theirs = _ours(text, base.images), _theirs(text, spark)  # type: ignore[attr-defined]
        for key in range(1, len(ROWS) + 1):
            if (key in ours) != (key in theirs) or not _same(ours.get(key), theirs.get(key)):
                wrong.append((text, key, ours.get(key, "set aside"), theirs.get(key, "fails")))
    assert wrong == []


AGGREGATES = """
count(*); count(i); count(1); sum(i); sum(j); sum(d); sum(h); sum(g); avg(i); avg(j); avg(d); avg(h); avg(g); sum(i) / count(*)
sum(d) / count(*); sum(d) / count(d); sum(j) + 1; sum(d) * 2; avg(d) + 1; sum(case when p then 1 else 0 end); count(s)
sum(cast(p as int)); avg(j * 2); sum(j + 0.5); count(*) * 2; -sum(j); coalesce(sum(j), 0); sum(1); avg(1.5); sum(d) % 7
"""
ALL_AGGREGATES = [entry.strip() for line in AGGREGATES.strip().splitlines() for entry in line.split(";")]


@pytest.mark.parametrize("group", ["", " GROUP BY p", " GROUP BY f", " GROUP BY i % 2"])
def test_each_aggregate_is_sparks(spark: SparkSession, base: DataFrame, group: str) -> None:
    # i % 2 and the sums of i stay inside their types, so Spark does not fail.
    key = group.removeprefix(" GROUP BY ") or "1"
    wrong = []
    for text in ALL_AGGREGATES:
        query = bind_query(f"SELECT {text} AS o FROM t{group}", lambda name: TABLE)
        frame = spark.sql(f"SELECT {key} AS k, {text} AS o FROM t{group}")
        if query.outputs[0].expression.type.spark.lower() != frame.schema["o"].dataType.simpleString():
            wrong.append((text, str(query.outputs[0].expression.type), frame.schema["o"].dataType.simpleString()))
        ours = sorted(_fold(f"SELECT {text} AS o FROM t{group}", base.images), key=repr)  # type: ignore[attr-defined]
        theirs = sorted(((row.k if group else None, row.o) for row in frame.collect()), key=repr)
        if [(repr(k), repr(v)) for k, v in ours] != [(repr(k), repr(v)) for k, v in theirs]:
            wrong.append((text, ours, theirs))
    assert wrong == []


def _fold(text: str, images: pa.Table) -> list[tuple[object, object]]:
    query = bind_query(text, lambda name: TABLE)
    node, shown = compile_view(build_view(query, view_id=TableId(2), name="v"))
    connection = duckdb.connect()
    connection.register("images", pa.table({f"c{position}": images.column(position) for position in node.columns}))
    states = connection.sql(node.contribute).to_arrow_table()
    connection.register("states", states)
    finished = connection.sql(node.finish).to_arrow_table()
    place = shown[0].index
    width = len(node.state)
    values = finished[f"v{place - width}"] if place >= width else states[f"s{place}"]
    keys = states["k0"] if node.key else pa.nulls(len(states))
    return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
