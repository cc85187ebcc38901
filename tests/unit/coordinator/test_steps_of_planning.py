"""What the next epoch is, as a decision: of a cut, the catalog behind it, rows that moved, and rows that are staged."""

from __future__ import annotations

from dataclasses import replace

import pytest

import viewkeeper as vk
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator import steps
from viewkeeper.model import epochs
from viewkeeper.model.epochs import AsideRequest, EpochRecord
from viewkeeper.model.positions import BackfillProgress, Chunk, Cut, Position, Stream
from viewkeeper.model.schema import Foreign
from viewkeeper.plan.planner import due_repair, physical_plan
from viewkeeper.plan.replacements import with_shadow_views
from viewkeeper.settings import EpochLimits

STREAM = Stream("0")
STATE = steps.State("me", EpochLimits())
OWNED = epochs.take_over(EpochRecord.first("w"), "me")
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT g, SUM(CAST(v AS INT)) AS s FROM t GROUP BY g"


@pytest.fixture
def db() -> vk.Database:
    db = vk.connect("memory:")
    db.execute(f"CREATE TABLE t (k STRING PRIMARY KEY, g STRING, v STRING); {VIEW}")
    return db


def cut(changes: int = 0) -> Cut:
    return Cut({STREAM: Position(changes)}, 7, changes)


def filled(catalog: Catalog, record: EpochRecord = OWNED) -> EpochRecord:
    return replace(record, filled={view.node.backfill: 1 for view in catalog.kept})


def next_of(draft: steps.Draft) -> tuple[steps.Action, ...]:
    """What follows once rows are chosen for the plan of the draft: none, unless it has some already."""
    state, actions = steps.step(draft, STATE)
    assert state == STATE
    match actions:
        case (steps.Ask(chosen, "rows"),):
            return steps.step(chosen, STATE)[1]
    return actions


def test_an_epoch_begins_with_a_cut_of_its_size() -> None:
    state = replace(STATE, share=0.5)

    asked = steps.Ask(steps.Draft(OWNED, EpochLimits().times(0.5)), "cut")

    assert steps.step(steps.Found(OWNED), state)[1] == (steps.ReplaceViews(OWNED), asked)


def test_a_cut_with_changes_is_an_epoch_and_one_without_is_none(db: vk.Database) -> None:
    catalog = db.catalog()
    record, plan = filled(catalog), physical_plan(catalog)
    draft = steps.Draft(record, EpochLimits(), stop=cut(3), catalog=catalog)
    views = frozenset([catalog.view("v").node.table])

    assert steps.step(draft, STATE)[1] == (steps.Ask(replace(draft, plan=plan), "rows"),)
    assert next_of(draft) == (steps.Begin(cut(3), plan, views),)
    assert next_of(replace(draft, stop=cut(0))) == ()


def test_a_log_that_nobody_reads_is_cut_again_behind_all_of_it(db: vk.Database) -> None:
    db.execute("DROP MATERIALIZED VIEW v")
    draft = steps.Draft(OWNED, EpochLimits(), stop=cut(3), catalog=db.catalog())
    (again,) = next_of(draft)

    assert again == steps.Ask(replace(draft, is_bounded=False), "cut")
    assert next_of(replace(again.draft, stop=cut(9))) == (
        steps.Begin(cut(9), physical_plan(db.catalog()), frozenset()),
    )


def test_a_reader_that_came_with_the_second_cut_bounds_a_third(db: vk.Database) -> None:
    none = vk.connect("memory:").catalog()
    record = filled(db.catalog())
    unbounded = steps.Draft(
        record, EpochLimits(), is_bounded=False, stop=cut(9), catalog=db.catalog(), plan=physical_plan(none)
    )
    (again,) = next_of(unbounded)

    assert again.lacks == "cut" and again.draft.is_bounded


def test_a_foreign_table_that_the_cut_did_not_know_needs_another_look() -> None:
    db = vk.connect("memory:?before_images=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, v STRING)")
    (table,) = db.catalog().tables
    catalog = replace(db.catalog(), tables=(replace(table, foreign=Foreign("theirs", ())),))
    draft = steps.Draft(OWNED, EpochLimits(), stop=cut(3), catalog=catalog)

    assert next_of(draft) == (steps.Ask(draft, "cut"),)
    assert isinstance(next_of(replace(draft, mapped=frozenset([table.id])))[0], steps.Begin)


def test_rows_are_chosen_again_only_for_another_plan(db: vk.Database) -> None:
    catalog = db.catalog()
    (chunk,) = chunks(catalog)
    draft = steps.Draft(OWNED, EpochLimits(), False, cut(3), catalog, plan=physical_plan(catalog), chunks=(chunk,))

    assert isinstance(next_of(draft)[0], steps.Begin)
    db.execute("CREATE INDEX i ON t (g)")
    (action,) = steps.step(replace(draft, catalog=db.catalog()), STATE)[1]
    assert action == steps.Ask(replace(draft, catalog=db.catalog(), plan=physical_plan(db.catalog())), "rows")


def chunks(catalog: Catalog, *, opens: bool = True) -> tuple[Chunk, ...]:
    view = catalog.view("v")
    return (Chunk(catalog.tables[0].id, (view.node.backfill,), {0: (b"", None)}, 5, 50, 5, opens),)


def test_a_fill_begins_with_its_rows_though_nothing_was_written(db: vk.Database) -> None:
    catalog = db.catalog()
    draft = steps.Draft(
        OWNED, EpochLimits(), False, cut(0), catalog, plan=physical_plan(catalog), chunks=chunks(catalog)
    )
    (begin,) = next_of(draft)

    assert isinstance(begin, steps.Begin)
    assert (begin.chunks, begin.stop, begin.repair) == (chunks(catalog), cut(0), 0)


def test_no_fill_begins_after_rows_have_moved(db: vk.Database) -> None:
    catalog = db.catalog()
    view = catalog.view("v").node.table
    draft = steps.Draft(OWNED, EpochLimits(), stop=cut(3), catalog=catalog)

    assert view in {node.table for node in plan_for(draft).nodes}
    assert view not in {node.table for node in plan_for(replace(draft, have_moved=True)).nodes}
    begun = replace(OWNED, filling={catalog.view("v").node.backfill: BackfillProgress({1: {0: b"x"}}, 1, 9)})
    assert view in {node.table for node in plan_for(replace(draft, have_moved=True, record=begun)).nodes}


def plan_for(draft: steps.Draft) -> object:
    (action,) = steps.step(draft, STATE)[1]
    return action.draft.plan


def test_a_fill_that_waits_for_staged_rows_alone_ends_once_they_are_there(db: vk.Database) -> None:
    catalog = db.catalog()
    backfill = catalog.view("v").node.backfill
    record = replace(OWNED, filling={backfill: BackfillProgress({1: {}}, 5, 5)})
    draft = steps.Draft(record, EpochLimits(), stop=cut(0), catalog=catalog)
    (asked,) = next_of(draft)

    assert asked.lacks == "late"
    assert next_of(replace(asked.draft, late=frozenset([backfill]))) == ()
    assert isinstance(next_of(replace(asked.draft, late=frozenset()))[0], steps.Begin)


def test_a_repair_is_due_once_its_twins_are_filled_and_takes_no_changes(db: vk.Database) -> None:
    catalog, _ = with_shadow_views(db.catalog(), ["v"], "repair", 0)
    (twin,) = catalog.replacements
    begin = begins_without_changes(filled(catalog), catalog)

    assert begin.repair == twin.node.backfill == due_repair(catalog, filled(catalog)).backfill
    assert begin.plan.repairs
    (unfilled,) = next_of(steps.Draft(filled(db.catalog()), EpochLimits(), stop=cut(3), catalog=catalog))
    assert unfilled.repair == 0 and unfilled.stop == cut(3)


@pytest.mark.parametrize("ending", ["retry", "drop"])
def test_what_was_asked_for_rows_set_aside_is_due_once_and_when_all_views_are_filled(
    db: vk.Database, ending: str
) -> None:
    catalog = db.catalog()
    (listed,) = [one.table for node in catalog.nodes for one in node.exceptions if one.kind == "aside"]
    asked = catalog.with_asides([AsideRequest(catalog.next_id, listed, ending)], catalog.next_id + 1)
    begin = begins_without_changes(filled(catalog), asked)

    assert begin.plan.aside == asked.asides[0] and begin.repair == asked.asides[0].id
    done = replace(filled(catalog), aside=asked.asides[0].id)
    for record in (done, OWNED):
        (other,) = next_of(steps.Draft(record, EpochLimits(), stop=cut(3), catalog=asked))
        assert other.plan.aside is None and other.repair == 0


def begins_without_changes(record: EpochRecord, catalog: Catalog) -> steps.Begin:
    """The epoch that begins at once where a cut has changes: it leaves them to the next one."""
    (begin,) = steps.step(steps.Draft(record, EpochLimits(), stop=cut(3), catalog=catalog), STATE)[1]
    assert isinstance(begin, steps.Begin)
    assert begin.stop == Cut(record.positions, record.stamp, 0) and begin.chunks == ()
    return begin
