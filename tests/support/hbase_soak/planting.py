"""Errors planted in a store over HBase, which `check` must name and `repair` must mend.

In: a store that has caught up, to which nobody writes. Out: words about the error. Always: it is planted by a plain Thrift
client: a row that no log tells of, or a record of a view with the value of another.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.duck_judge import NO_SPARK
from tests.support.hbase_soak.mutations import PLAIN, ROWS, key_of
from tests.support.hbase_soak.schedule import Action
from tests.support.hbase_soak.summary import Wrong
from tests.support.hbase_soak.tables import UserTables
from tests.support.hbase_soak.views import PLANTED, Views
from viewkeeper.check import check_views, repairing
from viewkeeper.check.report import CheckReport, RepairReport
from viewkeeper.client.database import Database


class Planting:
    """Plants errors, and has them mended."""

    def __init__(self, db: Database, tables: UserTables, views: Views, namespace: str) -> None:
        self._db, self._tables, self._views, self._namespace = db, tables, views, namespace

    def plant(self, action: Action, meanwhile: Callable[[], object]) -> str:
        """Plant an error; `check` names it, and `repair` mends it, though `meanwhile` happens to the pipeline."""
        told, name = self._unlogged(action) if action.draws[0] < 0.4 else self._swapped(action)
        meanwhile()
        repaired = repairing.repair_views(self._db, self._names(), spark=NO_SPARK)
        if not any(finding.view == name for finding in repaired.before.findings):
            raise Wrong(f"{told}: the check before a repair does not name it: {repaired}")
        if not self._is_mended(repaired):
            raise Wrong(f"{told}: repair does not mend it: {repaired}")
        return f"{told}; mended"

    def _is_mended(self, repaired: RepairReport) -> bool:
        """As far as DuckDB can tell: a repair of DELTA rebuilds and checks other views too, whose text it reads otherwise."""
        unasked = {name for name, kind in self._views.live.items() if kind.asked}
        findings = [finding for finding in repaired.after.findings if finding.view not in unasked]
        checked = [outcome.state for outcome in repaired.after.outcomes if outcome.view not in unasked]
        is_done = all(outcome.state != "not done" for outcome in repaired.outcomes)
        return is_done and not findings and set(checked) <= {"ok"}

    def check(self) -> CheckReport:
        return check_views.check_views(self._db, self._names(), NO_SPARK)

    def _names(self) -> list[str]:
        """The views by whose text DuckDB means what Spark means."""
        return [name for name, kind in self._views.live.items() if not kind.asked]

    def _unlogged(self, action: Action) -> tuple[str, str]:
        """A put that no log tells of: a new value of a column, or a new row."""
        types = self._tables.cluster.types
        number = action.pick(1, [number for number in range(ROWS["l"]) if number % 3 == PLAIN])
        row = key_of("l", number) if action.draws[2] < 0.7 else b"new%d" % number
        value = types.TColumnValue(b"f", b"x", b"%d" % (1_000 + number))
        put = types.TPut(row=row, columnValues=[value], durability=types.TDurability.SKIP_WAL)
        with self._tables.cluster.client() as client:
            client.put(self._tables.name("l").encode(), put)
        return f"a put without a log to row {row.decode()} of l", "DELTA(l)"

    def _swapped(self, action: Action) -> tuple[str, str]:
        """A record of a view with the value of another."""
        types, view = self._tables.cluster.types, action.pick(1, PLANTED)
        table = f"{self._namespace}:view.{self._db.view(view).definition.node.table}".encode()
        with self._tables.cluster.client() as client:
            scan = types.TScan(columns=[types.TColumn(b"r", b"r")])
            found = [(result.row, result.columnValues[0]) for result in client.getScannerResults(table, scan, 1_000)]
            records = [(row, cell) for row, cell in found if cell.value]
            if not records:
                return self._unlogged(action)
            row, cell = action.pick(2, records)
            others = [other.value for _, other in records if other.value != cell.value]
            if not others:
                return self._unlogged(action)
            damaged = types.TColumnValue(b"r", b"r", action.pick(3, others), cell.timestamp)
            client.put(table, types.TPut(row=row, columnValues=[damaged]))
        return f"the record {row!r} of {view} has the value of another", view
