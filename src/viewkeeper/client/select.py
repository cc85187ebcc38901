"""SELECT: key ranges and columns of tables and views are read as streams, and DuckDB computes the result.

In: a bound SELECT. Out: a result. Always: rows are read and decoded on demand, in pieces that grow, and only the
columns that are needed. Every row that meets the conditions on a key lies in one of the ranges that are read; the
conditions are still evaluated on what the ranges hold.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa

from viewkeeper.algebra.expressions import Aggregate, AggregationRef, Call, Cast, ColumnRef, Expression, Literal, walk
from viewkeeper.algebra.relations import Output, Project, Relation, Scan, expressions_of, walk_relations
from viewkeeper.algebra.rewriting import Read, column_refs, reads_of
from viewkeeper.algebra.ties import order_ties
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.client.connection import Connection
from viewkeeper.client.interruptible import interruptibly
from viewkeeper.client.result import Result
from viewkeeper.client.session import Snapshot
from viewkeeper.codegen.relation_sql import relation_sql
from viewkeeper.errors import BadRow, SqlError
from viewkeeper.model.keys import after_prefix, encode_key
from viewkeeper.model.rowbatches import StoredIndex, as_users_see, decode_indexes, stored_indexes
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.stored_rows import pairs_to_arrow, pieces
from viewkeeper.model.stored_values import DAMAGE, record_damaged, require_texts, to_stored
from viewkeeper.model.syntax import Select
from viewkeeper.model.wording import cause_of, known_cause
from viewkeeper.operators.duck import connect
from viewkeeper.operators.udfs import provide
from viewkeeper.plan.optimize import optimize
from viewkeeper.plan.relation_checks import check_constants, check_text_growth
from viewkeeper.ports.base_rows import HeldRows
from viewkeeper.sql.bind_from import ONE_ROW
from viewkeeper.sql.bind_query import bind_select

RANGES_MAX = 1_000
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

Range = tuple[bytes, bytes | None]
# An operator, and the bytes that a part of the key is compared with.
Comparison = tuple[str, list[bytes]]


def key_ranges(key: Sequence[Column], parts: Mapping[int, int], conditions: Sequence[Expression]) -> list[Range]:
    """The ranges of keys that meet the conditions; `parts` maps columns of the conditions to parts of the key."""
    told: dict[int, list[Comparison]] = {}
    for condition in conditions:
        for part, one in _comparison(key, parts, condition):
            told.setdefault(part, []).append(one)
    prefixes = [b""]
    for part in range(len(key)):
        values = next((values for operator, values in told.get(part, ()) if operator == "="), None)
        if values is None or len(values) * len(prefixes) > RANGES_MAX:
            return [_between(prefix, told.get(part, ())) for prefix in prefixes]
        prefixes = [prefix + value for prefix in prefixes for value in values]
    return [_between(prefix, ()) for prefix in prefixes]


def _between(prefix: bytes, told: Sequence[Comparison]) -> Range:
    """The keys that begin with `prefix`, as far as the comparisons of the next part allow."""
    lows = [prefix + values[0] for operator, values in told if operator in (">", ">=", "=")]
    highs = [prefix + values[0] for operator, values in told if operator == "<"]
    highs += [after_prefix(prefix + values[-1]) or b"" for operator, values in told if operator in ("<=", "=")]
    high = min(highs) if highs else after_prefix(prefix) if prefix else None
    return max(lows, default=prefix), high


def _comparison(
    key: Sequence[Column], parts: Mapping[int, int], condition: Expression
) -> Iterator[tuple[int, Comparison]]:
    """The constraint of a condition on a part of the key, if it is a comparison with a literal."""
    if not isinstance(condition, Call) or condition.name not in (*_MIRRORED, "in"):
        return
    name, (first, *others) = condition.name, condition.args
    if name in _MIRRORED and isinstance(_bare(first), Literal):
        name, first, others = _MIRRORED[name], others[0], [first]
    column, literals = _bare(first), [_bare(other) for other in others]
    if not isinstance(column, ColumnRef) or column.position not in parts:
        return
    part = parts[column.position]
    values = [_bytes(key[part], literal) for literal in literals]
    known = sorted({value for value in values if value is not None})
    if known and len(known) == len(set(values)):
        yield part, ("=" if name == "in" else name, known)


def _bare(expression: Expression) -> Expression:
    while isinstance(expression, Cast) and expression.implicit:
        expression = expression.arg
    return expression


def _bytes(column: Column, literal: Expression) -> bytes | None:
    """The literal as that part of a key; None where it is not of the column's kind, or does not fit it."""
    if not isinstance(literal, Literal) or literal.value is None:
        return None
    if column.type.kind != literal.type.kind and not (column.type.is_exact and literal.type.is_integer):
        return None
    try:
        return encode_key([column], [to_stored(column, literal.value)])
    except BadRow:
        return None


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored columns of a table or view, and where those are that a reader sees."""

    key: tuple[Column, ...]
    row: tuple[Column, ...]
    places: tuple[StoredIndex, ...]
    view: str | None = None

    @property
    def parts(self) -> dict[int, int]:
        return {position: index for position, (part, index) in enumerate(self.places) if part == "key"}


def stream(read: Read, snapshot: Snapshot, rows: HeldRows) -> pa.RecordBatchReader:
    """The rows of a table as `rows` holds them, or the records of a view as of the snapshot."""
    schema = read.scan.table
    if read.scan.is_view:
        view = snapshot.view(schema.name)
        node = view.definition.node
        stored = _Stored(node.key, node.row, _stored_columns(view.definition), view.name)
        found = view.pieces(key_ranges(stored.key, stored.parts, read.conditions))
    else:
        stored = _Stored(schema.key_columns, schema.value_columns, tuple(stored_indexes(schema).values()))
        ranges = key_ranges(stored.key, stored.parts, read.conditions)
        pairs = (pair for low, high in ranges for pair in rows.scan_all(schema.id, low, high))
        found = (pairs_to_arrow(piece) for piece in pieces(pairs))
    fields = [(f"c{place}", schema.columns[place].type.arrow) for place in read.columns]
    # a stream without columns could not tell how many rows there are
    shape = pa.schema(fields or [("there", pa.bool_())])
    places = [stored.places[place] for place in read.columns]
    batches = (pa.record_batch(_decode(stored, places, *piece), schema=shape) for piece in found)
    return pa.RecordBatchReader.from_batches(shape, batches)


def _decode(stored: _Stored, places: Sequence[StoredIndex], keys: pa.Array, rows: pa.Array) -> list[pa.Array]:
    if not places:
        return [pa.array(np.ones(len(keys), bool))]
    try:
        return list(require_texts(decode_indexes(stored.key, stored.row, places, keys, rows)))
    except DAMAGE as error:
        if stored.view is None:
            raise
        raise record_damaged(stored.view) from error


# An expression must not be evaluated on a row that a σ below it leaves out: it might fail there. Nor may DuckDB, which
# does not know a stream's length, choose what to hold in memory: it would hold the many pairs of a join against one
# more table.
_KEEP_ORDER = ("filter_pullup", "filter_pushdown", "reorder_filter", "join_order", "build_side_probe_side")
_MEMORY_SHARE = 0.5  # of the machine's
_NAMED_MAX = 3
_OUT_OF_MEMORY = "Out of Memory Error"


def select(database: Connection, statement: Select) -> Result:
    with Snapshot(database) as snapshot, closing(database.store.hold_rows()) as rows:
        bound = bind_select(statement.text, lambda name: _scan(snapshot.catalog, name))
        check_text_growth(bound)
        check_constants(bound)
        relation = order_ties(optimize(bound))
        reads = reads_of(relation)
        streams = [stream(read, snapshot, rows) for read in reads if read.scan.table is not ONE_ROW]
        numbers = itertools.count()
        texts = iter([_scan_sql(read, numbers) for read in reads])
        answer = _run(relation, relation_sql(relation, lambda scan: next(texts)), streams)
    columns = zip(relation.columns, answer.columns, strict=True)
    names = [column.name for column in relation.columns]
    arrays = [as_users_see(array.cast(column.type.arrow)) for column, array in columns]
    return Result(tuple(names), pa.table(arrays, names=names))


_OF_SEVERAL = ("JOIN", "UNION", "TOP", "INDEX")  # kinds of views whose records no join looks up


def _scan(catalog: Catalog, name: str) -> Relation:
    """The rows of a table; or the records of a view, of whose key the columns that it does not show have no name in SQL."""
    entry = catalog.named(name)
    if isinstance(entry, TableSchema):
        return Scan(entry)
    indexes = _stored_columns(entry)
    names = {(one.part, one.index): one.column.name for one in reversed(entry.shown)}
    stored = {"key": entry.node.key, "row": entry.node.row}
    columns = [replace(stored[part][at], name=names.get((part, at), f"key {at}")) for part, at in indexes]
    position = {index: number for number, index in enumerate(indexes)}
    key = tuple(columns[position["key", at]].name for at in range(len(entry.node.key)))
    schema = TableSchema(entry.id, entry.name, tuple(columns), key)
    records = Scan(schema, is_view=True, is_lookup=entry.kind not in _OF_SEVERAL)
    shown = [(position[one.part, one.index], one.column) for one in entry.shown]
    refs = [ColumnRef(at, column.name, column.type, column.nullable) for at, column in shown]
    if refs == list(column_refs(records)):
        return records
    return Project(records, tuple(Output(ref.name, ref) for ref in refs))


def _stored_columns(view: ViewDefinition) -> tuple[StoredIndex, ...]:
    """The stored columns of a view: those shown, each once, and the rest of its key."""
    shown = [(one.part, one.index) for one in view.shown]
    return tuple(dict.fromkeys([*shown, *(("key", index) for index in range(len(view.node.key)))]))


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
    """The error on some row or group, and the expressions that may have caused it."""
    parts = [part for node in walk_relations(relation) for one in expressions_of(node) for part in walk(one)]
    risky = [part for part in parts if isinstance(part, Call | Cast) and part.raises]
    sums = [part for part in parts if isinstance(part, Aggregate) and part.fallible]
    kinds = Aggregate | AggregationRef
    of_group = {part.text: any(isinstance(inner, kinds) for inner in walk(part)) for part in (*sums, *risky)}
    named = list(of_group)
    reason = known_cause(error) or cause_of(error)
    told = " or ".join(named[:_NAMED_MAX]) + (" or another" if len(named) > _NAMED_MAX else "")
    if named and all(of_group.values()):
        return SqlError(f"{told} fails on a group: {reason}", "leave rows of such groups out with WHERE")
    what = "a row or a group" if any(of_group.values()) else "a row"
    return SqlError(f"{told or 'the SELECT'} fails on {what}: {reason}", "leave such rows out with WHERE")
