"""After a power loss views are filled anew from the base; an epoch record that lost its views is noticed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.handles import close_environments
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Cut
from viewkeeper.settings import EpochLimits
from viewkeeper.stores.local import embedded_store as embedded

CONTEXT = multiprocessing.get_context("spawn")
RECORDS = [{"v": 0, "n": 4}, {"v": 1, "n": 3}, {"v": 2, "n": 3}]


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that tells one boot of the machine from another."""
    file = tmp_path / "boot_id"
    file.write_text("first")
    monkeypatch.setattr(embedded, "_BOOT_ID", file)
    return file


def make_store(path: Path) -> Coordinator:
    database = vk.connect(f"embedded:{path}")
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    database.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    database.table("t").put_many([{"k": i, "v": i % 3} for i in range(10)])
    coordinator = Coordinator(database.store, HereRunner(database.store))
    coordinator.catch_up()
    return coordinator


def test_views_that_a_power_loss_may_have_torn_are_not_read_and_filled_anew(tmp_path: Path, boot: Path) -> None:
    make_store(tmp_path / "store")
    boot.write_text("second")
    with vk.connect(f"embedded:{tmp_path / 'store'}") as after:
        with pytest.raises(vk.NotReady):
            after.view("w").get(0)
        Coordinator(after.store, HereRunner(after.store)).catch_up()
        assert list(after.view("w").scan()) == RECORDS
        assert after.status().epoch == 2


def test_with_a_plain_log_everything_is_rebuilt_and_readable_once_it_is_whole(tmp_path: Path, boot: Path) -> None:
    """DELTA is gone with the views, and the log was truncated: it is told of every row once more."""
    with vk.connect(f"embedded:{tmp_path / 'store'}?before_images=off&nodes=2") as before:
        before.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE TABLE u (k INT PRIMARY KEY, v INT)")
        before.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
        before.table("t").put_many([{"k": i, "v": i % 3} for i in range(10)])
        before.table("u").put(1, {"v": 1})
        Coordinator(before.store, HereRunner(before.store)).catch_up()
        before.store.truncate_log(before.store.read_epoch_record().positions, older_than_seconds=0, entries_max=5_000)
        before.table("t").put(0, {"v": 1})  # waits in the log
    boot.write_text("second")
    with vk.connect(f"embedded:{tmp_path / 'store'}") as after:
        coordinator = Coordinator(after.store, HereRunner(after.store), limits=EpochLimits(changes=4))
        readable = []
        while coordinator.step():
            readable.append(after.status().views[0].ready is not None)
            if readable[-1]:
                assert list(after.view("w").scan()) == [{"v": 0, "n": 3}, {"v": 1, "n": 4}, {"v": 2, "n": 3}]
        after.table("t").delete(9)
        coordinator.catch_up()

        assert readable[0] is False and readable[-1] is True
        assert list(after.view("w").scan()) == [{"v": 0, "n": 2}, {"v": 1, "n": 4}, {"v": 2, "n": 3}]


def test_views_that_were_closed_before_the_machine_went_down_stay(tmp_path: Path, boot: Path) -> None:
    make_store(tmp_path / "store").close()
    boot.write_text("second")
    with vk.connect(f"embedded:{tmp_path / 'store'}") as after:
        assert list(after.view("w").scan()) == RECORDS
        assert after.status().epoch == 1


def take_over(path: Path, boot: Path, told: object) -> None:
    """Take the store over, commit an epoch, and go on for ever."""
    embedded._BOOT_ID = boot
    database = vk.connect(f"embedded:{path}")
    coordinator = Coordinator(database.store, HereRunner(database.store))
    database.table("t").put(99, {"v": 0})
    coordinator.catch_up()
    told.put("views are written")
    signal.pause()


def test_a_pipeline_that_was_taken_over_does_not_close_the_views_of_its_successor(tmp_path: Path, boot: Path) -> None:
    old, told = make_store(tmp_path / "store"), CONTEXT.SimpleQueue()
    successor = CONTEXT.Process(target=take_over, args=(tmp_path / "store", boot, told))
    successor.start()
    told.get()
    old.close()
    os.kill(successor.pid, signal.SIGKILL)
    successor.join()
    close_environments()
    boot.write_text("second")

    with vk.connect(f"embedded:{tmp_path / 'store'}") as after, pytest.raises(vk.NotReady):
        after.view("w").get(0)


def test_a_crash_of_the_process_alone_keeps_the_views(tmp_path: Path, boot: Path) -> None:
    make_store(tmp_path / "store")
    with vk.connect(f"embedded:{tmp_path / 'store'}") as after:
        assert list(after.view("w").scan()) == RECORDS


def test_stamps_grow_over_a_reboot(tmp_path: Path, boot: Path) -> None:
    make_store(tmp_path / "store").close()
    with vk.connect(f"embedded:{tmp_path / 'store'}") as before:
        last = before.store.now()
    boot.write_text("second")
    with vk.connect(f"embedded:{tmp_path / 'store'}") as after:
        after.table("t").put(99, {"v": 1})
        assert after.store.describe(after.store.read_epoch_record().positions).oldest > last


def test_an_epoch_record_older_than_the_views_is_noticed(tmp_path: Path) -> None:
    coordinator = make_store(tmp_path / "store")
    with vk.connect(f"embedded:{tmp_path / 'store'}") as database:
        database.store.partition(0).admit(
            Inflight(7, {}, Cut({}, 0, 0), "", 0, (), ())
        )  # what views restored from another moment look like
        with pytest.raises(vk.EpochRecordLost, match="later epoch than 1"):
            Coordinator(database.store, HereRunner(database.store))
    assert coordinator is not None


def test_views_of_which_a_part_is_older_are_noticed(tmp_path: Path) -> None:
    file = tmp_path / "store" / "partition-3" / "data.mdb"
    vk.connect(f"embedded:{tmp_path / 'store'}").close()
    older = file.read_bytes()
    make_store(tmp_path / "store").close()
    close_environments()
    file.write_bytes(older)
    with vk.connect(f"embedded:{tmp_path / 'store'}") as database, pytest.raises(vk.CorruptStore, match="epoch 1"):
        Coordinator(database.store, HereRunner(database.store))
