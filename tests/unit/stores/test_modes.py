"""Only its user may read a store, its backups, and what is written beside them, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.load import files as load_files


@pytest.fixture(params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def loose(folder: Path) -> list[str]:
    """What others than its user may read, write or enter."""
    return [str(path) for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def fill(db: vk.Database) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS t (k INT PRIMARY KEY, v STRING)")
    db.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    db.table("t").put_many([{"k": k, "v": "a"} for k in range(50)])
    keep_up(db)


def test_a_store_its_backup_and_what_is_made_of_it_are_private(tmp_path: Path, umask: int) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&nodes=2") as db:
        fill(db)
        assert loose(tmp_path / "s") == []
        db.backup(tmp_path / "b")
        db.compact()
        assert loose(tmp_path / "s") == loose(tmp_path / "b") == []
    with vk.restore(tmp_path / "b", f"embedded:{tmp_path / 'r'}") as restored:
        fill(restored)
    assert loose(tmp_path / "r") == []


def test_in_a_directory_of_the_users_all_contents_are_private(tmp_path: Path, umask: int) -> None:
    """The directory itself keeps the mode that the user gave it."""
    (tmp_path / "s").mkdir(mode=0o755)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        fill(db)
    assert set(loose(tmp_path / "s")) <= {str(tmp_path / "s")}


def test_copies_of_files_to_load_are_private(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.setattr(load_files.tempfile, "gettempdir", lambda: str(tmp_path / "in"))
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + b'{"k": 1}\n')  # it is copied without its first bytes
    seen: list[Path] = []
    confine = load_files.confine

    def confine_and_look(*arguments: object, **options: object) -> None:
        seen.extend((tmp_path / "in").iterdir())
        require_private(seen)
        confine(*arguments, **options)

    monkeypatch.setattr(load_files, "confine", confine_and_look)
    db = vk.connect("memory:")
    assert db.load("t", tmp_path / "rows.jsonl", create=True, key="k").rows == 1
    assert len(seen) == 1 and not list((tmp_path / "in").iterdir())


def require_private(folders: list[Path]) -> None:
    """A folder that others may not enter keeps private whatever is in it."""
    assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in folders)
