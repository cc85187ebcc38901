"""What is planted where a store keeps JSON, rows or versions is damage: it is told, and never run."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from pathlib import Path

import lmdb
import pytest

import viewkeeper as vk
from tests.support.planting import chain_of, change_record, view_keys
from tests.support.running import keep_up
from viewkeeper.errors import InvariantBroken

REFUSED = (vk.StoreError, InvariantBroken)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return Path.touch, (self.mark,)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
        db.table("t").put(1, {"v": "a"})
        keep_up(db)
    return tmp_path / "s"


def plant(path: Path, part: str, database: str, prefix: bytes, value: bytes) -> int:
    """Put the value under every key that begins so; returns how many these are."""
    environment = lmdb.open(str(path / part), map_size=1 << 30, max_dbs=8)
    with environment.begin(db=environment.open_db(database.encode()), write=True) as transaction:
        keys = [bytes(key) for key, _ in transaction.cursor() if bytes(key).startswith(prefix)]
        for key in keys:
            transaction.put(key, value)
    environment.close()
    return len(keys)


def use(path: Path) -> None:
    with vk.connect(f"embedded:{path}?sync=off") as db:
        list(db.table("t").scan())
        list(db.view("w").scan())
        db.table("t").put(2, {"v": "b"})
        keep_up(db)
        list(db.view("w").scan())


PLACES = [
    ("meta", "meta", b"catalog"),
    ("meta", "meta", b"epoch"),
    ("meta", "meta", b"horizon"),
    ("meta", "meta", b"clock"),
    ("meta", "meta", b"views"),
    ("node-0", "rows", b""),
]
PLANTED = {"list": b"[]", "null": b"null", "object": b'{"version": {}}', "text": b"\xff\x00not JSON"}


@pytest.mark.parametrize(("part", "database", "key"), PLACES)
def test_a_pickle_in_the_store_is_damage_and_is_not_run(path: Path, part: str, database: str, key: bytes) -> None:
    mark = path.parent / "it ran"
    assert plant(path, part, database, key, pickle.dumps(Bomb(mark)))
    with pytest.raises(REFUSED):
        use(path)
    assert not mark.exists()


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("key", [b"catalog", b"epoch", b"horizon"])
def test_json_of_another_shape_is_damage_too(path: Path, key: bytes, planted: str) -> None:
    plant(path, "meta", "meta", key, PLANTED[planted])
    with pytest.raises(REFUSED):
        use(path)


def test_a_store_with_a_damaged_epoch_record_is_not_opened(path: Path) -> None:
    """Who restores it from a backup loses what was written since the damage."""
    plant(path, "meta", "meta", b"epoch", PLANTED["text"])
    with pytest.raises(vk.CorruptStore, match="restore the store from a backup"):
        vk.connect(f"embedded:{path}")


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_an_identity_that_is_none_is_damage(path: Path, planted: bytes) -> None:
    environment = lmdb.open(str(path / "partition-0"), map_size=1 << 30, max_dbs=8)
    with environment.begin(write=True) as transaction:
        transaction.put(b"identity", planted)
    environment.close()
    with pytest.raises(vk.CorruptStore):
        use(path)


def test_a_pickle_in_a_view_is_not_run(path: Path) -> None:
    """It may not be noticed, as records have no checksum; `check` finds the record wrong or missing.

    docs/decisions/0018-no-checksum-in-rows.md says why they have none.
    """
    mark = path.parent / "it ran"
    with vk.connect(f"embedded:{path}?sync=off") as db:
        (key,) = view_keys(db, "w")
        change_record(db, "w", key, pickle.dumps(Bomb(mark)))
        with suppress(*REFUSED):
            list(db.view("w").scan())
    assert not mark.exists()


@pytest.mark.parametrize("name", ["store.json", "backup.json"])
def test_a_pickle_in_a_description_is_damage_and_is_not_run(path: Path, name: str) -> None:
    mark, place = path.parent / "it ran", path
    if name == "backup.json":
        place = path.parent / "b"
        with vk.connect(f"embedded:{path}?sync=off") as db:
            db.backup(place)
    assert json.loads((place / name).read_text())
    (place / name).write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(vk.StoreError):
        use(path) if name == "store.json" else vk.restore(place, f"embedded:{path.parent / 'r'}")
    assert not mark.exists()


def test_a_text_that_is_no_text_is_damage_however_it_is_read(path: Path) -> None:
    with vk.connect(f"embedded:{path}?sync=off") as db:
        db.execute("CREATE MATERIALIZED VIEW texts AS SELECT k, v FROM t")
        db.table("t").put(1, {"v": "abcdef"})
        keep_up(db)
        change_record(db, "texts", (1,), chain_of(db, "texts", (1,)).replace(b"abcdef", b"ab\xe1def"))
        view = db.view("texts")
        reads = (
            lambda: view.get(1),
            lambda: list(view.scan()),
            view.to_arrow,
            view.to_pandas,
            lambda: list(view.batches()),
            lambda: db.execute("SELECT UPPER(v) FROM texts").rows,
        )
        for read in reads:
            with pytest.raises(vk.CorruptStore, match="no UTF-8"):
                read()
