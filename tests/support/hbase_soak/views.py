"""The views of a soak: which there are by now, the statements that change that, and what each must hold.

In: actions that create, drop and replace views, map tables anew, and plan all anew. Out: statements, done. Always: what a
view must hold is DuckDB's answer to its text over rows that a plain client scanned; views that errors are planted in stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import duckdb
import pyarrow as pa

from tests.support.hbase_soak.schedule import Action
from tests.support.hbase_soak.tables import UserTables
from tests.support.oracle import Row, bag_of
from tests.support.simulation.kinds import KINDS as SIMULATED
from tests.support.simulation.kinds import Kind
from viewkeeper.client.database import Database
from viewkeeper.errors import StoreUnavailable

_MORE = (
    Kind("texts", "SELECT k, s, a FROM l WHERE s IS NOT NULL"),
    Kind("sums_of_counters", "SELECT j, SUM(n) AS s, MIN(n) AS lo, MAX(n) AS hi, AVG(n) AS m FROM r GROUP BY j"),
    Kind("last_texts", "SELECT j, MAX(s) AS hi, COUNT(DISTINCT s) AS n FROM l GROUP BY j"),
    Kind("counters_of_groups", "SELECT c.j, c.n, r.n AS own FROM counts c JOIN r ON c.j = r.k", ("counts",)),
)
BIG = (
    Kind("big_sums", "SELECT g, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo, MAX(v) AS hi FROM big GROUP BY g"),
    Kind("big_some", "SELECT k, v FROM big WHERE v < 30"),
    Kind(
        "big_by_link",
        "SELECT r.j, COUNT(*) AS n, SUM(b.v) AS s FROM big_sums x JOIN r ON x.g = r.k "
        "JOIN big_some b ON b.v = r.y GROUP BY r.j",
        ("big_sums", "big_some"),
    ),
)
# Over other mappings of `l`: the view that each has.
MAPPED_ANEW = {
    "narrow": Kind("narrow_ends", "SELECT x % 4 AS m, COUNT(*) AS n, MAX(k) AS hi FROM narrow GROUP BY x % 4"),
    "wide": Kind("wide_sums", "SELECT j, SUM(a) AS s, COUNT(s) AS n FROM wide GROUP BY j"),
}
# The versions of a view that is replaced again and again.
REPLACED = (
    Kind("replaced", "SELECT j, COUNT(*) AS n FROM l GROUP BY j"),
    Kind("replaced", "SELECT k, y + 1 AS z FROM r WHERE y > 0"),
    Kind("replaced", "SELECT l.k, COUNT(*) AS n FROM l JOIN r ON l.j = r.j GROUP BY l.k"),
)
KINDS = SIMULATED | {kind.name: kind for kind in _MORE}
PLANTED = ("projection", "selection", "counts", "texts")  # a swapped record of these is a wrong row
FIRST = (
    *PLANTED,
    *("indexed", "quotients", "sums_of_counters", "extremes", "distinct_count", "left_join", "anti_join", "top"),
    *("union_all", "joined_counts", "over_a_view"),
)
LIVE_MAX = 22
_ATTEMPTS = 5


class Views:
    """Those that exist by now, in an order in which each stands after those that it reads."""

    def __init__(self, db: Database, tables: UserTables, tend: Callable[[], None]) -> None:
        """`tend` looks after processes, and is called before a statement is tried again."""
        self._db, self._tables, self._tend = db, tables, tend
        self.live: dict[str, Kind] = {}
        self.mapped: list[str] = []

    def begin(self) -> None:
        """Map the tables, and create the first views."""
        for name in ("l", "r"):
            self._map(name)
        for name in FIRST:
            self._create(KINDS[name])

    def create(self, action: Action) -> str:
        """Create a view that there is not; drop one first if there are many."""
        dropped = self.drop(action) + ", " if len(self.live) >= LIVE_MAX else ""
        waiting = [kind for kind in KINDS.values() if kind.name not in self.live]
        kind = action.pick(0, waiting)
        for source in kind.reads:
            if source not in self.live:
                self._create(KINDS[source])
        self._create(kind)
        return f"{dropped}created {kind.name}"

    def drop(self, action: Action) -> str:
        read = {source for kind in self.live.values() for source in kind.reads}
        kind = action.pick(
            1, [kind for name, kind in self.live.items() if name not in read and name in KINDS and name not in PLANTED]
        )
        self._drop(kind)
        return f"dropped {kind.name}"

    def replace(self, action: Action) -> str:
        kind = action.pick(0, [kind for kind in REPLACED if kind != self.live.get("replaced")])
        self._execute(kind.replace, lambda: False)
        self.live["replaced"] = kind
        return f"replaced: {kind.query}"

    def map_anew(self, action: Action) -> str:
        """Map `l` once more with other columns, after the last such mapping is gone."""
        for name, kind in MAPPED_ANEW.items():
            if name in self.mapped:
                self._drop(kind)
                self._unmap(name)
        name = action.pick(0, list(MAPPED_ANEW))
        self._map(name)
        self._create(MAPPED_ANEW[name])
        return f"mapped l as {name}"

    def optimize(self, action: Action) -> str:
        text = action.pick(0, ("OPTIMIZE VIEWS", "OPTIMIZE VIEWS", "OPTIMIZE VIEWS WITHOUT (share_copies)"))
        self._execute(text, lambda: False)
        return text

    def map_big(self) -> None:
        self._map("big")
        for kind in BIG:
            self._create(kind)

    def unmap_big(self) -> None:
        for kind in reversed(BIG):
            self._drop(kind)
        self._unmap("big")

    def expected(self, rows: Mapping[str, pa.Table]) -> dict[str, Counter[Row]]:
        """What DuckDB makes of the texts."""
        with duckdb.connect() as judge:
            judge.execute("SET threads = 1")
            for name, table in rows.items():
                judge.register(name, table)
            for kind in self.live.values():
                judge.execute(f'CREATE TEMP VIEW "{kind.name}" AS {kind.asked or kind.query}')
            return {
                kind.name: bag_of(kind.finish(row) for row in judge.execute(f'SELECT * FROM "{kind.name}"').fetchall())
                for kind in self.live.values()
            }

    def _map(self, name: str) -> None:
        self._execute(self._tables.mapping(name), lambda: name in self._named())
        self.mapped.append(name)

    def _unmap(self, name: str) -> None:
        self._execute(f"DROP TABLE {name}", lambda: name not in self._named())
        self.mapped.remove(name)

    def _create(self, kind: Kind) -> None:
        self._execute(kind.create, lambda: kind.name in self._named())
        self.live[kind.name] = kind

    def _drop(self, kind: Kind) -> None:
        self._execute(kind.drop, lambda: kind.name not in self._named())
        del self.live[kind.name]

    def _named(self) -> set[str]:
        catalog = self._db.catalog()
        return {one.name for one in (*catalog.tables, *catalog.views)}

    def _execute(self, text: str, is_done: Callable[[], bool]) -> None:
        """Do what an operator does when a statement's outcome is not known: look, and if it is not done, the same again."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if attempt == 1 or not is_done():
                    self._db.execute(text)
                return
            except StoreUnavailable:
                if attempt == _ATTEMPTS:
                    raise
                self._tend()
