"""A store that cannot be written is read without locks, as long as nobody writes it elsewhere; the rest is told so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up

ROOT = Path(__file__).parents[3]
MOUNT = """
mount --bind "$0" "$1" && mount -o remount,ro,bind "$1" && exec "${@:2}"
"""
READS = """
import json, sys
import viewkeeper as vk
url = "embedded:" + sys.argv[1]
told = []
try:
    vk.connect(url)
except vk.StoreError as error:
    told.append(str(error))
with vk.connect(url, read_only=True) as db, vk.connect(url, read_only=True) as second:
    told += [list(db.view("w").scan()), second.table("t").get(3), db.status().epoch]
    told.append(db.execute("SELECT SUM(k) AS s FROM t").rows)
    try:
        db.table("t").put(1, {})
    except vk.InputError as error:
        told.append(error.fact)
    db.backup(sys.argv[2])
print(json.dumps(told))
"""


def has_namespaces() -> bool:
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not has_namespaces(), reason="a read-only mount needs unshare -rm")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with vk.connect(f"embedded:{tmp_path / 's'}?nodes=2&sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
        db.table("t").put_many([{"k": i, "v": i % 2} for i in range(6)])
        keep_up(db)
    (tmp_path / "mount").mkdir()
    return tmp_path / "s"


def on_read_only_mount(store: Path, *command: str) -> subprocess.CompletedProcess:
    mount = store.parent / "mount"
    whole = ["unshare", "-rm", "bash", "-c", MOUNT, str(store), str(mount), *command]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False)


def test_it_is_read_by_any_number_and_nothing_in_it_changes(store: Path) -> None:
    for lock in store.glob("*/lock.mdb"):
        lock.unlink()
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    done = on_read_only_mount(
        store, sys.executable, "-c", READS, str(store.parent / "mount"), str(store.parent / "backup")
    )

    assert done.returncode == 0, done.stderr
    refused, records, row, epoch, total, put = json.loads(done.stdout)
    assert "cannot be written" in refused and "read_only=True" in refused
    assert records == [{"v": 0, "n": 3}, {"v": 1, "n": 3}]
    assert (row, epoch, total) == ({"k": 3, "v": 1}, 1, [[15]])
    assert "reading only" in put
    assert {file: file.read_bytes() for file in store.rglob("*") if file.is_file()} == before
    with vk.restore(store.parent / "backup", f"embedded:{store.parent / 'r'}") as restored:
        assert list(restored.view("w").scan()) == records


def test_commands_that_read_do_and_those_that_write_name_the_reason(store: Path) -> None:
    mount = f"embedded:{store.parent / 'mount'}"
    read = on_read_only_mount(store, sys.executable, "-m", "viewkeeper", "get", mount, "w", "1", "--json")
    write = on_read_only_mount(store, sys.executable, "-m", "viewkeeper", "put", mount, "t", "9", "v=1")

    assert (read.returncode, read.stdout.strip()) == (0, '{"v": 1, "n": 3}')
    assert write.returncode == 4 and "cannot be written" in write.stderr and "backup can read it" in write.stderr


def test_it_is_not_read_beside_one_who_can_write(store: Path) -> None:
    """There would be no lock between them."""
    mount = f"embedded:{store.parent / 'mount'}"
    with vk.connect(f"embedded:{store}") as db:
        done = on_read_only_mount(store, sys.executable, "-m", "viewkeeper", "get", mount, "w", "1")
        assert done.returncode == 4 and "is open in process" in done.stderr
        db.table("t").put(9, {"v": 1})
