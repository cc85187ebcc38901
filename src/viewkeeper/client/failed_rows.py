"""Failed rows: why a view's SQL fails on a row that it sets aside, and rows set aside that are tried again or dropped.

In: a view, and keys of rows as `set_aside` lists them. Out: DuckDB's error for a row when nothing catches the failure;
how many rows left the list. Always: a reason is computed for single rows that are shown to a user, so it is not stored;
there is none for a row that no longer fails, or that no table holds: one of a join, or of groups inside a query. A
request is in the catalog, so it survives whoever made it, and one epoch does it for each list; views that share records
share their lists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from viewkeeper.client.arguments import key_bytes
from viewkeeper.client.connection import Connection, moment_of
from viewkeeper.client.pipeline import await_request
from viewkeeper.client.session import Snapshot
from viewkeeper.client.set_aside import error_lists, listed_rows, undecoded_of
from viewkeeper.client.views import why_stopped
from viewkeeper.codegen.expression_sql import unguarded
from viewkeeper.errors import BadRow, EpochFailed, InputError, NotOffered, NotReady, ViewKeeperError
from viewkeeper.model.epochs import AsideRequest
from viewkeeper.model.keys import partition_of
from viewkeeper.model.read_frontier import SNAPSHOT
from viewkeeper.model.wording import known_cause
from viewkeeper.operators.delta_rows import delta_of_rows, run_edge
from viewkeeper.operators.duck import forget_relations, run_sql
from viewkeeper.plan.define import lower
from viewkeeper.plan.nodes import AggregateNode, ProjectNode
from viewkeeper.plan.share_nodes import placed_nodes

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import Catalog, ErrorList, ViewDefinition
    from viewkeeper.engine.spark_session import SparkSession
    from viewkeeper.model.schema import TableId


_DIVISION = "division by zero"
_TYPES = {"INT32": "INT", "INT64": "BIGINT", "INT128": "BIGINT", "VARCHAR": "STRING", "BLOB": "BINARY"}


def reason_of(database: Connection, view: ViewDefinition, listed: TableId, key: bytes) -> str | None:
    """Why the row under `key`, which one of a view's lists holds as set aside, fails."""
    catalog = database.catalog()
    if any(one.table == listed for one in undecoded_of(catalog, view)):
        moment = moment_of(database.store, SNAPSHOT, 0)
        kept = database.store.get_record(partition_of(key, database.store.partitions), listed, key, moment)
        return None if kept is None else kept.decode()
    nodes = placed_nodes(lower(catalog, view), catalog.stored(view))
    node, number = next((node, i) for node in nodes for i, edge in enumerate(node.edges) if edge.aside == listed)
    edge = node.edges[number]
    schema = next((table for table in catalog.tables if table.id == edge.source), None)
    row = None if schema is None else database.store.get(schema.id, key)
    if schema is None or row is None:
        return None
    stored = pa.record_batch([pa.array([key], pa.binary()), pa.array([row], pa.binary())], names=["key", "row"])
    delta = delta_of_rows(schema, stored, edge.columns).relation
    try:
        if edge.rows is not None:
            run_sql(unguarded(edge.rows), delta=delta)
        if isinstance(node, AggregateNode):
            rows = run_edge(edge, delta)
            for term in (*node.conditions[number], *node.each.terms):
                run_sql(f"SELECT {term.sql} FROM rows", rows=rows)
    except duckdb.Error as error:
        return _in_words(error)
    finally:
        forget_relations()
    return None


def _in_words(error: duckdb.Error) -> str:
    """The first line, without the name of DuckDB's kind of error, and with our type names."""
    head, colon, rest = str(error).splitlines()[0].partition("Error: ")
    said = (rest if colon else head).strip().rstrip("!.")
    if _DIVISION in said.lower():
        return _DIVISION
    unread = re.match(r"Could not convert string .* to '?(\w+)", said)
    if unread:  # the text in the message may come from our own SQL
        return f"a text is no {_TYPES.get(unread[1], unread[1])}"
    # values of the row: who may see the list need not see those
    said = re.sub(r" \(.*\)$|(?<=value) -?[\d.]+", "", said)
    said = re.sub(r"\w+", lambda word: _TYPES.get(word[0], word[0]), said)
    if re.search(r"[\"'`\d]", said):  # something is quoted, or a number is left
        return known_cause(error) or type(error).__name__
    return said[:1].lower() + said[1:]


_KEYS_MAX = 1_000
Wanted = dict[int, tuple[bytes, ...]]  # the lists that hold rows which are asked for, and their keys there


def retry_or_drop(
    database: Connection, name: str, keys: Sequence[Sequence[object]] | None, ending: str, spark: SparkSession | None
) -> int:
    """Try rows again ("retry") or drop them ("drop"); returns how many of them are no longer listed."""
    keys = None if keys is None else [key if isinstance(key, (tuple, list)) else (key,) for key in keys]
    view, record = database.catalog().view(name), database.store.read_epoch_record()
    if (reason := why_stopped(view, record)) is not None:
        raise NotReady(f"view {view.name} is stopped: {reason}", f"viewkeeper rebuild URL {view.name}")
    if view.node.backfill not in record.filled:
        raise NotReady(f"view {view.name} is not filled yet", "wait for the pipeline, which tries every row")
    with Snapshot(database) as snapshot:
        lists = error_lists(snapshot.catalog, view, "aside")
        if keys is None:
            wanted = {int(one.table): rows for one in lists if (rows := tuple(listed_rows(snapshot, one.table)))}
        else:
            wanted = _named(snapshot, view, lists, keys)
        if any(listed.table in wanted for listed in undecoded_of(snapshot.catalog, view)):
            raise BadRow(  # no matter of the view: the row comes back by itself
                f"a row that view {view.name} sets aside has a cell that does not decode",
                "write that cell anew, or delete it, in the store's own table; the view follows",
            )
        if ending == "retry":
            _refuse_rows_of_joins(snapshot.catalog, view, wanted)
        else:  # rows that were dropped before have left the list already
            listed = {table: set(listed_rows(snapshot, table)) for table in wanted}
            found = {table: tuple(key for key in rows if key in listed[table]) for table, rows in wanted.items()}
            wanted = {table: rows for table, rows in found.items() if rows}
    if not wanted:
        return 0
    last = _request(database, ending, {table: () if keys is None else found for table, found in wanted.items()})
    await_request(database, lambda: any(one.id <= last for one in database.catalog().asides), spark)
    if database.store.read_epoch_record().aside < last:
        fact = f"the request for rows of view {view.name} was given up: it was stopped, replaced or rebuilt meanwhile"
        raise EpochFailed(fact, "viewkeeper status URL shows which; then ask again")
    with Snapshot(database) as snapshot:
        left = sum(len({*found}.intersection(listed_rows(snapshot, table))) for table, found in wanted.items())
    return sum(map(len, wanted.values())) - left


def _named(
    snapshot: Snapshot, view: ViewDefinition, lists: Sequence[ErrorList], keys: Sequence[Sequence[object]]
) -> Wanted:
    """The lists that hold the rows under these keys; a row that several parts of a view fail on is in several."""
    if len(keys) > _KEYS_MAX:
        raise InputError(f"{len(keys):,} keys are more than {_KEYS_MAX:,}", "name fewer, or none for all rows")
    listed = {one.table: set(listed_rows(snapshot, one.table, with_dropped=True)) for one in lists}
    wanted: dict[int, dict[bytes, None]] = {}
    for key in keys:
        is_listed = False
        for one in lists:
            with suppress(ViewKeeperError):  # it may be no key of this list
                row = key_bytes(f"view {view.name}", one.key, key)
                if row in listed[one.table]:
                    wanted.setdefault(int(one.table), {})[row] = None
                    is_listed = True
        if not is_listed:
            fact = f"view {view.name} has set no row {tuple(key)} aside"
            raise InputError(fact, "viewkeeper set-aside lists the keys")
    return {table: tuple(found) for table, found in wanted.items()}


def _refuse_rows_of_joins(catalog: Catalog, view: ViewDefinition, wanted: Wanted) -> None:
    """Only rows of tables, and records of copies and groups, are there to be read again."""
    nodes = placed_nodes(lower(catalog, view), catalog.stored(view))
    readable = {int(table.id) for table in catalog.tables}
    readable |= {int(node.table) for node in nodes if isinstance(node, (ProjectNode, AggregateNode))}
    if any(edge.aside in wanted and edge.source not in readable for node in nodes for edge in node.edges):
        raise NotOffered(
            f"rows that view {view.name} sets aside are rows of a join or of ORDER BY, which no table holds",
            f"viewkeeper repair URL {view.name} computes all of them again",
        )


def _request(database: Connection, ending: str, wanted: Wanted) -> int:
    """Put the requests into the catalog; returns the id of the last."""
    last = 0

    def change(catalog: Catalog) -> Catalog:
        nonlocal last
        numbered = enumerate(sorted(wanted.items()), catalog.next_id)
        requests = [AsideRequest(number, table, ending, keys) for number, (table, keys) in numbered]
        last = requests[-1].id
        return catalog.with_asides(requests, last + 1)

    database.change_catalog(change)
    return last
