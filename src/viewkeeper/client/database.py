"""The database: the public interface of an open store, and how one is opened by its URL or made from a backup.

In: a URL; names, SQL. Out: tables, views, sessions, a pipeline. Always: a method calls the function or class that does
the work, which is imported when it is first called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from viewkeeper.client.arguments import take_names, take_path, take_seconds, take_text
from viewkeeper.client.connection import Connection
from viewkeeper.client.session import Session, Snapshot
from viewkeeper.client.tables import Table, WriteGroup
from viewkeeper.client.views import View
from viewkeeper.errors import InputError, StaleRead
from viewkeeper.stores.open import open_store, restore_store

if TYPE_CHECKING:
    from viewkeeper.check.report import CheckReport, RepairReport
    from viewkeeper.client.pipeline import Pipeline
    from viewkeeper.client.result import Result
    from viewkeeper.client.set_aside import AsideRow
    from viewkeeper.client.status import Status
    from viewkeeper.engine.spark_session import SparkSession
    from viewkeeper.events import EventSink
    from viewkeeper.load.loading import Loaded
    from viewkeeper.ports.admin import Backup, Compacted
    from viewkeeper.settings import Engine, EngineSettings


class Database(Connection):
    """An open store: `viewkeeper.connect(url)` makes one."""

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def epoch(self) -> int:
        """The last committed epoch: what a view read in mode "snapshot" would see now."""
        return self.store.read_frontier().committed

    def execute(self, sql: str) -> Result:
        """Run one or more SQL statements; returns the result of the last one."""
        from viewkeeper.client.statements import execute

        return execute(self, take_text("a statement", sql))

    def table(self, name: str) -> Table:
        """The base table of that name."""
        return Table(self, self.catalog().table(name))

    def view(self, name: str) -> View:
        """The view or index of that name."""
        return View(self, self.catalog().view(name))

    def load(
        self,
        table: str,
        *paths: str | os.PathLike[str],
        create: bool = False,
        key: str | Sequence[str] = (),
        format: str | None = None,
        delimiter: str | None = None,
        null: str = "",
        guess_null: bool = False,
        last_wins: bool = False,
        ignore_unknown: bool = False,
        session: Session | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Loaded:
        """Put the rows of CSV, TSV, JSON or Parquet files; all are checked before the first row is written."""
        from viewkeeper.load.files import Reading
        from viewkeeper.load.loading import open_load, require_sensible, require_target

        names = (key,) if isinstance(key, str) else tuple(take_names("key", key))
        self.require_writable()
        require_sensible(create=create, key=names, ignore_unknown=ignore_unknown)
        require_target(self, table, create=create)
        reading, wrote = Reading(format, delimiter, null, guess_null), session.wrote if session else None
        with open_load(paths, reading, ignore_unknown=ignore_unknown) as files:
            created = files.infer(table, names, last_wins=last_wins) if create else None
            return files.run(self, table, created, progress=progress, wrote=wrote)

    def write(self) -> WriteGroup:
        """An atomic group of puts and deletes of rows of one node, as a context manager."""
        self.require_writable()
        return WriteGroup(self)

    def session(self) -> Session:
        """Reads that see the session's own writes."""
        return Session(self)

    def snapshot(self) -> Snapshot:
        """One committed epoch of all views."""
        while True:
            snapshot = Snapshot(self)
            try:
                return snapshot.keep()
            except StaleRead:  # epochs were faster
                snapshot.close()

    def pipeline(
        self,
        *,
        view_managers: int | tuple[int, int] = 2,
        spark: SparkSession | None = None,
        take_over: bool = False,
        changes_per_epoch: int | None = None,
        events: EventSink | None = None,
        standby: bool = False,
        patience_seconds: float = 10.0,
        hang_seconds: float | None = None,
        engine: Engine | Literal["auto", "spark", "driver"] = "auto",
        settings: EngineSettings | None = None,
    ) -> Pipeline:
        """The pipeline that keeps all views fresh; Spark starts when its work needs it, unless a session is given.

        With `engine="spark"` every epoch is a Spark job, with `"driver"` none is, and no Java is needed; `settings` say
        which epochs are large enough for a job with `"auto"`. Over a store that only this process reaches, this process
        does all work, without Spark. With `view_managers=(1, 4)` there are as many as the backlog calls for. With
        `standby` the call waits until no other pipeline runs, or the one that does shows no sign of life for
        `patience_seconds`, and takes over; with `hang_seconds` also when it has been at one epoch for so long.
        """
        from viewkeeper.client.pipeline import Pipeline, take_engine
        from viewkeeper.coordinator.standby import Patience
        from viewkeeper.engine.lazy_session import take_session

        self.require_writable()
        chosen = take_engine(engine, self.store, spark, settings)
        return Pipeline(
            self,
            view_managers=view_managers,
            spark=take_session(spark),
            take_over=take_over,
            changes_per_epoch=changes_per_epoch,
            events=events,
            engine=chosen,
            settings=settings,
            standby=standby,
            patience=Patience(
                take_seconds("patience_seconds", patience_seconds),
                None if hang_seconds is None else take_seconds("hang_seconds", hang_seconds),
            ),
        )

    def scale(self, *, view_managers: int | tuple[int, int]) -> None:
        """Ask the pipeline that runs now, in whatever process, for so many view managers from its next epoch on."""
        from viewkeeper.coordinator.view_managers import request_managers
        from viewkeeper.ports.meta import live_holder
        from viewkeeper.settings import ManagerBounds

        self.require_writable()
        bounds = ManagerBounds.of(view_managers)
        if live_holder(self.store) is None:
            raise InputError("no pipeline of this store is running", "start one with as many view managers as you want")
        request_managers(self.store, bounds)

    def check(
        self,
        views: Sequence[str] | None = None,
        *,
        spark: SparkSession | None = None,
        progress: Callable[[int, int], None] | None = None,
        since: Literal["last"] | None = None,
    ) -> CheckReport:
        """Compare views with their recomputation by Spark SQL, as of the committed epoch.

        `progress` is called with how many views are judged, and how many there are. With `since="last"` only the records
        are compared that changes after the last check can have touched; the report names the views that were checked as a
        whole all the same, and why.
        """
        from viewkeeper.engine.spark_session import require_spark

        require_spark()
        from viewkeeper.check.check_views import check_views
        from viewkeeper.engine.lazy_session import take_session

        return check_views(self, _names(views), take_session(spark), progress, since=since)

    def repair(
        self,
        views: Sequence[str] | None = None,
        *,
        spark: SparkSession | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> RepairReport:
        """Check views, fill them anew beside themselves, and put right the records that differ, in one epoch.

        Auxiliary tables are put right too, and so are views that share records with those named. A running pipeline does
        the work; without one it is done here. Writes and readers go on meanwhile.
        """
        from viewkeeper.engine.spark_session import require_spark

        self.require_writable()
        require_spark()
        from viewkeeper.check.repairing import repair_views
        from viewkeeper.engine.lazy_session import take_session

        return repair_views(self, _names(views), take_session(spark), progress)

    def rebuild(self, *views: str, spark: SparkSession | None = None) -> tuple[str, ...]:
        """Fill views anew beside themselves, whatever state they are in; the new records take the place of the old ones.

        Returns the views that were rebuilt: those named, and those that share records with them. Old records are read
        until then, where the view is not stopped. A running pipeline does the work; without one it is done here.
        """
        from viewkeeper.check.repairing import rebuild_views
        from viewkeeper.engine.lazy_session import take_session

        self.require_writable()
        return rebuild_views(self, take_names("views", views), take_session(spark))

    def set_aside(self, view: str, *, dropped: bool = False) -> Iterator[AsideRow]:
        """Each row on which a view's SQL fails, with its key in the source and the reason; as of the committed epoch.

        A row is tried again whenever it changes, and by `retry_set_aside`. With `dropped`, rows that `drop_set_aside` took
        off the list are there too.
        """
        from functools import partial

        from viewkeeper.client.failed_rows import reason_of
        from viewkeeper.client.set_aside import each_set_aside

        with Snapshot(self) as snapshot:
            definition = snapshot.catalog.view(view)
            yield from each_set_aside(snapshot, definition, partial(reason_of, self, definition), with_dropped=dropped)

    def retry_set_aside(
        self, view: str, keys: Sequence[Sequence[object]] | None = None, *, spark: SparkSession | None = None
    ) -> int:
        """Compute rows that a view has set aside again, in one epoch: all that are listed, or those under these keys.

        Returns how many of them no longer fail. A running pipeline does the work; without one it is done here.
        """
        return self._settle(view, keys, "retry", spark)

    def drop_set_aside(
        self, view: str, keys: Sequence[Sequence[object]] | None = None, *, spark: SparkSession | None = None
    ) -> int:
        """Take rows that a view has set aside off the list, until they change: all, or those under these keys.

        They stay out of the view. Returns how many were dropped.
        """
        return self._settle(view, keys, "drop", spark)

    def _settle(
        self, view: str, keys: Sequence[Sequence[object]] | None, ending: str, spark: SparkSession | None
    ) -> int:
        from viewkeeper.client.failed_rows import retry_or_drop
        from viewkeeper.engine.lazy_session import take_session

        self.require_writable()
        return retry_or_drop(self, view, keys, ending, take_session(spark))

    def status(self) -> Status:
        """Where the pipeline is, how far it lags, how much the log holds."""
        from viewkeeper.client.status import read_status

        return read_status(self)

    def backup(self, path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Backup:
        """Write a backup of the whole store, as of this moment, to a new directory; `viewkeeper.restore` reads it.

        Writers and the pipeline go on meanwhile. `progress` is called with the bytes done, and the bytes expected.
        """
        return self.store.back_up(take_path("the backup", path), progress)

    def compact(self, *, progress: Callable[[int, int], None] | None = None) -> Compacted:
        """Shorten the log, remove what was dropped, and return the space to the disk.

        No other process may have the store open, and nothing else may use this database meanwhile: StoreInUse, or
        PipelineRunning, names who does. A kill at any moment leaves a whole store.
        """
        from viewkeeper.coordinator.gc import collect_all_garbage
        from viewkeeper.ports.admin import Compacted

        self.require_writable()
        store = self.store
        with store.alone() as compact:
            before, entries = store.facts().bytes_used, collect_all_garbage(store)
            compact(progress)
            self.forget_catalog()  # the new files count changes from 1
            return Compacted(before, store.facts().bytes_used, entries)

    def explain(self, name: str | None = None, *, form: Literal["text", "mermaid", "dot", "svg"] = "text") -> str:
        """The plan of a view, or of all: as text, as a Mermaid flowchart, as a graph for Graphviz, or drawn by it."""
        from viewkeeper.client.explaining import draw_svg, read_costs
        from viewkeeper.plan.explain.explain import explain

        catalog = self.catalog()
        costs = read_costs(self.store, catalog, name) if form == "text" else None
        text = explain(catalog, name, form="dot" if form == "svg" else form, costs=costs)
        return draw_svg(text) if form == "svg" else text

    def keep_changes(self, *, epochs: int = 0, seconds: float = 0) -> None:
        """Keep what `view.changes` returns for at least so many epochs, and so many seconds; from the next epoch on.

        It applies to the store, whoever runs the pipeline, until it is set again; 0 and 0 keep the last two epochs. The log
        is kept for as many seconds too, so that a check since the last one goes back as far.
        """
        from viewkeeper.model.epochs import keep
        from viewkeeper.model.read_frontier import RetentionPolicy
        from viewkeeper.ports.meta import change_epoch_record

        self.require_writable()
        wanted = RetentionPolicy(epochs, seconds)
        change_epoch_record(self.store, lambda record: keep(record, wanted.epochs, wanted.seconds))


def _names(views: Sequence[str] | None) -> list[str] | None:
    return None if views is None else take_names("views", views)


def connect(url: str, *, read_only: bool = False) -> Database:
    """Open the store at `url`, as in `embedded:./shop`; it is made when it does not exist, unless `read_only`."""
    take_text("the URL of a store", url, "as in embedded:./shop")
    return Database(open_store(url, create=not read_only, read_only=read_only), read_only=read_only)


def restore(backup: str | Path, url: str, *, progress: Callable[[int, int], None] | None = None) -> Database:
    """Make a new store at `url` from what `db.backup` wrote, and open it; tokens of the old store do not fit it."""
    restore_store(take_path("the backup", backup), take_text("the URL of a store", url), progress)
    return connect(url)
