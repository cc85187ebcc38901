"""Checking: every view against its recomputation by Spark SQL, as of the committed epoch.

In: a database and the names of views. Out: a report. Always: view records and base rows are those of one epoch, while
writes and the pipeline go on; Spark SQL on the view's original text is the judge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.check.compare import compare
from viewkeeper.check.expansion import spelled_out
from viewkeeper.check.questions import can_ask_for_key, names_of_bounds, names_of_keys, question_for
from viewkeeper.check.report import CheckReport, Finding
from viewkeeper.client.bags import keyed
from viewkeeper.client.pins import pinned
from viewkeeper.client.troubles import set_aside
from viewkeeper.engine.recompute import SparkRecompute
from viewkeeper.engine.session import default_session, epoch_session
from viewkeeper.errors import EpochFailed, PositionLost, StaleRead
from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.keys import decode_key, encode_key
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.types import DOUBLE
from viewkeeper.model.values import Stored, from_stored
from viewkeeper.plan.catalog import Catalog, ViewDefinition
from viewkeeper.plan.nodes import FoldNode, TopNode
from viewkeeper.ports.recompute import Base, Moment, Recompute

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.client.session import Snapshot
    from viewkeeper.engine.session import SparkSession

_RETRIES_MAX = 2


def check_views(database: Database, names: Sequence[str] | None, spark: SparkSession | None) -> CheckReport:
    """The report on the named views, or on all that are filled."""
    catalog = database.catalog()
    for name in names or ():
        catalog.view(name)
    session = spark or default_session(view_managers=2)
    with _quiet(session) if spark is None else contextlib.nullcontext():
        for _ in range(_RETRIES_MAX):
            with contextlib.suppress(PositionLost, StaleRead):  # the state went under a long check: judge a later epoch
                return _check_once(database, names, session)
        return _check_once(database, names, session)


@contextlib.contextmanager
def _quiet(session: SparkSession) -> Iterator[None]:
    """A question that Spark cannot answer is told in the report, not in its stack traces."""
    session.sparkContext.setLogLevel("OFF")
    try:
        yield
    finally:
        session.sparkContext.setLogLevel("ERROR")


def _check_once(database: Database, names: Sequence[str] | None, spark: SparkSession) -> CheckReport:
    recompute = SparkRecompute(database.store, epoch_session(spark))
    judged: list[str] = []
    findings: list[Finding] = []
    notes: list[str] = []
    records = 0
    is_whole = True
    with database.snapshot() as snapshot, pinned(database.store, snapshot.epoch):
        catalog, filled = snapshot.catalog, snapshot.horizon.filled
        chosen = [catalog.view(name) for name in names] if names else catalog.views
        for view in [view for view in chosen if names or view.node.table in filled]:
            degraded = _degraded_groups(view, snapshot)
            if degraded:
                notes.append(f"view {view.name}: {len(degraded):,} degraded, whose values do not fit, not compared")
            if degraded and not view.node.key:
                continue  # its one record does not fit its type: there is nothing to compare
            try:
                expected, found = _sides(recompute, catalog, view, snapshot, degraded)
            except EpochFailed as error:
                notes.append(f"view {view.name} could not be judged, which says nothing against it: {error.fact}")
                is_whole = False
                continue
            findings += found
            records += expected
            judged.append(view.name)
    is_ok = not findings and is_whole
    return CheckReport(is_ok, snapshot.epoch, tuple(judged), records, tuple(findings), tuple(notes))


def _sides(
    recompute: Recompute, catalog: Catalog, view: ViewDefinition, snapshot: Snapshot, degraded: list[list[Stored]]
) -> tuple[int, list[Finding]]:
    """How many records a view should hold, and what is wrong with those it holds."""
    stored = snapshot.view(view.name).keys_and_values()
    if can_ask_for_key(view):
        table = catalog.table_by_id(view.sources[0]).as_of(view.id)
        expected = _recomputed(recompute, view, table, snapshot, degraded)
        names = names_of_keys(view), names_of_bounds(view)
        return len(expected), _judge(view, *names, expected, _without(stored, view, degraded))
    if set_aside(snapshot, view).count or degraded:
        raise EpochFailed(
            "some of its rows are set aside, or groups degraded, which Spark cannot leave out of such a view"
        )
    sql, tables = spelled_out(catalog, view)
    moment = Moment(snapshot.epoch, snapshot.horizon.positions, snapshot.horizon.void)
    answer = recompute.run(sql, [Base(name, table) for name, table in tables.items()], moment)
    values = _names_of_values(view)
    expected, keys, bounds = keyed(_fit(answer, values, [item.column for item in view.shown]), values)
    found, _, _ = keyed(stored.select(values), values)
    findings = _judge(view, keys, bounds, expected, found)
    if findings and any(isinstance(node, TopNode) and not node.is_total for node in view.nodes):
        raise EpochFailed(
            "its ORDER BY leaves rows equal, of which Spark may take others; with the key in it there are none"
        )
    return len(expected), findings


def _recomputed(
    recompute: Recompute, view: ViewDefinition, table: TableSchema, snapshot: Snapshot, degraded: list[list[Stored]]
) -> pa.Table:
    """What the view should hold: its whole key, the values shown, and how far each may be off.

    Rows set aside are left out by key, degraded groups by their key: Spark would stop at them. It also stops where the
    view has an answer; then it is asked once more, with care.
    """
    horizon, node = snapshot.horizon, view.node
    listed = node.feeds[0].aside
    bases = [Base(view.names[0][0], table, frozenset() if listed is None else frozenset(snapshot.keys_of(listed)))]
    left_out = [[_literal(*pair) for pair in zip(node.key, group, strict=True)] for group in degraded]
    moment = Moment(snapshot.epoch, horizon.positions, horizon.void)
    try:
        answer = recompute.run(question_for(view, table, left_out), bases, moment)
    except EpochFailed:
        answer = recompute.run(question_for(view, table, left_out, careful=True), bases, moment)
    columns = [*node.key, *(item.column for item in view.shown), *(Column("", DOUBLE) for _ in view.shown)]
    return _fit(answer, [*names_of_keys(view), *_names_of_values(view), *names_of_bounds(view)], columns)


def _degraded_groups(view: ViewDefinition, snapshot: Snapshot) -> list[list[Stored]]:
    """The keys of degraded groups."""
    folds = [node for node in view.nodes if isinstance(node, FoldNode)]
    return [decode_key(n.key, key) for n in folds if n.degraded is not None for key in snapshot.keys_of(n.degraded)]


def _without(found: pa.Table, view: ViewDefinition, degraded: list[list[Stored]]) -> pa.Table:
    """The records but for those of degraded groups."""
    if not degraded:
        return found
    columns = view.node.key
    encoded = pa.array([encode_key(columns, group) for group in degraded], pa.binary())
    keys, _ = encode_keys(columns, [found[name] for name in names_of_keys(view)], len(found))
    return found.filter(pc.invert(pc.is_in(keys, value_set=encoded)))


def _literal(column: Column, value: Stored) -> str:
    kind = column.type.spark
    if value is None:
        return f"CAST(NULL AS {kind})"
    shown = from_stored(column, value)
    if isinstance(shown, bytes):
        return f"X'{shown.hex()}'"
    text = str(shown).replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{text}' AS {kind})"


def _judge(
    view: ViewDefinition, keys: Sequence[str], bounds: Sequence[str], expected: pa.Table, found: pa.Table
) -> list[Finding]:
    values = _names_of_values(view)
    shown = dict(zip(values, (item.column.name for item in view.shown), strict=True))

    def rename(side: dict[str, object] | None) -> dict[str, object] | None:
        return None if side is None else {shown[name]: value for name, value in side.items()}

    differences = compare(view.name, keys, values, bounds, expected, found)
    return [Finding(f.view, f.key, f.kind, rename(f.expected), rename(f.found)) for f in differences]


def _names_of_values(view: ViewDefinition) -> list[str]:
    return [f"__value_{i}" for i in range(len(view.shown))]


def _fit(answer: pa.Table, names: Sequence[str], columns: Sequence[Column]) -> pa.Table:
    arrays = []
    for i, column in enumerate(columns):
        array = answer.column(i)
        if pa.types.is_timestamp(array.type) and array.type.tz:
            array = array.cast(pa.timestamp("us"))
        arrays.append(array.cast(column.type.arrow))
    return pa.table(arrays, names=list(names))
