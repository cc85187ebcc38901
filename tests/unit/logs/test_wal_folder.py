"""The folder that a URL's rootdir names: one that cannot be opened, or is another HBase's, is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewkeeper.errors import InputError, StoreError
from viewkeeper.stores.hbase.wal.wal_files import WalFolder

CLUSTER = "7eeb2f78-e5b2-4093-acb2-a7d09bba93c9"


@pytest.mark.parametrize("content", [b"PBUF\n$" + CLUSTER.encode(), CLUSTER.encode()])
def test_the_folder_of_an_hbase_is_known_by_its_id(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "hbase.id").write_bytes(content)
    folder = WalFolder.at(str(tmp_path))

    folder.require_cluster(CLUSTER)
    with pytest.raises(InputError, match="the folder of another HBase"):
        folder.require_cluster(CLUSTER.replace("7", "8"))


def test_a_folder_without_an_id_is_refused_though_it_has_logs(tmp_path: Path) -> None:
    for name in ("WALs", "oldWALs"):
        (tmp_path / name).mkdir()

    for where in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="has no file hbase.id; it must be the value of hbase.rootdir"):
            WalFolder.at(f"file://{where}").require_cluster(CLUSTER)


def test_an_id_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "hbase.id").mkdir()

    with pytest.raises(StoreError, match=r"hbase.id cannot be read"):
        WalFolder.at(str(tmp_path)).require_cluster(CLUSTER)


@pytest.mark.parametrize("url", ["s3x://foo", "rel/ative", "", "file://host/x"])
def test_what_is_no_url_of_a_folder_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="cannot be opened: .*; it must be the value of hbase.rootdir"):
        WalFolder.at(url)


def test_hdfs_without_its_library_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, str(tmp_path))

    for _ in range(2):  # the second time Arrow says only that the first has failed
        with pytest.raises(StoreError, match="cannot be opened: .*libhdfs.so.*CLASSPATH"):
            WalFolder.at("hdfs://127.0.0.1:1/hbase")
