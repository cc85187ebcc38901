"""What stands where a backup or a restored store is built belongs to somebody, unless it is what a killed one left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import viewkeeper as vk
from viewkeeper.stores.kv.atomic_directory import fill_atomically

ROOT = Path(__file__).parents[3]


def folder(there: Path, mine: Path) -> None:
    there.mkdir()
    (there / "thesis.txt").write_text("years of work")


def link_to_folder(there: Path, mine: Path) -> None:
    folder(mine, mine)
    there.symlink_to(mine)


def link_to_empty_folder(there: Path, mine: Path) -> None:
    mine.mkdir()
    there.symlink_to(mine)


def link_to_nothing(there: Path, mine: Path) -> None:
    there.symlink_to(mine)


def file(there: Path, mine: Path) -> None:
    there.write_text("years of work")


def state(path: Path) -> list[tuple[str, bool, str | None]]:
    found = [path, *path.rglob("*")]
    return sorted((str(one), one.is_symlink(), one.read_text() if one.is_file() else None) for one in found)


@pytest.mark.parametrize("occupy", [folder, link_to_folder, link_to_empty_folder, link_to_nothing, file])
def test_what_is_not_ours_is_refused_and_left_alone(tmp_path: Path, occupy: Callable[[Path, Path], None]) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(url) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.backup(tmp_path / "whole")
    occupy(tmp_path / "x.unfinished", tmp_path / "mine")
    before = state(tmp_path / "x.unfinished"), state(tmp_path / "mine")

    with vk.connect(url) as db, pytest.raises(vk.InputError, match=r"x\.unfinished .*not ViewKeeper.*move it"):
        db.backup(tmp_path / "x")
    with pytest.raises(vk.InputError, match=r"x\.unfinished"):
        vk.restore(tmp_path / "whole", f"embedded:{tmp_path / 'x'}")
    assert (state(tmp_path / "x.unfinished"), state(tmp_path / "mine")) == before
    assert not (tmp_path / "x").exists()


def test_the_command_refuses_it_too(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    vk.connect(url).close()
    link_to_folder(tmp_path / "x.unfinished", tmp_path / "mine")
    command = [sys.executable, "-m", "viewkeeper", "backup", url, str(tmp_path / "x")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 2 and "x.unfinished" in done.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_what_a_killed_one_left_is_cleared_but_not_through_links(tmp_path: Path) -> None:
    folder(tmp_path / "mine", tmp_path)

    class Killed(BaseException):
        pass

    left = tmp_path / "x.unfinished"
    with pytest.raises(Killed), fill_atomically(tmp_path / "x") as unfinished:
        marker = {path.name: path.read_bytes() for path in unfinished.iterdir()}
        raise Killed
    left.mkdir()
    for name, text in marker.items():
        (left / name).write_bytes(text)
    (left / "half").mkdir()
    (left / "link").symlink_to(tmp_path / "mine")
    with fill_atomically(tmp_path / "x") as unfinished:
        (unfinished / "part").write_text("new")

    assert [path.name for path in (tmp_path / "x").iterdir()] == ["part"]
    assert (tmp_path / "mine" / "thesis.txt").exists() and not left.exists()
