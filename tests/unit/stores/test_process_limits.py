"""Limits of a process: too few addresses or files are told by their name, with a way out."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import viewkeeper as vk
from viewkeeper.engine import spark_session

FILES = (3, 4, 6, 9, 13, 20, 30, 49, 60)
TELL = """
import os, resource, sys
import viewkeeper as vk
import viewkeeper.client.pipeline, viewkeeper.client.select, viewkeeper.client.status
import viewkeeper.stores.local.backups, viewkeeper.stores.local.backups
url = sys.argv[1]
def fill(url):
    with vk.connect(url) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
        db.table("t").put({"k": 1, "v": 1})
        with db.pipeline() as pipeline:
            pipeline.run_available()
        if len(sys.argv) > 2:
            db.backup(sys.argv[2])
def tell(work):
    try:
        work()
        print("done")
    except vk.ViewKeeperError as error:
        print(type(error).__name__, error)
"""
FEW_FILES = f"""
def use():
    with vk.connect("embedded:" + url) as db:
        db.execute("SELECT * FROM w")
        db.table("t").put({{"k": 2, "v": 1}})
        with db.pipeline() as pipeline:
            pipeline.run_available()
        db.compact()
fill("embedded:" + url)
for most in (*{FILES}, 200):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, 200))
    tell(use)
"""
FEW_ADDRESSES = """
backup = sys.argv[2]
fill(url)
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
tell(lambda: vk.connect(url))
tell(lambda: vk.connect(url + "-new"))
tell(lambda: vk.restore(backup, url + "-again"))
tell(lambda: vk.connect(url + "?map_mb=16").table("t").get(1))
tell(lambda: vk.connect(url + "-new?map_mb=16").execute("CREATE TABLE t (k INT PRIMARY KEY)"))
tell(lambda: vk.restore(backup, url + "-again?map_mb=16").table("t").get(1))
"""


def told_under(script: str, *arguments: str) -> list[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", TELL + script, *arguments], capture_output=True, text=True, env=env, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit addresses")
def test_few_addresses_are_told_with_the_option_that_needs_fewer(tmp_path: Path) -> None:
    told = told_under(FEW_ADDRESSES, f"embedded:{tmp_path / 's'}", str(tmp_path / "backup"))
    for one in told[:3]:
        assert one.startswith("StoreError meta reserves 4,096 MiB of addresses, and the system refuses them; ")
        assert "ulimit -v" in one and "?map_mb=64" in one
    assert told[3:] == ["done"] * 3


def test_few_files_are_told_with_the_limit(tmp_path: Path) -> None:
    told = told_under(FEW_FILES, str(tmp_path / "s"))
    assert told.pop() == "done"
    for most, one in zip(FILES, told, strict=True):
        assert one.startswith("StoreError ") and f"may have {most} files open" in one and "ulimit -n" in one


def test_spark_is_not_started_where_it_may_not_open_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, 64))
    with pytest.raises(vk.StoreError, match="may have 64 open; ulimit -n 1024"):
        spark_session._require_files()


@pytest.mark.parametrize(("most", "is_enough"), [(399, False), (400, True), (resource.RLIM_INFINITY, True)])
def test_spark_is_started_where_it_may_open_its_files(
    monkeypatch: pytest.MonkeyPatch, most: int, is_enough: bool
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, most))
    with nullcontext() if is_enough else pytest.raises(vk.StoreError, match=f"may have {most} open"):
        spark_session._require_files()


def test_a_part_that_fills_its_map_names_the_option(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(f"{url}&map_mb=16") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
        with pytest.raises(vk.StoreFull, match="the map of node-0 is full; .*larger .map_mb"):
            for k in range(100):
                db.table("t").put({"k": k, "v": "x" * 900_000})
        assert "map_mb=16" in db.url
    with vk.connect(url) as db:
        db.table("t").put({"k": 100, "v": "x"})
        assert "map_mb" not in db.url


@pytest.mark.parametrize("size", ["0", "15", "1048577", "2.5", "-1", ""])
def test_a_size_of_maps_is_a_number(size: str, tmp_path: Path) -> None:
    with pytest.raises(vk.InputError, match="is not a size of maps; use 16 to 1,048,576"):
        vk.connect(f"embedded:{tmp_path / 's'}?map_mb={size}")
    assert not (tmp_path / "s").exists()
