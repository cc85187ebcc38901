"""What ViewKeeper keeps of its user, and what a JVM runs of it, is in folders that nobody else may write or read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from viewkeeper.cli.shell import _append_history
from viewkeeper.engine.spark_session import _private_folder, archive_options


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_history_of_the_prompt_is_private(tmp_path: Path) -> None:
    _append_history(tmp_path / "viewkeeper" / "history", "SELECT 1")
    assert (mode(tmp_path / "viewkeeper"), mode(tmp_path / "viewkeeper" / "history")) == (0o700, 0o600)


def test_the_folder_in_which_spark_spills_is_private() -> None:
    assert mode(Path(_private_folder())) == 0o700


def test_an_archive_of_classes_is_used_only_where_nobody_else_can_have_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = tmp_path / "java"
    java.touch()
    assert "ArchiveClassesAtExit" in archive_options(str(java))
    (claim,) = (tmp_path / "viewkeeper").iterdir()
    assert (mode(claim.parent), mode(claim)) == (0o700, 0o600)
    claim.rename(claim.with_suffix(".jsa"))
    assert "SharedArchiveFile" in archive_options(str(java))

    claim.parent.chmod(0o777)
    assert archive_options(str(java)) == ""
