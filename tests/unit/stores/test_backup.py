"""A backup is whole or not there, and what is restored from it is a store of its own. Of busy stores: `tests/sim`."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

import viewkeeper as vk
from tests.support.killing import kill_at
from tests.support.running import keep_up
from viewkeeper.client.arguments import key_bytes
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.stores.kv import atomic_directory
from viewkeeper.stores.kv.lmdb_environment import Environment
from viewkeeper.stores.local import embedded_store as embedded

ROOT = Path(__file__).parents[3]


def small_store(path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{path}")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    db.table("t").put_many([{"k": i, "v": i % 2} for i in range(6)])
    return db


def hook(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Call `act` once, just after a backup opened its read transaction on the environment of that name."""
    snapshot, waiting = Environment.snapshot, [act]

    @contextmanager
    def opened(self: Environment) -> Iterator[object]:
        with snapshot(self) as transaction:
            if self.path.name == name and waiting:
                waiting.pop()()
            yield transaction

    monkeypatch.setattr(Environment, "snapshot", opened)


@pytest.mark.parametrize("name", ["meta", "node-0", "partition-0", "partition-7"])
def test_a_backup_that_an_epoch_overtakes_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever happens between the openings, record and views are of one time."""
    db = small_store(tmp_path / "s")
    keep_up(db)
    db.table("t").put(9, {"v": 5})

    def commit_and_drop() -> None:
        keep_up(db)
        db.execute("DROP MATERIALIZED VIEW w")
        collect_garbage(db.store)
        db.execute("CREATE MATERIALIZED VIEW u AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
        keep_up(db)

    hook(monkeypatch, name, commit_and_drop)
    made = db.backup(tmp_path / "b")
    assert made.epoch == 3
    with vk.restore(made.path, f"embedded:{tmp_path / 'r'}") as restored:
        keep_up(restored)
        assert list(restored.view("u").scan()) == [{"v": 0, "n": 3}, {"v": 1, "n": 3}, {"v": 5, "n": 1}]


def test_the_nodes_of_a_backup_are_of_one_instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """y is never in it without the x that was written before it, to another node (R17)."""
    db = vk.connect(f"embedded:{tmp_path / 's'}?nodes=2&sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    schema = db.table("t").schema
    by_node = {db.store.node_of(key_bytes("t", schema.key_columns, [k])): k for k in range(20)}
    written = threading.Event()

    def write_both() -> None:
        db.table("t").put(by_node[0], {})
        db.table("t").put(by_node[1], {})
        written.set()

    thread = threading.Thread(target=write_both)

    def race() -> None:
        thread.start()
        written.wait(0.3)  # a writer that is let in would be done by then

    hook(monkeypatch, "node-0", race)
    db.backup(tmp_path / "b")
    thread.join()
    with vk.restore(tmp_path / "b", f"embedded:{tmp_path / 'r'}") as restored:
        assert [row["k"] for row in restored.table("t").scan()] == []


def test_a_restored_store_is_a_new_incarnation_whose_epochs_go_on(tmp_path: Path) -> None:
    db = small_store(tmp_path / "s")
    keep_up(db)
    token = db.table("t").put(9, {"v": 1})
    keep_up(db)
    made = db.backup(tmp_path / "b")
    assert (made.epoch, made.inflight) == (2, None)
    with vk.restore(made.path, f"embedded:{tmp_path / 'r'}") as restored:
        assert restored.store.incarnation != db.store.incarnation
        assert restored.store.read_epoch_record().incarnation == restored.store.incarnation
        for old in (token, str(token)):
            with pytest.raises(vk.ForeignToken, match="before it was restored"):
                restored.wait_for(old)
        with pytest.raises(vk.ForeignToken):
            restored.view("w").get(1, read=token)
        session = restored.session()
        with pytest.raises(vk.ForeignToken):
            session.wrote(token)
        mine = restored.table("t").put(10, {"v": 1})
        keep_up(restored)
        restored.wait_for(mine)
        assert restored.status().epoch == 3
        assert restored.view("w").get(1) == {"v": 1, "n": 5}
    assert db.view("w").get(1) == {"v": 1, "n": 4}  # the old store goes its own way


def test_a_backup_of_a_running_pipeline_keeps_its_views_on_another_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("first")
    monkeypatch.setattr(embedded, "_BOOT_ID", boot)
    db = small_store(tmp_path / "s")
    keep_up(db)  # views are open: after a power loss they would be filled anew
    last = db.store.now()
    db.backup(tmp_path / "b")
    boot.write_text("second")
    with vk.restore(tmp_path / "b", f"embedded:{tmp_path / 'r'}") as restored:
        assert list(restored.view("w").scan()) == [{"v": 0, "n": 3}, {"v": 1, "n": 3}]
        assert restored.store.now() > last - 1_000_000_000
        restored.table("t").put(7, {"v": 0})
        keep_up(restored)
        assert restored.view("w").get(0) == {"v": 0, "n": 4}


def damage_nothing_but_size(backup: Path) -> None:
    os.truncate(backup / "node-0.mdb", (backup / "node-0.mdb").stat().st_size - 4096)


def damage_a_byte(backup: Path) -> None:
    data = bytearray((backup / "partition-3.mdb").read_bytes())
    data[9000 % len(data)] ^= 1
    (backup / "partition-3.mdb").write_bytes(data)


def damage_the_manifest(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def damage(backup: Path) -> None:
        facts = json.loads((backup / "backup.json").read_text())
        change(facts)
        (backup / "backup.json").write_text(json.dumps(facts))

    return damage


@pytest.mark.parametrize(
    ("damage", "kind", "fact"),
    [
        (damage_nothing_but_size, vk.DamagedBackup, "bytes, not"),
        (damage_a_byte, vk.DamagedBackup, "partition-3.mdb is not what was backed up"),
        (lambda backup: (backup / "meta.mdb").unlink(), vk.DamagedBackup, "lacks meta.mdb"),
        (lambda backup: (backup / "backup.json").unlink(), vk.DamagedBackup, "is not a backup"),
        (lambda backup: (backup / "backup.json").write_text("{"), vk.DamagedBackup, "cannot be read"),
        (damage_the_manifest(lambda facts: facts["files"].pop("node-0.mdb")), vk.DamagedBackup, "every part"),
        (damage_the_manifest(lambda facts: facts.update(format=99)), vk.NewerFormat, "newer ViewKeeper"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused_and_leaves_nothing(
    tmp_path: Path, damage: Callable[[Path], object], kind: type[Exception], fact: str
) -> None:
    with small_store(tmp_path / "s") as db:
        db.backup(tmp_path / "b")
    damage(tmp_path / "b")
    with pytest.raises(kind, match=fact):
        vk.restore(tmp_path / "b", f"embedded:{tmp_path / 'r'}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "s"]


def test_what_is_there_is_never_written_into(tmp_path: Path) -> None:
    db = small_store(tmp_path / "s")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    db.backup(tmp_path / "empty")
    for name in ("file", "empty", "s"):
        with pytest.raises(vk.InputError, match="is there already"):
            db.backup(tmp_path / name)
        with pytest.raises(vk.InputError, match="is there already"):
            vk.restore(tmp_path / "empty", f"embedded:{tmp_path / name}")
    with pytest.raises(vk.InputError, match="the store was made with 1 nodes, not 2"):
        vk.restore(tmp_path / "empty", f"embedded:{tmp_path / 'r'}?nodes=2")
    with pytest.raises(vk.CorruptStore, match="is a backup, not a store"):
        vk.connect(f"embedded:{tmp_path / 'empty'}")


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = small_store(tmp_path / "s")

    def full(done: int, expected: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(vk.StoreFull, match="no space left"):
        db.backup(tmp_path / "b", progress=full)
    monkeypatch.setattr(atomic_directory.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(vk.StoreFull, match="1,000 free"):
        db.backup(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("error", [TypeError("no such argument: txn"), lmdb.Error("mdb_env_copyfd: broken")])
def test_a_copy_that_lmdb_cannot_make_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    db = small_store(tmp_path / "s")

    class Broken:
        def __init__(self, env: object) -> None:
            self._env = env

        def __getattr__(self, name: str) -> object:
            return getattr(self._env, name)

        def copyfd(self, *arguments: object, **options: object) -> None:
            raise error

    environment = db.store.environments()["node-0"]
    monkeypatch.setattr(environment, "_env", Broken(environment._env))
    with pytest.raises(vk.StoreError, match=r"node-0.*(txn|broken)"):
        db.backup(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_an_interrupted_backup_leaves_nothing(tmp_path: Path) -> None:
    db = small_store(tmp_path / "s")
    db.table("t").put_many({"k": i, "v": i} for i in range(30_000))

    def interrupt(done: int, expected: int) -> None:
        if done > 200_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        db.backup(tmp_path / "b", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    told: list[tuple[int, int]] = []
    made = db.backup(tmp_path / "b", progress=lambda *facts: told.append(facts))
    assert told == sorted(told) and told[-1][0] == made.bytes


@pytest.mark.parametrize("point", ["backup.copied@4", "backup.manifest@1", "newdirectory.filled@1"])
def test_a_killed_backup_is_no_backup_and_the_next_one_succeeds(tmp_path: Path, point: str) -> None:
    with small_store(tmp_path / "s"):
        pass
    url, target = f"embedded:{tmp_path / 's'}", tmp_path / "b"
    kill_at(point, tmp_path / "points", "backup", url, str(target))
    assert not target.exists()
    with vk.connect(url) as db:
        db.backup(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "points", "s"]
    with vk.restore(target, f"embedded:{tmp_path / 'r'}") as restored:
        assert len(list(restored.table("t").scan())) == 6


def test_a_backup_that_is_killed_after_its_name_was_given_is_whole(tmp_path: Path) -> None:
    with small_store(tmp_path / "s"):
        pass
    kill_at("newdirectory.renamed@1", tmp_path / "points", "backup", f"embedded:{tmp_path / 's'}", str(tmp_path / "b"))
    with vk.restore(tmp_path / "b", f"embedded:{tmp_path / 'r'}") as restored:
        assert len(list(restored.table("t").scan())) == 6


@pytest.mark.parametrize(
    "point", ["restore.copied@1", "restore.copied@5", "restore.written@1", "newdirectory.filled@1"]
)
def test_a_killed_restore_is_no_store_and_the_next_one_succeeds(tmp_path: Path, point: str) -> None:
    with small_store(tmp_path / "s") as db:
        db.backup(tmp_path / "b")
    url = f"embedded:{tmp_path / 'r'}"
    kill_at(point, tmp_path / "points", "restore", str(tmp_path / "b"), url)
    assert not (tmp_path / "r").exists()
    with pytest.raises(vk.StoreError, match="there is no store"):
        vk.connect(url, read_only=True)
    with vk.restore(tmp_path / "b", url) as restored:
        require_small_store(restored)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "points", "r", "s"]


def test_a_restore_that_is_killed_after_its_name_was_given_is_a_whole_store(tmp_path: Path) -> None:
    with small_store(tmp_path / "s") as db:
        db.backup(tmp_path / "b")
    url = f"embedded:{tmp_path / 'r'}"
    kill_at("newdirectory.renamed@1", tmp_path / "points", "restore", str(tmp_path / "b"), url)
    for _ in range(2):
        with vk.connect(url) as restored:
            require_small_store(restored)
    with pytest.raises(vk.InputError, match="is there already"):
        vk.restore(tmp_path / "b", url)


def require_small_store(db: vk.Database) -> None:
    keep_up(db)
    assert len(list(db.table("t").scan())) == 6
    assert list(db.view("w").scan()) == [{"v": 0, "n": 3}, {"v": 1, "n": 3}]
