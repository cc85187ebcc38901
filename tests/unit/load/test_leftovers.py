"""A load leaves nothing behind but rows."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

import viewkeeper as vk


def test_ctrl_c_right_after_the_temporary_directory_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, made, mkdir = tmp_path / "temporary", [], os.mkdir

    def mkdir_and_interrupt(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        made.append(path)
        raise KeyboardInterrupt

    db = vk.connect(f"embedded:{tmp_path / 'store'}?sync=off")
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
    temporary.mkdir()
    (tmp_path / "t.csv").write_text("k\n1\n")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(os, "mkdir", mkdir_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        db.load("t", tmp_path / "t.csv")

    assert len(made) == 1 and list(temporary.iterdir()) == []
