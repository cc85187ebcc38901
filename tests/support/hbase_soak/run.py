"""A soak: clients write to HBase, views of every kind are kept, and everything that may befall them does.

In: a running HBase, a seed, and for how long. Out: a summary. Always: the order of actions is the schedule's; each round ends
with a quiet moment at which every view is judged. The first thing that is wrong ends the soak, and leaves its store.
"""

from __future__ import annotations

import random
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import viewkeeper as vk
from tests.support.duck_judge import judged_by_duckdb
from tests.support.hbase_soak.faults import Faults
from tests.support.hbase_soak.judge import Judge
from tests.support.hbase_soak.mutations import Mutations, key_of
from tests.support.hbase_soak.pipelines import BETWEEN, IN_FLIGHT, Pipelines
from tests.support.hbase_soak.planting import Planting
from tests.support.hbase_soak.schedule import FULL, Action, Round, rounds
from tests.support.hbase_soak.summary import KILLS, STAGED, STOPS, Summary, Wrong
from tests.support.hbase_soak.tables import UserTables
from tests.support.hbase_soak.views import Views
from tests.support.hbase_soak.writers import Writers
from tests.support.hbase_stores import drop_namespace
from tests.support.services.admin import Admin, administering
from tests.support.services.configuration import ADDRESS
from tests.support.services.hbase import Cluster
from viewkeeper.client.database import Database

BIG_ROWS = 125_000
_LOADED = 1_000  # rows at once
_CHANGES_PER_EPOCH = (2_000, 20_000, 1_000_000)
_SKIPPED = (0, 0, 1, 4)  # hits of a failpoint that pass
_ORDERS_MAX = 3
_IN_A_ROW = (1, 2, 3)  # kills
_KILLS_OF_A_STAGING, _EPOCHS_APART = 3, 2
_EPOCHS = (1, 1, 2)  # that are committed while a pipeline is stopped


@dataclass(frozen=True, slots=True)
class Asked:
    """For how many minutes, or how many deals of which deck; and how many rows the large table has."""

    seed: int
    minutes: float | None = None
    deals: int | None = None
    deck: Mapping[str, int] = field(default_factory=lambda: FULL)
    big_rows: int = BIG_ROWS

    def is_over(self, began: float, after: Round) -> bool:
        """Whether that round is not to be done any more."""
        in_time = self.minutes is None or time.monotonic() < began + self.minutes * 60
        return not in_time or (self.deals is not None and after.deal >= self.deals)


def soak(cluster: Cluster, asked: Asked, tell: Callable[[str], None]) -> Summary:
    """Run it; the summary says whether anything was wrong."""
    mark = uuid.uuid4().hex[:8]
    servers = ",".join(f"{ADDRESS}:{port}" for port in cluster.layout.thrift_ports())
    url = f"hbase://{servers}/soak_{mark}?partitions=2&late=60&rootdir=file://{cluster.layout.root}"
    summary, tables, began = Summary(asked.seed), UserTables(cluster, mark), time.monotonic()
    tables.create()
    with ExitStack() as stack:
        db, admin = stack.enter_context(vk.connect(url)), stack.enter_context(administering(cluster))
        stack.enter_context(judged_by_duckdb())
        running = _Soak(asked, tables, db, admin, summary, tell, stack)
        try:
            running.run()
        except Exception as error:
            told = str(error) if isinstance(error, Wrong) else f"the soak stopped:\n{traceback.format_exc()}"
            summary.violation = f"{told}\nits store is left: {url}"
        summary.minutes = (time.monotonic() - began) / 60
    if not summary.violation:
        drop_namespace(url)
        tables.drop()
    return summary


class _Soak:
    """One soak, until its time is over."""

    def __init__(
        self,
        asked: Asked,
        tables: UserTables,
        db: Database,
        admin: Admin,
        summary: Summary,
        tell: Callable[[str], None],
        stack: ExitStack,
    ) -> None:
        self._asked, self._tables, self._db, self._summary, self._tell = asked, tables, db, summary, tell
        self._counts, self._began = summary.counts, time.monotonic()
        self._staging: Action | None = None  # whose large table is mapped now
        namespace, draw = f"soak_{tables.mark}", random.Random(f"{asked.seed} pipelines")
        self._writers = Writers(tables.cluster, tables.names, asked.seed)
        stack.callback(self._writers.end)
        self._views = Views(db, tables, self._tend)
        self._pipelines = Pipelines(db, lambda: draw.choice(_CHANGES_PER_EPOCH))
        stack.callback(self._pipelines.end)
        self._faults = Faults(tables.cluster, admin, tables, namespace, self._counts)
        self._judge = Judge(db, tables, self._views, self._pipelines, self._tend, self._counts)
        self._planting = Planting(db, tables, self._views, namespace)
        self._statements: dict[str, Callable[[Action], str]] = {
            **{"kill": self._kill, "kill anywhere": self._kill_anywhere, "stop": self._stop, "stage": self._stage},
            **{"kill region server": self._faults.kill_region_server, "kill thrift": self._faults.kill_thrift},
            **{"move": self._faults.move, "split": self._faults.split, "merge": self._faults.merge},
            **{"flush": self._faults.flush, "compact": self._faults.compact, "roll": self._faults.roll},
            **{"create view": self._views.create, "drop view": self._views.drop, "replace view": self._views.replace},
            **{"map anew": self._views.map_anew, "optimize": self._views.optimize},
            **{"check": self._check, "plant": self._plant},
        }

    def run(self) -> None:
        self._writers.go()
        self._views.begin()
        self._say("views created, while clients write")
        for one in rounds(self._asked.seed, self._asked.deck):
            if self._asked.is_over(self._began, one):
                break
            self._round(one)

    def _round(self, one: Round) -> None:
        for action in one.busy:
            self._do(one, action)
        if self._staging is not None:
            self._fill_big(one, self._staging)
        self._writers.pause()
        self._summary.written = self._writers.counts
        self._judge.compare()
        self._say(f"round {one.number}: {len(self._views.live)} views are right")
        if self._staging is not None:
            self._unstage()
        for action in one.quiet:
            self._do(one, action)
            self._judge.compare()
        self._writers.go()

    def _fill_big(self, one: Round, staging: Action) -> None:
        """Return when the views of the large table are filled, under writers; kills come meanwhile, some epochs apart."""
        for turn in range(_KILLS_OF_A_STAGING):
            epoch = self._pipelines.record().committed + _EPOCHS_APART
            self._judge.wait(
                lambda epoch=epoch: self._judge.are_filled() or self._pipelines.record().committed >= epoch
            )
            if self._judge.are_filled():
                break
            self._do(one, replace(staging.turned(turn), kind="kill"))
        self._judge.wait(self._judge.are_filled)

    def _do(self, one: Round, action: Action) -> None:
        self._tend()
        began = time.monotonic()
        told = self._statements[action.kind](action)
        self._counts[f"actions: {action.kind}"] += 1
        self._say(f"round {one.number}, {action.kind}: {told} ({time.monotonic() - began:.1f} s)")

    def _tend(self) -> None:
        """Look after the processes: pipelines that end by themselves are wrong, and servers that do are started again."""
        self._pipelines.hear()
        self._faults.restart_ended()

    def _kill(self, action: Action) -> str:
        """Kill whoever runs an epoch, and perhaps its successors as they run it again."""
        told = []
        for turn in range(action.pick(2, _IN_A_ROW)):
            again = action.turned(turn)
            point, skipped = again.pick(0, IN_FLIGHT), again.pick(1, _SKIPPED)
            epoch = _again(lambda point=point, skipped=skipped: self._pipelines.kill(point, skipped))
            if epoch is None:
                self._counts["kills whose place no pipeline came to"] += 1
                told.append(f"no pipeline came to {point}")
            else:
                self._counts[KILLS if epoch else "kills of a pipeline whose epoch was over when it was looked at"] += 1
                told.append(f"killed at {point}, epoch {epoch} in flight")
        return "; ".join(told)

    def _kill_anywhere(self, action: Action) -> str:
        if action.draws[0] < 0.5:
            point = action.pick(1, BETWEEN)
            epoch = self._pipelines.kill(point, 0)
        else:
            point, epoch = "some place", self._pipelines.kill_now()
        self._counts[KILLS if epoch else "kills of a pipeline between two epochs"] += 1
        return f"killed at {point}, epoch {epoch or 'none'} in flight"

    def _stop(self, action: Action) -> str:
        point, skipped = action.pick(0, IN_FLIGHT), action.pick(1, _SKIPPED)
        epoch = _again(lambda: self._pipelines.stop(point, skipped, action.pick(2, _EPOCHS)))
        if epoch is None:
            self._counts["stops whose place no pipeline came to"] += 1
            return f"no pipeline came to {point}"
        self._counts[STOPS] += 1
        return f"stopped at {point}, epoch {epoch} in flight; another took over, and the stopped one was fenced off"

    def _stage(self, action: Action) -> str:
        """Map the large table while clients write to it; its rows count as staged when its views are filled."""
        if self._staging is not None:
            return "the large table is mapped already"
        if not self._counts["rows of the large table loaded"]:
            self._load()
        self._writers.write_big(self._asked.big_rows)
        self._views.map_big()
        self._staging = action
        return f"mapped a table of {self._asked.big_rows:,} rows while clients write to it"

    def _unstage(self) -> None:
        self._counts[STAGED] += self._asked.big_rows
        self._writers.write_big(0)
        self._views.unmap_big()
        self._staging = None

    def _load(self) -> None:
        cluster, draw = self._tables.cluster, random.Random(f"{self._asked.seed} big")
        mutations = Mutations(cluster.types, self._tables.names, draw, 0, 1)
        name, rows = self._tables.name("big").encode(), self._asked.big_rows
        with cluster.client() as client:
            for start in range(0, rows, _LOADED):
                numbers = range(start, min(start + _LOADED, rows))
                client.putMultiple(name, [mutations.put(key_of("big", n), mutations.cells("big")) for n in numbers])
        self._counts["rows of the large table loaded"] = rows

    def _check(self, action: Action) -> str:
        self._judge.wait(self._judge.are_filled)  # a view that is asked for by name, and not filled, is not ok
        report = self._planting.check()
        if not report.ok:
            raise Wrong(f"check finds errors where there are none: {report}")
        return f"{report.records:,} records of {len(report.views)} views are right"

    def _plant(self, action: Action) -> str:
        """Half of the repairs are made by a pipeline that is killed in the middle of it."""
        point = action.pick(3, ("", "", "repair.due", "apply.written"))
        return self._planting.plant(action, lambda: self._pipelines.order_kill(point) if point else None)

    def _say(self, line: str) -> None:
        counts, minutes = self._counts, (time.monotonic() - self._began) / 60
        sums = f"{counts[KILLS]} kills, {counts[STOPS]} stops, {counts[STAGED]:,} rows staged"
        self._tell(f"[{minutes:5.1f} min; {sums}; epoch {self._db.epoch}] {line}")


def _again(order: Callable[[], int | None]) -> int | None:
    """The answer to an order, which is given to others too if the store changes hands before it is carried out."""
    found = (order() for _ in range(_ORDERS_MAX))
    return next((epoch for epoch in found if epoch is not None), None)
