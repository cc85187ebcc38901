"""More or fewer view managers of a running pipeline, asked for in its process and in another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from viewkeeper.client.pipeline import Pipeline
from viewkeeper.events import Event, Scaled

TABLES = """
CREATE TABLE t (k INT PRIMARY KEY, v INT);
CREATE MATERIALIZED VIEW sums AS SELECT v, COUNT(*) AS n FROM t GROUP BY v
"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as database:
        database.execute(TABLES)
        yield database


def pipeline_of(db: vk.Database, managers: int | tuple[int, int], told: list[Event] | None = None) -> Pipeline:
    """Epochs as small as these run on the driver, without Java."""
    return Pipeline(
        db,
        view_managers=managers,
        spark=None,
        take_over=False,
        changes_per_epoch=None,
        events=None if told is None else told.append,
    )


def put(db: vk.Database, key: int) -> None:
    db.table("t").put(key, {"v": key % 3})


def test_a_pipeline_has_as_many_managers_as_it_is_told_from_its_next_epoch_on(db: vk.Database) -> None:
    told: list[Event] = []
    with pipeline_of(db, 2, told) as pipeline:
        put(db, 1)
        pipeline.run_available()
        pipeline.scale(view_managers=11)
        assert pipeline.view_managers == 2
        put(db, 2)
        pipeline.run_available()
        assert pipeline.view_managers == 11
        assert [event for event in told if isinstance(event, Scaled)] == [Scaled(2, 11, "asked for 11")]


def test_a_number_within_new_bounds_stays(db: vk.Database) -> None:
    with pipeline_of(db, (3, 4)) as pipeline:
        assert pipeline.view_managers == 3
        pipeline.scale(view_managers=(1, 8))
        put(db, 1)
        pipeline.run_available()
        assert pipeline.view_managers == 3


def test_another_connection_can_ask_the_pipeline_that_runs(db: vk.Database) -> None:
    with pipeline_of(db, 2) as pipeline, vk.connect(db.url) as other:
        other.scale(view_managers=(1, 3))
        other.scale(view_managers=5)
        put(db, 1)
        pipeline.run_available()
        assert pipeline.view_managers == 5


def test_a_pipeline_that_is_started_later_has_its_own_number(db: vk.Database) -> None:
    with pipeline_of(db, 2):
        db.scale(view_managers=7)
    with pipeline_of(db, 2) as pipeline:
        put(db, 1)
        pipeline.run_available()
        assert pipeline.view_managers == 2


def test_nobody_can_be_asked_where_no_pipeline_runs(db: vk.Database) -> None:
    with pytest.raises(vk.InputError, match="no pipeline of this store is running"):
        db.scale(view_managers=3)


def test_a_pipeline_that_was_taken_over_scales_nobody(db: vk.Database) -> None:
    with pipeline_of(db, 2) as first, vk.connect(db.url) as other:
        with Pipeline(other, view_managers=2, spark=None, take_over=True, changes_per_epoch=None) as second:
            with pytest.raises(vk.Fenced):
                first.scale(view_managers=3)
            put(db, 1)
            second.run_available()
            assert second.view_managers == 2
