"""DuckDB inside a view manager: vectorized SQL over Arrow, one thread, no way out to files or network.

In: SQL that ViewKeeper generated, and the Arrow tables it reads by name. Out: an Arrow table. Always: one connection for
each thread. Rows come in no order: DuckDB delays small chunks after a join, which it also makes of a long IN. For few rows
planning costs most, so their statements stay planned. Idle connections are closed before a fork, because a child can
neither use nor free them, and at the end of the interpreter, where DuckDB would report each as a leak.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from weakref import WeakSet

import duckdb
import numpy as np
import pyarrow as pa

from viewkeeper.codegen.confined import connect_confined

FEW_ROWS = 64  # it takes DuckDB longer to plan for this many than to run
STATEMENTS_MAX = 256  # that stay planned; each takes some 40 kB
_LOCAL = threading.local()  # `own`: the thread's connections

# Few rows may be copied: what counts is that the statement is bound only once.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning, __name__.replace(".", r"\."))


def connect(
    *, optimizes: bool = True, disabled_optimizers: Sequence[str] = (), memory_bytes_max: int | None = None
) -> duckdb.DuckDBPyConnection:
    """A confined connection for one thread."""
    settings = {"threads": "1"}
    if memory_bytes_max:
        settings["memory_limit"] = f"'{memory_bytes_max}B'"
    if disabled_optimizers:
        settings["disabled_optimizers"] = f"'{','.join(disabled_optimizers)}'"
    return connect_confined(settings, optimizes=optimizes)


def run_sql(sql: str, **relations: pa.Table | pa.RecordBatch) -> pa.Table:
    """The result of `sql`, which reads the given relations by name.

    One of many rows stays registered until another takes its name or `forget_relations` is called, so that twenty views
    that read it register it once.
    """
    with _own() as own:
        if sum(map(len, relations.values())) <= FEW_ROWS:
            return own.statements.run(sql, relations)
        return own.planned.reading(relations).sql(sql).to_arrow_reader().read_all()


def run_row_by_row(sql: str, **relation: pa.Table) -> pa.Table:
    """The result of a SELECT that has a row for each row of one relation, in its order, by its column `ord` without ties."""
    (rows,) = relation.values()
    found = run_sql(f"SELECT ord AS row_ord, {sql.removeprefix('SELECT ')}", **relation)
    wanted, order = np.asarray(rows["ord"]), np.asarray(found["row_ord"])
    result = found.drop_columns("row_ord")
    if np.array_equal(order, wanted):
        return result
    by_order = np.argsort(order)
    return result.take(pa.array(by_order[np.searchsorted(order, wanted, sorter=by_order)]))


def forget_relations() -> None:
    """Free the memory of all relations."""
    with _own() as own:
        own.planned.forget()


def as_type(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column of a result in the type that a record stores."""
    return array if array.type == kind else array.cast(kind)


class _Session:
    """A connection, and its registered relations."""

    def __init__(self) -> None:
        self.connection = connect()
        self._known: dict[str, pa.Table | pa.RecordBatch] = {}

    def reading(self, relations: Mapping[str, pa.Table | pa.RecordBatch]) -> duckdb.DuckDBPyConnection:
        for name, relation in relations.items():
            if self._known.get(name) is not relation:
                self.connection.register(name, relation)
                self._known[name] = relation
        return self.connection

    def forget(self) -> None:
        for name in self._known:
            self.connection.unregister(name)
        self._known = {}


class _Fed:
    """A relation of one schema, whose rows are replaced each time that a statement runs."""

    def __init__(self, rows: pa.Table | pa.RecordBatch) -> None:
        self.rows: pa.Table | pa.RecordBatch | None = rows
        self._schema = rows.schema

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        rows = self._schema.empty_table() if self.rows is None else self.rows
        return rows.__arrow_c_stream__(requested_schema)


class _Statements:
    """Statements over few rows: planned at first use, without the optimizer, and kept with a cursor each.

    With one cursor for all, a relation of another schema under a known name would have DuckDB plan all of them again.
    """

    def __init__(self) -> None:
        self._connection = connect(optimizes=False)
        self._kept: OrderedDict[tuple, tuple[duckdb.DuckDBPyConnection, dict[str, _Fed]]] = OrderedDict()

    def run(self, sql: str, relations: Mapping[str, pa.Table | pa.RecordBatch]) -> pa.Table:
        cursor, fed = self._planned(sql, relations)
        try:
            for name, rows in relations.items():
                fed[name].rows = rows
            return cursor.execute("EXECUTE planned").to_arrow_table()
        finally:
            for one in fed.values():
                one.rows = None

    def close(self) -> None:
        for cursor, _ in self._kept.values():
            cursor.close()
        self._connection.close()

    def _planned(
        self, sql: str, relations: Mapping[str, pa.Table | pa.RecordBatch]
    ) -> tuple[duckdb.DuckDBPyConnection, dict[str, _Fed]]:
        key = (sql, *((name, rows.schema) for name, rows in relations.items()))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        cursor, fed = self._connection.cursor(), {name: _Fed(rows) for name, rows in relations.items()}
        for name, relation in fed.items():
            cursor.register(name, relation)
        cursor.execute(f"PREPARE planned AS {sql}")
        self._kept[key] = cursor, fed
        if len(self._kept) > STATEMENTS_MAX:
            self._kept.popitem(last=False)[1][0].close()
        return cursor, fed


class _Own:
    """A thread's connections: with DuckDB's optimizer, and for few rows without."""

    def __init__(self) -> None:
        self.planned = _Session()
        self.statements = _Statements()
        self.is_closed = False
        self.use = threading.Lock()  # held while it is used
        _ALL.add(self)


_ALL: WeakSet[_Own] = WeakSet()  # those that are open
_KEPT: list[_Own] = []  # those that may not be freed


@contextmanager
def _own() -> Iterator[_Own]:
    """The thread's connections, which nobody closes within the block."""
    while True:
        own = getattr(_LOCAL, "own", None)
        if own is None or own.is_closed:
            own = _LOCAL.own = _Own()
        with own.use:
            if not own.is_closed:
                yield own
                return


@atexit.register
def _close_idle() -> None:
    """Close what no thread uses, and keep the rest from being freed, which ends a process that is ending or was forked."""
    for own in list(_ALL):
        if own.use.acquire(blocking=False):
            with closing(own.planned.connection), closing(own.statements):
                own.is_closed = True
                _ALL.discard(own)
            own.use.release()
    _KEPT.extend(_ALL)


def _set_kept_aside() -> None:
    """In a forked child: neither use nor close the parent's connections, because DuckDB's own threads are not here."""
    _LOCAL.__dict__.clear()
    _ALL.clear()


# Python frees what other threads held before it notifies the child of the fork, so it is kept from before.
os.register_at_fork(before=_close_idle, after_in_parent=_KEPT.clear, after_in_child=_set_kept_aside)
