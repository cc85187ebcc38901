"""Failed rows: why a view's SQL fails on a row that it sets aside, and rows set aside that are tried again or dropped.

In: a view, and keys of rows as `set_aside` lists them. Out: DuckDB's error for a row when nothing catches the failure;
how many rows left the list. Always: a reason is computed for single rows that are shown to a user, so nothing is stored
for it; a row that no longer fails has none, nor has a row that no table holds: one of a join, or of groups inside a
query. A request is in the catalog, so it survives whoever made it, and one epoch does it for each list; views that
share records share their lists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from viewkeeper.client.arguments import key_bytes
from viewkeeper.client.connection import Connection
from viewkeeper.client.pipeline import await_request
from viewkeeper.client.session import Snapshot
from viewkeeper.client.set_aside import error_lists, listed_rows, undecoded_of
from viewkeeper.client.views import why_stopped
from viewkeeper.codegen.expression_sql import unguarded
from viewkeeper.errors import EpochFailed, InputError, NotOffered, NotReady, ViewKeeperError
from viewkeeper.model.epochs import AsideRequest
from viewkeeper.model.read_frontier import ReadTimestamp
from viewkeeper.model.wording import known_cause
from viewkeeper.operators.delta_rows import delta_of_rows
from viewkeeper.operators.duck import forget_relations, run_sql
from viewkeeper.plan.define import lower, placed_nodes
from viewkeeper.plan.nodes import AggregateNode, ProjectNode

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
        return _kept_reason(database, listed, key)
    nodes = placed_nodes(lower(catalog, view), catalog.stored(view))
    edge = next(edge for node in nodes for edge in node.edges if edge.aside == listed)
    schema = next((table for table in catalog.tables if table.id == edge.source), None)
    row = None if schema is None else database.store.get(schema.id, key)
    if schema is None or row is None:
        return None
    stored = pa.record_batch([pa.array([key], pa.binary()), pa.array([row], pa.binary())], names=["key", "row"])
    try:
        run_sql(unguarded(edge.rows), delta=delta_of_rows(schema, stored, edge.columns).relation)
    except duckdb.Error as error:
        return _in_words(error)
    finally:
        forget_relations()
    return None


def _kept_reason(database: Connection, listed: TableId, key: bytes) -> str | None:
    """The reason that the list itself holds."""
    horizon = database.store.read_horizon()
    moment = ReadTimestamp(horizon.committed, horizon.aborted, horizon)
    found = database.store.get_record(database.store.partition_of(key), listed, key, moment)
    return None if found is None else found.decode()


def _in_words(error: duckdb.Error) -> str:
    """The first line, without the name of DuckDB's kind of error, and with our type names."""
    head, colon, rest = str(error).splitlines()[0].partition("Error: ")
    said = (rest if colon else head).strip().rstrip("!.")
    if _DIVISION in said.lower():
        return _DIVISION
    unread = re.match(r"Could not convert string .* to '?(\w+)", said)
    if unread:  # the text in the message may come from our own SQL
        return f"a text is no {_TYPES.get(unread[1], unread[1])}"
    said = re.sub(
        r" \(.*\)$|(?<=value) -?[\d.]+", "", said
    )  # values of the row: who may see the list need not see those
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
    view = database.catalog().view(name)
    _require_maintained(database, view)
    with Snapshot(database) as snapshot:
        lists = error_lists(snapshot.catalog, view, "aside")
        wanted = _all(snapshot, lists) if keys is None else _named(snapshot, view, lists, keys)
        _refuse_undecoded(snapshot.catalog, view, wanted)
        if ending == "retry":
            _refuse_rows_of_joins(snapshot.catalog, view, wanted)
        else:
            wanted = _still_listed(snapshot, wanted)
    if not wanted:
        return 0
    last = _request(database, ending, {table: () if keys is None else found for table, found in wanted.items()})
    await_request(database, lambda: any(one.id <= last for one in database.catalog().asides), spark)
    if database.store.read_epoch_record().aside < last:
        raise EpochFailed("the request was given up", "see the status of the view: it may be stopped, or be made anew")
    with Snapshot(database) as snapshot:
        left = sum(len({*found}.intersection(listed_rows(snapshot, table))) for table, found in wanted.items())
    return sum(map(len, wanted.values())) - left


def _require_maintained(database: Connection, view: ViewDefinition) -> None:
    record = database.store.read_epoch_record()
    if (reason := why_stopped(view, record)) is not None:
        raise NotReady(f"view {view.name} is stopped: {reason}", f"viewkeeper rebuild URL {view.name}")
    if view.node.backfill not in record.filled:
        raise NotReady(f"view {view.name} is not filled yet", "wait for the pipeline, which tries every row")


def _all(snapshot: Snapshot, lists: Sequence[ErrorList]) -> Wanted:
    found = {int(one.table): tuple(listed_rows(snapshot, one.table)) for one in lists}
    return {table: keys for table, keys in found.items() if keys}


def _named(
    snapshot: Snapshot, view: ViewDefinition, lists: Sequence[ErrorList], keys: Sequence[Sequence[object]]
) -> Wanted:
    """The lists that hold the rows under these keys; a row that several parts of a view fail on is in several."""
    if len(keys) > _KEYS_MAX:
        raise InputError(f"{len(keys):,} keys are more than {_KEYS_MAX:,}", "name fewer, or none for all rows")
    listed = {int(one.table): set(listed_rows(snapshot, one.table, with_dropped=True)) for one in lists}
    wanted: dict[int, list[bytes]] = {}
    for key in keys:
        encoded = [(int(one.table), _encoded(view, one, key)) for one in lists]
        mine = [(table, row) for table, row in encoded if row is not None and row in listed[table]]
        if not mine:
            raise InputError(
                f"view {view.name} has set no row {tuple(key)} aside", "viewkeeper set-aside lists the keys"
            )
        for table, row in mine:
            wanted.setdefault(table, []).append(row)
    return {table: tuple(dict.fromkeys(found)) for table, found in wanted.items()}


def _still_listed(snapshot: Snapshot, wanted: Wanted) -> Wanted:
    """Without the rows that were dropped before: they have left the list already."""
    listed = {table: set(listed_rows(snapshot, table)) for table in wanted}
    found = {table: tuple(key for key in keys if key in listed[table]) for table, keys in wanted.items()}
    return {table: keys for table, keys in found.items() if keys}


def _encoded(view: ViewDefinition, listed: ErrorList, key: Sequence[object]) -> bytes | None:
    """The key in a list, if it can be one there."""
    try:
        return key_bytes(f"view {view.name}", listed.key, key)
    except ViewKeeperError:
        return None


def _refuse_undecoded(catalog: Catalog, view: ViewDefinition, wanted: Wanted) -> None:
    """A cell that does not decode is no matter of the view: its row comes back by itself."""
    if any(listed.table in wanted for listed in undecoded_of(catalog, view)):
        raise NotOffered(
            f"a row that view {view.name} sets aside has a cell that does not decode",
            "write that cell anew, or delete it, in the store's own table; the view follows",
        )


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
