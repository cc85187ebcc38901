"""TPC-H: its tables, its data from `tpchgen-cli`, its refreshes, and DuckDB's answers to its queries.

In: a scale, a store. Out: the store with the tables loaded, and after each refresh what every view must hold. Always: the
expected rows come from DuckDB's own copy of the tables, which gets the same refreshes; sums and counts are compared exactly,
an AVG or a quotient is computed from DuckDB's exact sums and rounded half up to the digits that the view's type has.
"""

from __future__ import annotations

import decimal
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.support.tpch_queries import QUERIES, REWRITTEN

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

# DECIMAL(15,2) is what the specification's own tools and `tpchgen-cli` write.
TABLES: dict[str, str] = {
    "region": "r_regionkey BIGINT PRIMARY KEY, r_name STRING NOT NULL, r_comment STRING NOT NULL",
    "nation": "n_nationkey BIGINT PRIMARY KEY, n_name STRING NOT NULL, n_regionkey BIGINT NOT NULL, "
    "n_comment STRING NOT NULL",
    "supplier": "s_suppkey BIGINT PRIMARY KEY, s_name STRING NOT NULL, s_address STRING NOT NULL, "
    "s_nationkey BIGINT NOT NULL, s_phone STRING NOT NULL, s_acctbal DECIMAL(15,2) NOT NULL, s_comment STRING NOT NULL",
    "customer": "c_custkey BIGINT PRIMARY KEY, c_name STRING NOT NULL, c_address STRING NOT NULL, "
    "c_nationkey BIGINT NOT NULL, c_phone STRING NOT NULL, c_acctbal DECIMAL(15,2) NOT NULL, "
    "c_mktsegment STRING NOT NULL, c_comment STRING NOT NULL",
    "part": "p_partkey BIGINT PRIMARY KEY, p_name STRING NOT NULL, p_mfgr STRING NOT NULL, p_brand STRING NOT NULL, "
    "p_type STRING NOT NULL, p_size INT NOT NULL, p_container STRING NOT NULL, p_retailprice DECIMAL(15,2) NOT NULL, "
    "p_comment STRING NOT NULL",
    "partsupp": "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT NOT NULL, ps_supplycost DECIMAL(15,2) NOT NULL, "
    "ps_comment STRING NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)",
    "orders": "o_orderkey BIGINT PRIMARY KEY, o_custkey BIGINT NOT NULL, o_orderstatus STRING NOT NULL, "
    "o_totalprice DECIMAL(15,2) NOT NULL, o_orderdate DATE NOT NULL, o_orderpriority STRING NOT NULL, "
    "o_clerk STRING NOT NULL, o_shippriority INT NOT NULL, o_comment STRING NOT NULL",
    "lineitem": "l_orderkey BIGINT, l_partkey BIGINT NOT NULL, l_suppkey BIGINT NOT NULL, l_linenumber INT, "
    "l_quantity DECIMAL(15,2) NOT NULL, l_extendedprice DECIMAL(15,2) NOT NULL, l_discount DECIMAL(15,2) NOT NULL, "
    "l_tax DECIMAL(15,2) NOT NULL, l_returnflag STRING NOT NULL, l_linestatus STRING NOT NULL, "
    "l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL, l_shipinstruct STRING NOT NULL, "
    "l_shipmode STRING NOT NULL, l_comment STRING NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)",
}
_CUSTOMERS_CHANGED = 3
Row = tuple[object, ...]


def generate(folder: Path, scale: float) -> dict[str, pa.Table]:
    """All tables at a scale, in the types of `TABLES`; written to `folder` on the way."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    tool = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if tool is None:
        raise FileNotFoundError("tpchgen-cli is not installed: pip install -e '.[dev]'")
    command = [tool, "parquet", "--scale-factor", str(scale), "--output-dir", str(folder), "--quiet", "--overwrite"]
    subprocess.run(command, check=True)
    return {name: _plain(pq.read_table(folder / f"{name}.parquet")) for name in TABLES}


def _plain(table: pa.Table) -> pa.Table:
    kinds = {pa.string_view(): pa.string()}
    schema = pa.schema([(field.name, kinds.get(field.type, field.type)) for field in table.schema])
    return table.cast(schema)


def create_tables(db: Database) -> None:
    for name, columns in TABLES.items():
        db.execute(f"CREATE TABLE {name} ({columns})")


class TpchModel:
    """DuckDB's copy of the tables, and the refreshes that are still to come."""

    def __init__(self, tables: Mapping[str, pa.Table], seed: int = 1) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")
        for name, rows in tables.items():
            self._connection.register("arrow", rows)
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow")
        self._random = np.random.default_rng(seed)
        self._old = self._random.permutation(tables["orders"]["o_orderkey"].to_numpy())
        self._next_key = int(pc.max(tables["orders"]["o_orderkey"]).as_py()) + 1

    def rows(self, sql: str) -> list[Row]:
        return self._connection.execute(sql).fetchall()

    def table(self, sql: str) -> pa.Table:
        return self._connection.sql(sql).to_arrow_reader().read_all()

    def load(self, db: Database) -> None:
        for name in TABLES:
            db.table(name).put_many(self.table(f"SELECT * FROM {name}"))

    def refresh(self, db: Database, share: float) -> int:
        """New orders with their lineitems, as many old ones deleted, a few customers changed; returns how many rows."""
        count = max(1, round(share * self.rows("SELECT count(*) FROM orders")[0][0]))
        orders, lines = self._new_orders(count)
        gone, self._old = self._old[:count].tolist(), self._old[count:]
        gone_lines = self.rows(f"SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_orderkey IN ({_listed(gone)})")
        customers = self._changed_customers()
        db.table("orders").put_many(orders)
        db.table("lineitem").put_many(lines)
        db.table("lineitem").delete_many(gone_lines)
        db.table("orders").delete_many(gone)
        db.table("customer").put_many(customers)
        self._apply("orders", "o_orderkey", orders, gone)
        self._apply("lineitem", "l_orderkey", lines, gone)
        self._apply("customer", "c_custkey", customers, customers["c_custkey"].to_pylist())
        return len(orders) + len(lines) + len(gone) + len(gone_lines) + len(customers)

    def _new_orders(self, count: int) -> tuple[pa.Table, pa.Table]:
        """Copies of orders that are there, of other customers, with all their lineitems."""
        copied = self._random.choice(self._old[count:], count, replace=False)
        customers = self._random.choice(np.array(self.rows("SELECT c_custkey FROM customer"))[:, 0], count)
        keys = np.arange(self._next_key, self._next_key + count)
        self._next_key += count
        self._connection.register("copies", pa.table({"old": copied, "new": keys, "customer": customers}))
        orders = (
            "SELECT o.* REPLACE (new AS o_orderkey, customer AS o_custkey) FROM orders o, copies WHERE o_orderkey = old"
        )
        lines = (
            "SELECT l.* REPLACE (new AS l_orderkey, CAST(l_quantity + new % 3 AS DECIMAL(15,2)) AS l_quantity) "
            "FROM lineitem l, copies WHERE l_orderkey = old"
        )
        return self.table(orders), self.table(lines)

    def _changed_customers(self) -> pa.Table:
        keys = self._random.choice(np.array(self.rows("SELECT c_custkey FROM customer"))[:, 0], _CUSTOMERS_CHANGED)
        nation, money = (int(self._random.integers(0, high)) for high in (25, 999_999))
        changed = (
            f"CAST({nation} AS BIGINT) AS c_nationkey, CAST({money} / 100 AS DECIMAL(15,2)) AS c_acctbal, "
            "CASE c_mktsegment WHEN 'BUILDING' THEN 'MACHINERY' ELSE 'BUILDING' END AS c_mktsegment"
        )
        return self.table(f"SELECT * REPLACE ({changed}) FROM customer WHERE c_custkey IN ({_listed(keys.tolist())})")

    def _apply(self, table: str, key: str, rows: pa.Table, gone: list[int]) -> None:
        self._connection.execute(f"DELETE FROM {table} WHERE {key} IN ({_listed(gone)})")
        self._connection.register("arrow", rows)
        self._connection.execute(f"INSERT INTO {table} SELECT * FROM arrow")

    def answer(self, query: int) -> Counter[Row]:
        """What DuckDB says to a query, as a bag; of one that is kept in other words, to the query as it is written."""
        rows = self.rows(_EXACT.get(query, QUERIES[query]))
        return Counter(_FINISHED[query](*row) if query in _FINISHED else row for row in rows)


def records(db: Database, view: str) -> Counter[Row]:
    """What a view holds, as a bag."""
    found = db.view(view).to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True))


def views(queries: Mapping[int, str] = QUERIES) -> dict[int, str]:
    """The text under which each query is kept."""
    return {number: REWRITTEN.get(number, text) for number, text in queries.items()}


def _listed(keys: list[int]) -> str:
    return ", ".join(map(str, keys))


def _quotient(dividend: Decimal | None, divisor: Decimal | int, digits: int) -> Decimal | None:
    """Rounded half up to so many digits behind the point."""
    if dividend is None:
        return None
    with decimal.localcontext(prec=80):
        return (dividend / divisor).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


# Where DuckDB computes with DOUBLE: its exact sums, from which the view's value follows.
_EXACT = {
    1: QUERIES[1].replace("AVG(", "SUM("),
    8: QUERIES[8].replace("\n  / CAST(", ",\n  CAST("),
    14: QUERIES[14].replace("\n  / CAST(", ",\n  CAST("),
    17: """
SELECT SUM(l_extendedprice) FROM lineitem, part,
  (SELECT l_partkey AS partkey, SUM(l_quantity) AS quantity, COUNT(*) AS lines FROM lineitem GROUP BY l_partkey)
WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX' AND partkey = p_partkey
  AND 5 * lines * l_quantity < quantity
""",
}
_FINISHED = {
    1: lambda *row: (*row[:6], *(_quotient(total, row[9], 6) for total in row[6:9]), row[9]),
    8: lambda year, part, whole: (year, _quotient(part, whole, 20)),
    14: lambda part, whole: (_quotient(part, whole, 16) if whole else None,),
    17: lambda total: (_quotient(total, Decimal("7.0"), 6),),
}
