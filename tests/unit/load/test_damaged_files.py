"""Loading damaged files: an error that names the file, and nothing is written."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import viewkeeper as vk

if TYPE_CHECKING:
    from viewkeeper.client.database import Database


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database = vk.connect(f"embedded:{tmp_path / 'store'}?sync=off&nodes=2")
    database.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, n INT)")
    return database


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz", "t.csv.zip"])
@pytest.mark.parametrize("damage", ["cut", "changed", "checksum"])
def test_a_damaged_archive_is_told_and_nothing_is_written(db: Database, tmp_path: Path, name: str, damage: str) -> None:
    rows = [f'{{"k": {k}, "n": {k * k}}}' if "json" in name else f"{k},{k * k}" for k in range(5_000)]
    content = "\n".join(rows if "json" in name else ["k,n", *rows])
    path = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", content)
    else:
        path.write_bytes(gzip.compress(content.encode()))
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "changed":
        data[len(data) // 2 : len(data) // 2 + 2] = b"\xff\xff"
    else:
        at = data.index(b"PK\1\2") + 16 if name.endswith(".zip") else len(data) - 8
        data[at] ^= 1
    path.write_bytes(data)

    with pytest.raises(vk.InputError, match=r"compressed by gzip, or damaged|cannot be unzipped"):
        db.load("t", path)
    assert list(db.table("t").scan()) == []


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_a_damaged_parquet_file_is_told_and_nothing_is_written(db: Database, tmp_path: Path, place: float) -> None:
    path, count = tmp_path / "t.parquet", 40_000
    pq.write_table(
        pa.table({"k": range(count), "n": [k * k % 9_973 for k in range(count)]}), path, row_group_size=9_000
    )
    data = bytearray(path.read_bytes())
    start = int(len(data) * place)
    data[start : start + 64] = b"\xa5" * 64
    path.write_bytes(data)

    with pytest.raises(vk.InputError, match="cannot be read as parquet"):
        db.load("t", path)
    assert list(db.table("t").scan()) == []
