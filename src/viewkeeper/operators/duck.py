"""DuckDB inside a view manager: vectorized SQL over Arrow, one thread, no way out to files or network.

In: SQL that ViewKeeper generated, and the Arrow tables it reads by name. Out: an Arrow table. Always: one connection for
each thread, rows in the order of the input where the SQL does not group.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from weakref import WeakSet

import duckdb
import pyarrow as pa

from viewkeeper.codegen.confined import connect_confined

FEW_ROWS = 64  # it takes DuckDB longer to plan for this many than to run
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

    A relation stays registered until another takes its name or `forget_relations` is called: twenty views that read the
    same delta rows have DuckDB look at them once.
    """
    own = _own()
    if sum(map(len, relations.values())) <= FEW_ROWS:
        return own.unplanned.reading(relations).execute(sql).to_arrow_table()
    return own.planned.reading(relations).sql(sql).to_arrow_reader().read_all()


def forget_relations() -> None:
    """Free the memory of all relations."""
    own = _own()
    own.planned.forget()
    own.unplanned.forget()


def as_type(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column of a result in the type that a record stores."""
    return array if array.type == kind else array.cast(kind)


class _Session:
    """A connection, and its registered relations."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._known: dict[str, pa.Table | pa.RecordBatch] = {}

    def reading(self, relations: Mapping[str, pa.Table | pa.RecordBatch]) -> duckdb.DuckDBPyConnection:
        for name, relation in relations.items():
            if self._known.get(name) is not relation:
                self._connection.register(name, relation)
                self._known[name] = relation
        return self._connection

    def forget(self) -> None:
        for name in self._known:
            self._connection.unregister(name)
        self._known = {}


class _Own:
    """A thread's sessions: with DuckDB's optimizer, and for few rows without."""

    def __init__(self) -> None:
        self.planned = _Session(connect())
        self.unplanned = _Session(connect(optimizes=False))
        _ALL.add(self)


_ALL: WeakSet[_Own] = WeakSet()
_INHERITED: list[_Own] = []


def _own() -> _Own:
    own = getattr(_LOCAL, "own", None)
    if own is None:
        own = _LOCAL.own = _Own()
    return own


def _set_inherited_aside() -> None:
    """In a forked child: neither use nor close the parent's connections, because DuckDB's own threads are not here."""
    _LOCAL.__dict__.clear()


# Python frees what other threads held before it notifies the child of the fork, so it is held from before.
os.register_at_fork(
    before=lambda: _INHERITED.extend(_ALL), after_in_parent=_INHERITED.clear, after_in_child=_set_inherited_aside
)
# The same at interpreter exit: threads of Py4J end meanwhile, and DuckDB would abort on what they free.
atexit.register(lambda: _INHERITED.extend(_ALL))
