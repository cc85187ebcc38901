"""Reasons: why a view's SQL fails on a row that it sets aside.

In: a view, one of its lists, and the key of a row. Out: DuckDB's error for that row when nothing catches the failure.
Always: computed for single rows that are shown to a user, so nothing is stored for it. A row that no longer fails, and
waits for the next epoch, has no reason; nor has a row that no table holds: one of a join, or of groups inside a query.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from viewkeeper.catalog.define import lower
from viewkeeper.client.connection import Connection
from viewkeeper.client.set_aside import undecoded_of
from viewkeeper.codegen.causes import known_cause
from viewkeeper.codegen.expression_sql import unguarded
from viewkeeper.model.moments import Moment
from viewkeeper.operators.delta_rows import delta_of_rows
from viewkeeper.operators.duck import forget_relations, run_sql
from viewkeeper.plan.assign import placed_nodes

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import ViewDefinition
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
    moment = Moment(horizon.committed, horizon.aborted, horizon)
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
