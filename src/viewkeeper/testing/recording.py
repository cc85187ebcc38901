"""Recording: a run as the judges of `testing` want it: base updates, states of views, and views as functions of base rows.

In: writes and reads of an open database, and the events of its pipeline; a SELECT and the columns of its tables. Out:
updates and states, verdicts on them, and a function from rows of tables to rows of the view. Always: an update has the
position that its token names, a state the positions of the epoch that was read; nobody else writes rows that the recorder
writes. DuckDB computes the function from scratch, in its dialect; no part of ViewKeeper's SQL is used.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from viewkeeper.client.arguments import key_values, split_put
from viewkeeper.errors import InputError, NotReady
from viewkeeper.events import Began, Committed, Event
from viewkeeper.model.positions import positions_to_json
from viewkeeper.model.read_frontier import LATEST, SNAPSHOT
from viewkeeper.testing.histories import Base, Claim, Row, ViewFunction
from viewkeeper.testing.levels import State, Update, Verdict, observed_level

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from viewkeeper.client.database import Database
    from viewkeeper.model.positions import Token


def select_view(select: str, **tables: str) -> ViewFunction:
    """What a SELECT gives over base rows; a table is given by its columns: `r="k VARCHAR, y BIGINT"`."""
    import duckdb
    import pyarrow as pa

    from viewkeeper.codegen.confined import connect_confined

    connection = connect_confined({"threads": "1"})
    schemas = {name: _schema_of(connection, name, columns) for name, columns in tables.items()}

    def evaluate(base: Base) -> Iterable[Row]:
        for name, schema in schemas.items():
            connection.register(name, pa.Table.from_pylist([dict(row) for row in base[name]], schema))
        try:
            return connection.sql(select).to_arrow_table().to_pylist()
        except duckdb.Error as error:
            fact = str(error).splitlines()[0]
            hint = "give the SELECT in DuckDB's dialect"
            raise InputError(f"DuckDB cannot compute the view: {fact}", hint) from error

    return evaluate


def _schema_of(connection: duckdb.DuckDBPyConnection, name: str, columns: str) -> pa.Schema:
    connection.execute(f'CREATE TABLE "{name}" ({columns})')
    schema = connection.table(f'"{name}"').to_arrow_table().schema
    connection.execute(f'DROP TABLE "{name}"')
    return schema


class Recorder:
    """Writes rows and reads views of a database, and remembers both.

    Handed to the pipeline, `db.pipeline(events=recorder)`, it reads the views after every epoch; `look` reads them now.
    Make it while nobody writes: the rows that the tables have then are the initial base.
    """

    def __init__(self, database: Database, *views: str) -> None:
        self._database = database
        self._views = views
        self._writing, self._looking = threading.Lock(), threading.Lock()
        self._cuts: dict[int, Claim] = {}  # of each epoch that was seen, in flight or committed
        self._states: dict[tuple[str, str], list[State]] = defaultdict(list)
        self.updates: list[Update] = []
        self.initial = tuple(
            Update(schema.name, tuple(row[name] for name in schema.key), row)
            for schema in database.catalog().tables
            for row in database.table(schema.name).scan()
        )

    def put(self, table: str, *key_and_columns: object) -> Token:
        """Like `Table.put`."""
        schema = self._database.table(table).schema
        key = key_values(schema.key_columns, split_put(schema, key_and_columns)[0])
        with self._writing:
            return self._note(table, key, self._database.table(table).put(*key_and_columns))

    def delete(self, table: str, *key: object, columns: Sequence[str] | None = None) -> Token:
        """Like `Table.delete`."""
        with self._writing:
            return self._note(table, key, self._database.table(table).delete(*key, columns=columns))

    def __call__(self, event: Event) -> None:
        """An event of the pipeline: a committed epoch is a state of every view."""
        if isinstance(event, Began):
            self._cuts[event.epoch] = positions_to_json(event.stop)
        elif isinstance(event, Committed):
            self.look()

    def look(self, read: str = SNAPSHOT) -> None:
        """Read all views, in mode "snapshot" or "latest"; one that is not filled yet has no state.

        In mode "latest" each record is as of the epoch that was committed before the read, or of one begun until its end.
        """
        with self._looking:  # from read to note: states are noted in the order in which they were
            if read == LATEST:
                first = self._note_cuts()
                found = {name: list(self._database.view(name).scan(read=LATEST)) for name in self._views}
                self._note_cuts()
                cuts = list(self._cuts.items())  # a copy: the pipeline adds
                claims = [claim for epoch, claim in cuts if epoch >= first]
                for name, rows in found.items():
                    self._states[name, LATEST].append(State(rows, claims, f"after epoch {first}"))
                return
            with self._database.snapshot() as snapshot:
                claim = positions_to_json(snapshot.frontier.positions)
                for name in self._views:
                    with suppress(NotReady):
                        rows = list(snapshot.view(name).scan())
                        self._states[name, SNAPSHOT].append(State(rows, [claim], f"epoch {snapshot.epoch}"))

    def states(self, view: str, read: str = SNAPSHOT) -> list[State]:
        """What was seen of a view, in the order in which it was read."""
        return self._states.get((view, read), [])

    def observed(
        self, view: str, select: str | None = None, *, read: str = SNAPSHOT, key: Sequence[str] | None = None
    ) -> Verdict:
        """The level of consistency that the view showed; see `observed_level`.

        `select`: what it should hold, as a SELECT of DuckDB over the base tables; by default the view's own text.
        """
        catalog = self._database.catalog()
        tables = {}
        for table in catalog.tables:  # a TIMESTAMP means an instant
            kinds = [(c.name, "TIMESTAMPTZ" if c.type.kind == "TIMESTAMP" else c.type.duckdb) for c in table.columns]
            tables[table.name] = ", ".join(f'"{name}" {kind}' for name, kind in kinds)
        function = select_view(select or catalog.view(view).text, **tables)
        return observed_level(self.updates, self.states(view, read), function, initial=self.initial, key=key)

    def _note_cuts(self) -> int:
        record = self._database.store.read_epoch_record()
        self._cuts[record.committed] = positions_to_json(record.positions)
        if record.inflight is not None:
            self._cuts[record.inflight.epoch] = positions_to_json(record.inflight.stop.positions)
        return record.committed

    def _note(self, table: str, key: tuple[object, ...], token: Token) -> Token:
        ((stream, position),) = token.positions.items()  # a row has one node
        self.updates.append(Update(table, key, self._database.table(table).get(*key), stream, position))
        return token
