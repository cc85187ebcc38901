"""A disk that is really full, at every place that writes: told with what is full, nothing lost, and it goes on by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner
from tests.support.small_disk import SmallDisk, small_disk
from tests.unit.cli.conftest import run  # noqa: F401
from viewkeeper import failpoints
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession

QUERY = "SELECT g, COUNT(*) AS n, MAX(v) AS v FROM t GROUP BY g"
VALUE = "x" * 3_000
POINTS = (
    "begin.cut",
    "begin.planned",
    "begin.swapped",
    "run.fenced",
    "apply.computed",
    "run.receipts",
    "commit.synced",
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", megabytes=12) as mounted:
        yield mounted


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    failpoints.hook(None)


def once_at(point: str, act: Callable[[], None]) -> None:
    """Do something when a point is first passed."""
    waiting = [act]

    def passed(name: str) -> None:
        if name == point and waiting:
            waiting.pop()()

    failpoints.hook(passed)


def shop(folder: Path, rows: int = 60) -> vk.Database:
    db = vk.connect(f"embedded:{folder / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT, v STRING)")
    db.execute(
        f"CREATE MATERIALIZED VIEW v AS {QUERY}; CREATE MATERIALIZED VIEW copied AS SELECT k, v FROM t WHERE g > 0"
    )
    for number in range(rows):
        db.table("t").put(number, {"g": number % 5, "v": f"{number} {VALUE}"})
    return db


def run_available(db: vk.Database) -> None:
    Coordinator(db.store, HereRunner(db.store)).catch_up()


def require_right(db: vk.Database, rows: int) -> None:
    run_available(db)
    assert db.execute("SELECT COUNT(*) AS n FROM t").rows[0][0] == rows
    for view, query in (("v", QUERY), ("copied", "SELECT k, v FROM t WHERE g > 0")):
        found, wanted = (db.execute(text).rows for text in (f"SELECT * FROM {view}", query))
        assert sorted(map(tuple, found)) == sorted(map(tuple, wanted))


def test_a_write_that_finds_no_space_is_refused_as_a_whole(disk: SmallDisk) -> None:
    db, count = shop(disk.path), 60
    disk.fill()
    with pytest.raises(vk.StoreFull, match="no space left for .*/node-0; free space on the disk"):
        while True:
            db.table("t").put(count, {"g": 1, "v": VALUE})
            count += 1
    assert len(list(db.table("t").scan())) == count
    disk.free()
    db.table("t").put(count, {"g": 1, "v": VALUE})
    require_right(db, count + 1)


@pytest.mark.parametrize("point", POINTS)
def test_an_epoch_that_finds_no_space_at_any_step_is_taken_up_again(disk: SmallDisk, point: str) -> None:
    db = shop(disk.path)
    once_at(point, disk.fill)
    told = None
    try:
        run_available(db)
    except vk.StoreFull as error:
        told = error.fact
    assert told is None or re.match("no space left for .*/(partition-|meta)", told)
    assert told is not None or point in ("run.receipts", "commit.synced")  # there may be room within the files
    assert db.execute("SELECT COUNT(*) AS n FROM t").rows[0][0] == 60
    disk.free()
    require_right(db, 60)


def test_a_pipeline_says_in_its_status_what_is_full_and_goes_on(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LazySession, "begin", lambda self: None)  # without Spark: the thread does the work
    db = shop(disk.path, rows=5)
    with db.pipeline() as pipeline:
        pipeline.run_available()
        for number in range(400):
            db.table("t").put(number, {"g": number % 5, "v": f"{number} {VALUE}"})
        disk.fill()
        pipeline.start()
        while (waits := db.status().pipeline_waits) is None:
            pipeline.raise_failure()
        assert waits.startswith("no space left for ") and "free space on the disk" in waits
        disk.free()
        while db.status().lag_changes or db.status().pipeline_waits:
            pipeline.raise_failure()
    require_right(db, 400)


def test_a_pipeline_that_cannot_even_be_claimed_is_told_so(disk: SmallDisk) -> None:
    db = shop(disk.path)
    disk.fill()
    with pytest.raises(vk.StoreFull, match="no space left"):
        db.pipeline()
    disk.free()
    with db.pipeline() as pipeline:
        pipeline.run_available()
    require_right(db, 60)


@pytest.mark.parametrize("point", ["", "backup.copied", "backup.manifest"])
def test_a_backup_that_finds_no_space_is_no_backup(tmp_path: Path, disk: SmallDisk, point: str) -> None:
    db, target = shop(tmp_path), disk.path / "b"
    run_available(db)
    once_at(point, disk.fill) if point else disk.fill()
    if point == "backup.manifest":  # all is written by then
        db.backup(target)
    else:
        with pytest.raises(vk.StoreFull, match=r"no space left for .*/b|the disk has"):
            db.backup(target)
        assert [path.name for path in disk.path.iterdir()] == ["ballast"]
        disk.free()
        db.backup(target)
    with vk.restore(target, f"embedded:{tmp_path / 'r'}") as restored:
        require_right(restored, 60)


@pytest.mark.parametrize("point", ["", "restore.copied", "restore.written"])
def test_a_restore_that_finds_no_space_leaves_no_store(tmp_path: Path, disk: SmallDisk, point: str) -> None:
    with shop(tmp_path) as db:
        db.backup(tmp_path / "b")
    url = f"embedded:{disk.path / 'r'}"
    once_at(point, disk.fill) if point else disk.fill()
    if point != "restore.written":
        with pytest.raises(vk.StoreFull, match=r"no space left for .*/r|the disk has"):
            vk.restore(tmp_path / "b", url)
        assert [path.name for path in disk.path.iterdir()] == ["ballast"]
        disk.free()
    with vk.restore(tmp_path / "b", url) as restored:
        disk.free()
        require_right(restored, 60)


def test_a_load_that_finds_no_space_goes_on_by_the_same_command(tmp_path: Path, disk: SmallDisk, run) -> None:  # noqa: F811
    with shop(disk.path, rows=1) as db:
        url = db.url
    file = tmp_path / "t.csv"
    file.write_text("k,g,v\n" + "".join(f"{n},{n % 5},{n} {VALUE}\n" for n in range(1_500)))
    disk.fill()
    told = run("load", url, "t", str(file))
    assert told.exit_code == 4 and "hint: free space" in told.stderr
    assert re.search("no space left for .*/node-0", told.stderr)
    disk.free()
    told = run("load", url, "t", str(file))
    assert told.exit_code == 0, told.output
    with vk.connect(url) as db:
        assert db.execute("SELECT COUNT(*) AS n FROM t").rows[0][0] == 1_500


def test_a_compaction_that_finds_no_space_leaves_the_store_as_it_was(disk: SmallDisk) -> None:
    with shop(disk.path) as db:
        run_available(db)
        url = db.url
    disk.fill()
    with vk.connect(url) as db, pytest.raises(vk.StoreFull, match="no space left|the disk has"):
        db.compact()
    disk.free()
    with vk.connect(url) as db:
        require_right(db, 60)
        db.compact()
        require_right(db, 60)


def test_a_store_that_cannot_be_made_is_told_and_is_made_later(disk: SmallDisk) -> None:
    disk.fill()
    with pytest.raises(vk.StoreFull, match="no space left for .*/s"):
        shop(disk.path)
    with pytest.raises(vk.StoreError, match="there is no store"):
        vk.connect(f"embedded:{disk.path / 's'}", read_only=True)
    disk.free()
    require_right(shop(disk.path), 60)
