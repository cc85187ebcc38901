"""DuckDB inside a view manager: vectorized SQL over Arrow, one thread, no way out to files or network.

In: SQL that ViewKeeper generated, and the Arrow tables it reads by name. Out: an Arrow table. Always: one connection for
each thread, rows in the order of the input where the SQL does not group.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from functools import lru_cache

import duckdb
import pyarrow as pa

_LOCAL = threading.local()
_NAMED = re.compile(r"\b(c\d+) AS (\w+)")
_ONLY_NAMES = re.compile(rf"SELECT ord, sign(, {_NAMED.pattern})* FROM images")
_SETTINGS = (
    "SET threads = 1",
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
)


def connect(
    *, disabled_optimizers: Sequence[str] = (), memory_bytes_max: int | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection of one thread, with settings that nothing can change any more."""
    connection = duckdb.connect()
    if memory_bytes_max:  # and nothing more on the disk of whoever asks, in a directory `.tmp` that anyone may read
        connection.execute(f"SET memory_limit = '{memory_bytes_max}B'; SET temp_directory = ''")
    for setting in _SETTINGS:
        connection.execute(setting)
    if disabled_optimizers:
        connection.execute(f"SET disabled_optimizers = '{','.join(disabled_optimizers)}'")
    connection.execute("SET lock_configuration = true")
    return connection


def run_sql(sql: str, **relations: pa.Table | pa.RecordBatch) -> pa.Table:
    """The result of `sql`, which reads the given relations by name.

    A relation stays known under its name until another takes it or `forget_relations` is called: twenty views that read
    the same images have DuckDB look at them once.
    """
    connection = _connection()
    for name, relation in relations.items():
        if _LOCAL.known.get(name) is not relation:
            connection.register(name, relation)
            _LOCAL.known[name] = relation
    return connection.sql(sql).to_arrow_reader().read_all()


def run_feed(sql: str, images: pa.Table) -> pa.Table:
    """The result of a feed's SQL over `images`; one that only names columns anew is Arrow's matter."""
    named = _renames(sql)
    if named is None:
        return run_sql(sql, images=images)
    return pa.table([images[old] for old, _ in named], names=[new for _, new in named])


@lru_cache(maxsize=1024)
def _renames(sql: str) -> tuple[tuple[str, str], ...] | None:
    """The columns, as (old, new), that a SELECT of nothing but columns returns."""
    if not _ONLY_NAMES.fullmatch(sql):
        return None
    return (("ord", "ord"), ("sign", "sign"), *_NAMED.findall(sql))


def forget_relations() -> None:
    """Let go of the memory of all relations."""
    connection = _connection()
    for name in _LOCAL.known:
        connection.unregister(name)
    _LOCAL.known = {}


def as_type(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column of a result in the type that a record stores."""
    return array if array.type == kind else array.cast(kind)


def _connection() -> duckdb.DuckDBPyConnection:
    connection = getattr(_LOCAL, "connection", None)
    if connection is None:
        connection = _LOCAL.connection = connect()
        _LOCAL.known = {}
    return connection
