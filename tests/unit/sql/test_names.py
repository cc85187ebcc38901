"""Names are plain words of ASCII, and no name reaches the file system."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up

HOSTILE = [
    "../x",
    "..",
    ".",
    "a/b",
    "/etc/passwd",
    "%2e%2e",
    "a\x00b",
    "т",  # Cyrillic
    "ｔ",  # full width
    "t\u0301",
    "t\u200b",
    "\u202et",
    "t ",
    " t",
    "",
    "a.b",
    "a-b",
    "1a",
    'a"b',
    "a'b",
    "a;b",
    "x" * 65,
    "x" * 300,
    "a\nb",
]
TEXTS = [
    "CREATE TABLE `{}` (k INT PRIMARY KEY)",
    "CREATE TABLE x (`{}` INT PRIMARY KEY)",
    "ALTER TABLE t ADD COLUMN `{}` INT",
    "ALTER TABLE t RENAME TO `{}`",
    "CREATE MATERIALIZED VIEW `{}` AS SELECT k, v FROM t",
    "CREATE MATERIALIZED VIEW x AS SELECT k, v AS `{}` FROM t",
    "CREATE INDEX `{}` ON t (v)",
    "DROP TABLE `{}`",
    "DESCRIBE `{}`",
]


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
    return db


@pytest.mark.parametrize("text", TEXTS)
def test_only_plain_names_are_taken(db: vk.Database, tmp_path: Path, text: str) -> None:
    before = db.catalog()
    files = sorted(tmp_path.rglob("*"))
    for name in HOSTILE:
        with pytest.raises(vk.InputError):
            db.execute(text.format(name))
    assert db.catalog() == before
    assert sorted(tmp_path.rglob("*")) == files


def test_no_name_reaches_the_file_system(db: vk.Database, tmp_path: Path) -> None:
    db.execute("CREATE TABLE `select` (`from` INT PRIMARY KEY, `table` STRING); CREATE TABLE CON (k INT PRIMARY KEY)")
    db.execute("CREATE MATERIALIZED VIEW `where` AS SELECT `table`, `from` FROM `select`")
    db.table("select").put(1, {"table": "x"})
    keep_up(db)
    assert list(db.view("where").scan()) == [{"table": "x", "from": 1}]
    known = ("meta", "node-0", *(f"partition-{n}" for n in range(8)), "store.json", "pipeline.lock")
    assert {path.name for path in (tmp_path / "s").iterdir()} <= set(known)
    assert {path.name for path in (tmp_path / "s").glob("*/*")} <= {"data.mdb", "lock.mdb", "writer.lock"}


@pytest.mark.parametrize("place", ["s\x00t", "x" * 300])
def test_a_path_that_no_file_system_takes_is_refused_with_an_error_of_ours(tmp_path: Path, place: str) -> None:
    with pytest.raises(vk.ViewKeeperError):
        vk.connect(f"embedded:{tmp_path / place}")
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db, pytest.raises(vk.ViewKeeperError):
        db.backup(tmp_path / place)


def test_a_backup_is_not_written_through_a_link_that_somebody_put_in_its_way(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "b.unfinished").symlink_to(tmp_path / "elsewhere")
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db, pytest.raises(vk.InputError):
        db.backup(tmp_path / "b")
    assert list((tmp_path / "elsewhere").iterdir()) == []
