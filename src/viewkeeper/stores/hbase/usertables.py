"""Users' tables: those that others made in HBase.

In: the name of a table. Out: how HBase describes it, what to tell someone who maps it, and replies to requests to it. Always:
what keeps HBase from such a request, or views from following, because of what others did to the table, is said in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from viewkeeper.errors import InputError, UnknownName
from viewkeeper.model.schema import Foreign, TableSchema
from viewkeeper.ports.tables import Mapped
from viewkeeper.stores.hbase.cells import FOREVER
from viewkeeper.stores.hbase.connections import Connections, Refused
from viewkeeper.stores.hbase.mapoptions import foreign_of_options, named_table
from viewkeeper.stores.hbase.tables import describe_table, is_enabled, table_exists
from viewkeeper.stores.hbase.thrift import thrift

_BY_TURN = b"NEW_VERSION_BEHAVIOR"  # of a family in which deletes hide what was put before them, whatever its timestamp


def map_table(
    connections: Connections, own: str, schema: TableSchema, using: str | None, options: Mapping[str, str]
) -> Mapped:
    """The table that CREATE TABLE … USING hbase OPTIONS (…) names; `own` is the namespace of the store itself."""
    table = named_table(schema, using, options)
    if table.startswith(f"{own}:"):
        raise InputError(f"table {table} of HBase is ViewKeeper's own", "map a table of another namespace")
    if table.startswith("hbase:"):
        raise InputError(f"table {table} is HBase's own, and its log is not read", "map a table of another namespace")
    described = _described(connections, table)
    families = _families(described)
    foreign = foreign_of_options(schema, table, options, list(families))
    for fact, way_out in _unfit(foreign, described):
        raise InputError(fact, way_out)
    return Mapped(foreign, _told(foreign, families))


def ask_user_table(connections: Connections, table: str, request: str, *arguments: object, once: bool = False) -> Any:
    """The reply to a request to a table; one that may not be repeated is sent `once`."""
    ask = connections.ask_once if once else connections.ask
    try:
        return ask(request, table.encode(), *arguments)
    except Refused:
        if (trouble := trouble_of(connections, table)) is None:
            raise
        raise Refused(
            trouble, "bring it back in HBase and run viewkeeper repair, or drop its views and the table here"
        ) from None


def trouble_of(connections: Connections, table: str) -> str | None:
    """Why a table cannot be read or written; None: it can."""
    try:
        if is_enabled(connections, table.encode()):
            return None
        is_there = table_exists(connections, table.encode())
    except Refused:
        is_there = False
    return f"table {table} is {'disabled' if is_there else 'not'} in HBase"


def warnings_of(connections: Connections, foreign: Foreign) -> Iterator[str]:
    """Why views over a mapped table do not follow it: what others did to it since it was mapped."""
    if (trouble := trouble_of(connections, foreign.table)) is not None:
        yield f"{trouble}: its views stay as they are"
        return
    for fact, way_out in _unfit(foreign, describe_table(connections, foreign.table.encode())):
        yield f"{fact}: its views do not follow it; {way_out}, and run viewkeeper repair"


def _unfit(foreign: Foreign, described: Any) -> Iterator[tuple[str, str]]:
    """What of a table no view can follow, and the way out."""
    table, families = foreign.table, _families(described)
    if described.durability == thrift().TDurability.SKIP_WAL:
        yield f"table {table} of HBase has no log (SKIP_WAL)", "set its DURABILITY to SYNC_WAL"
    for name in sorted({cell.family for cell in foreign.cells}):
        if name not in families:
            yield f"table {table} of HBase has no family {name}", "bring it back in HBase"
        elif (families[name].attributes or {}).get(_BY_TURN, b"").lower() == b"true":
            yield (
                f"family {name} of table {table} has NEW_VERSION_BEHAVIOR, by which a put below an earlier delete is seen",
                f"alter '{table}', {{NAME => '{name}', NEW_VERSION_BEHAVIOR => false}} in HBase",
            )


def _families(described: Any) -> dict[str, Any]:
    return {family.name.decode(): family for family in described.columns or ()}


def _described(connections: Connections, table: str) -> Any:
    try:
        if table_exists(connections, table.encode()):
            return describe_table(connections, table.encode())
    except Refused as error:  # no name of a table, or no such namespace
        raise UnknownName(f"HBase has no table {table}: {error.fact}", "make it in HBase first") from None
    raise UnknownName(f"HBase has no table {table}", "make it in HBase first, or name another one")


def _told(foreign: Foreign, families: Mapping[str, Any]) -> str:
    used = sorted({cell.family for cell in foreign.cells})
    short = [f"{name} after {families[name].timeToLive:,} s" for name in used if _expires(families[name])]
    ends = f", nor that HBase lets cells expire: of {', '.join(short)}" if short else ""
    return f"its log does not tell of bulk loads and of writes with SKIP_WAL{ends}"


def _expires(family: Any) -> bool:
    return family.timeToLive is not None and family.timeToLive != FOREVER
