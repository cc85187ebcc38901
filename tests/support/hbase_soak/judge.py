"""The judge of a soak: at a quiet moment every view is what DuckDB makes of the rows that a plain client scans.

In: a store that nobody writes to, and a pipeline that goes on. Out: nothing, or Wrong with the difference. Always: rows are
scanned before and after the views are read, and it counts only if they were the same; views are read when the store says that
it has caught up, and not later.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tests.support.hbase_soak.pipelines import Pipelines
from tests.support.hbase_soak.summary import COMPARED, MOMENTS, Wrong
from tests.support.hbase_soak.tables import MAPPINGS, Rows, UserTables, shown
from tests.support.hbase_soak.views import Views
from tests.support.oracle import Row, bag_of
from viewkeeper.client.database import Database
from viewkeeper.client.status import read_lag
from viewkeeper.errors import StoreUnavailable

STUCK_SECONDS = 300.0  # without a step of the pipeline: a bound for a broken run, not a measure
_LATER_SECONDS = 20.0
_SHOWN_MAX = 10
_TURNS = 5


class Judge:
    """Compares all views of a store."""

    def __init__(
        self,
        db: Database,
        tables: UserTables,
        views: Views,
        pipelines: Pipelines,
        tend: Callable[[], None],
        counts: Counter[str],
    ) -> None:
        """`tend` looks after processes, and is called while it waits."""
        self._db, self._tables, self._views, self._pipelines = db, tables, views, pipelines
        self._tend, self._counts = tend, counts

    def settle(self) -> None:
        """Return when the pipeline has caught up, and all views are filled."""
        self.wait(self.has_caught_up)

    def are_filled(self) -> bool:
        """Whether all views are, also while clients write."""
        return not read_lag(self._db).views

    def has_caught_up(self) -> bool:
        lag, record = read_lag(self._db), self._pipelines.record()
        if record.stopped:
            raise Wrong(f"views are stopped: {record.stopped}")
        return not lag.changes and not lag.views and record.inflight is None and not self._db.catalog().replacements

    def wait(self, condition: Callable[[], bool]) -> None:
        """Return when that is so; Wrong if it takes too long, or a pipeline ends by itself meanwhile."""
        seen, since = None, time.monotonic()
        while True:
            self._tend()
            with suppress(StoreUnavailable):
                if condition():
                    return
                record = self._pipelines.record()
                if (progress := (record.generation, record.last, record.committed)) != seen:
                    seen, since = progress, time.monotonic()
            if time.monotonic() > since + STUCK_SECONDS:
                raise Wrong(f"no epoch in {STUCK_SECONDS:.0f} s, and not caught up: {self._pipelines.record()}")
            threading.Event().wait(0.2)

    def compare(self) -> None:
        """Wrong unless every view holds what it must."""
        for _ in range(_TURNS):
            self.settle()
            before = self._scan()
            epoch = self._pipelines.record().committed
            found = {name: self._found(name) for name in self._views.live}
            if self._scan() == before:
                break
        else:
            raise Wrong("rows change though nobody writes")
        wrong = self._differences(before, found)
        if wrong:
            threading.Event().wait(_LATER_SECONDS)
            later = self._differences(self._scan(), {name: self._found(name) for name in wrong})
            told = f"and so they are {_LATER_SECONDS:.0f} s later" if later else f"but not {_LATER_SECONDS:.0f} s later"
            raise Wrong(f"views are wrong at epoch {epoch}, {told}\n" + "\n".join(wrong.values()))
        self._counts[MOMENTS] += 1
        self._counts[COMPARED] += len(found)

    def _differences(self, rows: dict[str, Rows], found: dict[str, Counter[Row]]) -> dict[str, str]:
        expected = self._views.expected({name: shown(name, rows[MAPPINGS[name][0]]) for name in self._views.mapped})
        return {name: _told(name, expected[name], bag) for name, bag in found.items() if expected[name] != bag}

    def _found(self, name: str) -> Counter[Row]:
        return bag_of(tuple(row.values()) for row in self._db.view(name).scan())

    def _scan(self) -> dict[str, Rows]:
        return {table: self._tables.rows(table) for table in {MAPPINGS[name][0] for name in self._views.mapped}}


def _told(name: str, expected: Counter[Row], found: Counter[Row]) -> str:
    lacks, extra = expected - found, found - expected
    lines = [
        f"view {name}: of {expected.total():,} rows {lacks.total():,} are missing, and {extra.total():,} are extra"
    ]
    lines += [f"  missing {row} x {count}" for row, count in lacks.most_common(_SHOWN_MAX)]
    lines += [f"  extra   {row} x {count}" for row, count in extra.most_common(_SHOWN_MAX)]
    return "\n".join(lines)
