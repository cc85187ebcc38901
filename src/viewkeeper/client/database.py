"""The database: the public interface of an open store.

In: names, SQL. Out: tables, views, sessions, a pipeline. Always: any number of processes may have the same store open;
the catalog is read again when its version has changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.client.arguments import take_names, take_path, take_text
from viewkeeper.client.reading import TIMEOUT_SECONDS, wait_for
from viewkeeper.client.session import Session, Snapshot
from viewkeeper.client.tables import Table, WriteGroup
from viewkeeper.client.views import View
from viewkeeper.coordinator.swaps import swap_catalog
from viewkeeper.errors import InputError, UnknownName
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.token import Token
from viewkeeper.model.writes import Image, RowWrites

if TYPE_CHECKING:
    from viewkeeper.check.report import CheckReport
    from viewkeeper.client.pipeline import Pipeline
    from viewkeeper.client.result import Result
    from viewkeeper.client.status import Status
    from viewkeeper.engine.session import SparkSession
    from viewkeeper.events import EventSink
    from viewkeeper.load.loading import Loaded
    from viewkeeper.ports.store import Store
    from viewkeeper.ports.upkeep import Backup, Compacted


class Database:
    """An open store: `viewkeeper.connect(url)` makes one."""

    def __init__(self, store: Store, *, read_only: bool) -> None:
        self._store = store
        self.read_only = read_only
        self._catalog: Catalog | None = None
        self._looked_at: tuple[int, Catalog] | None = None  # the catalog, and the store's last change when it was read
        self._closed = False

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; what was made from this database can no longer be used."""
        if not self._closed:
            self._closed = True
            self._store.close()

    @property
    def store(self) -> Store:
        """The store of the database."""
        if self._closed:
            raise InputError("the database is closed", "connect again")
        return self._store

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def epoch(self) -> int:
        """The last committed epoch: what a view read in mode "snapshot" would see now."""
        return self.store.read_horizon().committed

    def execute(self, sql: str) -> Result:
        """Run one or more SQL statements; returns the result of the last one."""
        from viewkeeper.client.statements import execute

        return execute(self, take_text("a statement", sql))

    def table(self, name: str) -> Table:
        """The base table named `name`."""
        return Table(self, self.catalog().table(name))

    def view(self, name: str) -> View:
        """The view or index named `name`."""
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
        """Put the rows of CSV, TSV, JSON lines or Parquet files; all are checked before the first row is written."""
        from viewkeeper.load.files import Reading
        from viewkeeper.load.loading import load

        names = (key,) if isinstance(key, str) else tuple(take_names("key", key))
        return load(
            self,
            table,
            paths,
            Reading(format, delimiter, null, guess_null),
            create=create,
            key=names,
            last_wins=last_wins,
            ignore_unknown=ignore_unknown,
            progress=progress,
            wrote=session.wrote if session else None,
        )

    def write(self) -> WriteGroup:
        """An atomic group of puts and deletes of rows of one node, as a context manager."""
        self.require_writable()
        return WriteGroup(self)

    def write_rows(self, writes: Sequence[RowWrites], tables: Sequence[TableSchema]) -> Token:
        """Write a group of rows, all or none; every base write goes through here or `write_row_if`."""
        self.require_writable()
        guarded = [self._guarded(writes[0], tables), *writes[1:]]
        return Token(self.store.incarnation, self.store.write(guarded))

    def write_row_if(self, writes: RowWrites, table: TableSchema, is_expected: Callable[[Image], bool]) -> Token | None:
        """Write a row if it is as expected; None when it is not."""
        self.require_writable()
        reached = self.store.write_if(self._guarded(writes, (table,)), is_expected)
        return None if reached is None else Token(self.store.incarnation, reached)

    def _guarded(self, writes: RowWrites, tables: Sequence[TableSchema]) -> RowWrites:
        """The same writes; whether the tables still exist is checked inside the transaction.

        Rows of a dropped table are removed in later transactions, so none is written after the removal and stays for
        good.
        """

        def merge(befores: list[Image]) -> list[Image]:
            for table in tables:
                self.current_table(table)
            return writes.merge(befores)

        return RowWrites(writes.table, writes.keys, merge)

    def session(self) -> Session:
        """Reads that see the session's own writes."""
        return Session(self)

    def snapshot(self) -> Snapshot:
        """One committed epoch of all views."""
        return Snapshot(self)

    def wait_for(self, token: Token | str, timeout: float = TIMEOUT_SECONDS) -> None:
        """Return once all views include the token's write; StaleRead after `timeout` seconds."""
        token = Token.parse(token) if isinstance(token, str) else token
        if not isinstance(token, Token):
            raise InputError(f"{token!r} is not a token", "pass what put, delete or put_many returned")
        wait_for(self.store, token, timeout)

    def pipeline(
        self,
        *,
        view_managers: int = 2,
        spark: SparkSession | None = None,
        take_over: bool = False,
        changes_per_epoch: int | None = None,
        events: EventSink | None = None,
    ) -> Pipeline:
        """The pipeline that keeps all views fresh; Spark starts when its work needs it, unless a session is given.

        Over a store that only this process reaches, this process does all work, without Spark.
        """
        from viewkeeper.engine.session import require_spark

        self.require_writable()
        if self.store.capabilities.many_processes:
            require_spark()
        from viewkeeper.client.pipeline import Pipeline

        return Pipeline(
            self,
            view_managers=view_managers,
            spark=spark,
            take_over=take_over,
            changes_per_epoch=changes_per_epoch,
            events=events,
        )

    def check(
        self,
        views: Sequence[str] | None = None,
        *,
        spark: SparkSession | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CheckReport:
        """Compare views with their recomputation by Spark SQL, as of the committed epoch.

        `progress` is called with how many views are judged, and how many there are.
        """
        from viewkeeper.engine.session import require_spark

        require_spark()
        from viewkeeper.client.checking import check_views

        return check_views(self, views, spark, progress)

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
        from viewkeeper.client.compacting import compact

        return compact(self, progress)

    def explain(self, name: str | None = None, *, form: Literal["text", "mermaid", "dot", "svg"] = "text") -> str:
        """The plan of a view, or of all: as text, as a Mermaid flowchart, as a graph for Graphviz, or drawn by it."""
        from viewkeeper.client.drawing import draw_svg
        from viewkeeper.plan.explain.explain import explain

        told = explain(self.catalog(), name, form="dot" if form == "svg" else form)
        return draw_svg(told) if form == "svg" else told

    def keep_changes(self, *, epochs: int = 0, seconds: float = 0) -> None:
        """Keep what `view.changes` returns for at least so many epochs, and so many seconds; from the next epoch on.

        It applies to the store, whoever runs the pipeline, until it is set anew; 0 and 0 keep the last two epochs.
        """
        from viewkeeper.model.epochs import keep
        from viewkeeper.model.keeping import Keeping

        self.require_writable()
        wanted = Keeping(epochs, seconds)
        self.store.change_epoch_record(lambda record: keep(record, wanted.epochs, wanted.seconds))

    def catalog(self) -> Catalog:
        """The tables and views as they are now."""
        last_change, looked_at = self.store.last_meta_change(), self._looked_at
        if looked_at is None or looked_at[0] != last_change:
            looked_at = last_change, self._catalog_at(self.store.read_horizon().catalog_version)
            self._looked_at = looked_at
        return looked_at[1]

    def forget_catalog(self) -> None:
        """Read the catalog again at the next use."""
        self._catalog = self._looked_at = None

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        """Swap in the catalog that `change` returns; repeated while others swap theirs in between."""
        self.require_writable()
        self._catalog = swap_catalog(self.store, change)
        return self._catalog

    def view_as_of(self, definition: ViewDefinition, version: int) -> ViewDefinition | None:
        """The view as of catalog `version`: the same, or its replacement, unless it was dropped.

        None when that catalog is no longer the current one.
        """
        catalog = self._catalog_at(version)
        if catalog.version != version:
            return None
        for view in catalog.views:
            if definition.id in (view.id, *view.replaces):
                return view
        raise UnknownName(f"view {definition.name} was dropped")

    def current_table(self, schema: TableSchema) -> TableSchema:
        """The table as of now: the same, unless columns were added or it was dropped."""
        for table in self.catalog().tables:
            if table.id == schema.id:
                return table
        raise UnknownName(f"table {schema.name} was dropped")

    def require_writable(self) -> None:
        """Raise unless this database may write."""
        if self.read_only:
            raise InputError("the database is open for reading only", "connect without read_only=True")

    def _catalog_at(self, version: int) -> Catalog:
        if self._catalog is None or self._catalog.version != version:
            self._catalog = Catalog.from_json(self.store.read_catalog())
        return self._catalog
