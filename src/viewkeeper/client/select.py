"""SELECT: queries over tables and views that are run once.

In: a SELECT's text. Out: a `Result`. Always: the text goes through the parser and the binder of views and means what it
would mean as a view; DuckDB sees only the SQL made from the bound query, and the streams it reads. All views are read
at one committed epoch, all tables as they are at one moment of each node. A row on which an expression fails is an
error.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import closing

import duckdb
import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.client.connection import Connection
from viewkeeper.client.interrupting import interruptibly
from viewkeeper.client.result import Result
from viewkeeper.client.scans import stream
from viewkeeper.client.session import Snapshot
from viewkeeper.codegen.causes import cause_of, known_cause
from viewkeeper.codegen.relation_sql import relation_sql
from viewkeeper.errors import SqlError
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.tablebatches import face
from viewkeeper.operators.computed import provide
from viewkeeper.operators.duck import connect
from viewkeeper.plan.constants import refuse_failing_constants
from viewkeeper.plan.growth import refuse_growing_texts
from viewkeeper.plan.optimize import optimize
from viewkeeper.sql.bind import bind_select
from viewkeeper.sql.bind_from import ONE_ROW
from viewkeeper.sql.expressions import Aggregate, Call, Cast, walk
from viewkeeper.sql.reads import Read, reads_of
from viewkeeper.sql.relations import Relation, Scan, expressions_of, walk_relations
from viewkeeper.sql.syntax import Select

# An expression must not be evaluated on a row that a σ below it leaves out: it might fail there. Nor may DuckDB, which
# does not know a stream's length, choose what to hold in memory: it would hold the many pairs of a join against one
# more table.
_KEEP_ORDER = ("filter_pullup", "filter_pushdown", "reorder_filter", "join_order", "build_side_probe_side")
_MEMORY_SHARE = 0.5  # of the machine's
_NAMED_MAX = 3
_OUT_OF_MEMORY = "Out of Memory Error"


def select(database: Connection, statement: Select) -> Result:
    """The result of a SELECT."""
    with Snapshot(database) as snapshot, closing(database.store.hold_rows()) as rows:
        bound = bind_select(statement.text, lambda name: _scan(snapshot.catalog, name))
        refuse_growing_texts(bound)
        refuse_failing_constants(bound)
        relation = optimize(bound)
        reads = reads_of(relation)
        streams = [stream(read, snapshot, rows) for read in reads if read.scan.table is not ONE_ROW]
        numbers = itertools.count()
        texts = iter([_scan_sql(read, numbers) for read in reads])
        answer = _run(relation, relation_sql(relation, lambda scan: next(texts)), streams)
    return _result(relation.columns, answer)


def _scan(catalog: Catalog, name: str) -> Relation:
    entry = catalog.named(name)
    if isinstance(entry, TableSchema):
        return Scan(entry)
    columns = tuple(shown.column for shown in entry.shown)
    return Scan(TableSchema(entry.id, entry.name, columns, ()), is_view=True)


def _scan_sql(read: Read, numbers: Iterator[int]) -> str:
    """All columns of the table; those that nothing refers to are not read, and NULL."""
    if read.scan.table is ONE_ROW:
        return "SELECT 1"
    columns = [
        f"c{place}" if place in read.columns else f"CAST(NULL AS {column.type.duckdb}) AS c{place}"
        for place, column in enumerate(read.scan.columns)
    ]
    return f"SELECT {', '.join(columns)} FROM r{next(numbers)}"


def _run(relation: Relation, sql: str, streams: Sequence[pa.RecordBatchReader]) -> pa.Table:
    failures: list[Exception] = []
    most = int(_MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with connect(disabled_optimizers=_KEEP_ORDER, memory_bytes_max=most) as connection:
        provide(connection)
        for number, one in enumerate(streams):
            connection.register(f"r{number}", _watched(one, failures))
        try:
            return interruptibly(lambda: _collected(connection.sql(sql).to_arrow_reader(), most), connection.interrupt)
        except (duckdb.Error, pa.ArrowException, OSError) as error:  # the last two from batches after the first
            if failures:
                raise failures[0] from None
            if _OUT_OF_MEMORY in str(error):
                raise _too_large(most) from None
            raise _failed(relation, error) from None


def _collected(answer: pa.RecordBatchReader, most: int) -> pa.Table:
    """All rows of an answer, which DuckDB does not count as its own memory."""
    batches, size = list[pa.RecordBatch](), 0
    for batch in answer:
        size += batch.nbytes
        if size > most:
            raise _too_large(most)
        batches.append(batch)
    return pa.Table.from_batches(batches, answer.schema)


def _too_large(most: int) -> SqlError:
    return SqlError(f"the SELECT needs more than {most >> 20:,} MiB of memory", "read fewer rows")


def _watched(source: pa.RecordBatchReader, failures: list[Exception]) -> pa.RecordBatchReader:
    """The same stream; its errors are kept, because DuckDB would pass on only their text."""

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from source
        except Exception as error:
            failures.append(error)
            raise

    return pa.RecordBatchReader.from_batches(source.schema, batches())


def _failed(relation: Relation, error: Exception) -> SqlError:
    """The error on some row, and the expressions that may have caused it."""
    parts = [part for node in walk_relations(relation) for one in expressions_of(node) for part in walk(one)]
    risky = [part for part in parts if isinstance(part, Call | Cast) and part.raises]
    sums = [part for part in parts if isinstance(part, Aggregate) and part.fallible]
    named = list(dict.fromkeys(part.text for part in (*sums, *risky)))
    told = " or ".join(named[:_NAMED_MAX]) + (" or another" if len(named) > _NAMED_MAX else "")
    return SqlError(f"{told or 'the SELECT'} fails on a row: {_reason(error)}", "leave such rows out with WHERE")


def _reason(error: Exception) -> str:
    return known_cause(error) or cause_of(error)


def _result(columns: Sequence[Column], answer: pa.Table) -> Result:
    arrays = [face(array.cast(column.type.arrow)) for column, array in zip(columns, answer.columns, strict=True)]
    names = [column.name for column in columns]
    return Result(tuple(names), pa.table(arrays, names=names))
