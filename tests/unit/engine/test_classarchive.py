"""Which options a JVM gets for the archive of its classes; what they do is told by `tests/spark/test_class_archive.py`."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from viewkeeper.engine.spark_session import archive_options

WHOLE = 0xF00BABA8.to_bytes(4, "little") + b"classes"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that stands for a Java; the cache is a directory that is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "java"
    file.touch()
    return str(file)


def _parts(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "viewkeeper").glob("*.part"))


def test_the_first_jvm_writes_it_and_others_do_not_wait_for_that(java: str, tmp_path: Path) -> None:
    assert "-XX:ArchiveClassesAtExit=" in archive_options(java)
    (claim,) = _parts(tmp_path)
    assert claim.parent.stat().st_mode & 0o777 == 0o700
    assert archive_options(java) == ""

    long_ago = time.time() - 3600
    os.utime(claim, (long_ago, long_ago))  # whoever was to write it runs for long, or was killed
    assert f'-XX:ArchiveClassesAtExit="{claim}"' in archive_options(java)


def test_what_is_whole_is_used_and_what_is_cut_short_is_not(java: str, tmp_path: Path) -> None:
    archive_options(java)
    (part,) = _parts(tmp_path)
    part.write_bytes(bytes(len(WHOLE)))  # the beginning is written last
    assert "SharedArchiveFile" not in archive_options(java)

    part.write_bytes(WHOLE)
    archive = part.with_suffix(".jsa")
    assert f'-XX:SharedArchiveFile="{archive}"' in archive_options(java)
    assert (archive.read_bytes(), part.exists()) == (WHOLE, False)


def test_another_java_has_another_one_and_few_are_kept(java: str, tmp_path: Path) -> None:
    for number in range(5):
        other = shutil.copy(java, tmp_path / f"java{number}")
        assert "ArchiveClassesAtExit" in archive_options(str(other))
        (part,) = _parts(tmp_path)
        part.write_bytes(WHOLE)
        assert "SharedArchiveFile" in archive_options(str(other))

    assert len(list((tmp_path / "cache" / "viewkeeper").iterdir())) == 3


def test_without_a_place_for_it_spark_starts_as_it_would(java: str, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()  # no directory can be made below a file

    assert archive_options(java) == ""
