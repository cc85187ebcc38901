"""The memory store: names and who shares them, what closing does, options, and a pipeline that needs no Spark."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine import lazy_session
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.settings import EngineSettings
from viewkeeper.stores.local import memory_store
from viewkeeper.stores.local.embedded_store import EmbeddedStore
from viewkeeper.stores.local.memory_store import MemoryStore

ROOT = Path(__file__).parents[3]
DDL = (
    "CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n, SUM(v) AS s FROM t"
)
# What only a store in a directory has, and no client asks for.
OF_DIRECTORIES = {"boot", "environments"}
WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None  # whoever imports them fails
import viewkeeper as vk
with vk.connect("memory:") as db:
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE MATERIALIZED VIEW n AS SELECT SUM(v) AS s FROM t")
    with db.pipeline() as pipeline:
        pipeline.start()
        pipeline.wait_for(db.table("t").put(1, {"v": 5}))
        pipeline.stop()
        db.table("t").put(2, {"v": 6})
        assert [done.changes for done in pipeline.run_available()] == [1]
    print(db.view("n").get())
"""


@contextmanager
def connected(url: str = "memory:") -> Iterator[vk.Database]:
    with vk.connect(url) as db:
        db.execute(DDL)
        yield db


# names


def test_one_name_is_one_store_and_another_name_is_another() -> None:
    with connected("memory:shop") as first, vk.connect("memory:shop") as second, vk.connect("memory:other") as other:
        first.table("t").put(1, {"v": 5})
        keep_up(first)

        assert second.table("t").get(1) == {"k": 1, "v": 5}
        assert second.view("n").get() == {"n": 1, "s": 5}
        assert second.store.incarnation == first.store.incarnation != other.store.incarnation
        with pytest.raises(vk.UnknownName):
            other.table("t")


def test_memory_alone_is_a_new_store_each_time_which_others_reach_by_its_url() -> None:
    with connected() as first, connected() as second, vk.connect(first.url) as again:
        first.table("t").put(1, {"v": 5})

        assert first.url.startswith("memory:") and first.url != second.url
        assert (again.table("t").get(1), second.table("t").get(1)) == ({"k": 1, "v": 5}, None)


def test_a_store_is_there_until_the_last_one_closes_it() -> None:
    first = vk.connect("memory:shop")
    first.execute(DDL)
    token = first.table("t").put(1, {"v": 5})
    second = vk.connect("memory:shop")
    first.close()
    first.close()
    assert second.table("t").get(1) == {"k": 1, "v": 5}
    second.close()

    with vk.connect("memory:shop") as anew:
        with pytest.raises(vk.UnknownName):
            anew.table("t")
        with pytest.raises(vk.ForeignToken):
            anew.wait_for(token, timeout=0)


def test_the_name_goes_although_a_reader_still_holds_what_it_saw() -> None:
    with connected("memory:shop") as db:
        db.table("t").put_many([{"k": k, "v": k} for k in range(2_000)])
        scan = db.table("t").scan()
        assert next(scan) == {"k": 0, "v": 0}
    with vk.connect("memory:shop") as anew:
        assert anew.catalog().tables == ()
    assert len(list(scan)) == 1_999


def test_a_store_that_nobody_has_any_more_leaves_nothing_behind() -> None:
    gc.collect()
    before = set(memory_store._OPEN)
    db = vk.connect("memory:left")
    db.execute(DDL)
    keep_up(db)
    assert set(memory_store._OPEN) - before == {"left"}
    del db
    gc.collect()

    assert set(memory_store._OPEN) == before


# options and errors


@pytest.mark.parametrize(
    ("url", "fact"),
    [
        ("memory", "'memory' is not the URL of a store; write memory:NAME"),
        ("memory:s?sync=off", "the URL option sync is unknown; known are nodes, before_images"),
        ("memory:s?colour=red", "the URL option colour is unknown"),
        ("memory:s?nodes=0", "nodes=0 is not a number of nodes; use 1 to 64"),
        ("memory:s?nodes=two", "nodes=two is not a number of nodes"),
        ("memory:s?before_images=maybe", "use before_images=on or before_images=off"),
    ],
)
def test_a_wrong_url_is_refused_and_makes_nothing(url: str, fact: str) -> None:
    with pytest.raises(vk.InputError, match=fact.replace("?", r"\?")):
        vk.connect(url)
    assert "s" not in memory_store._OPEN


def test_what_was_fixed_when_the_store_was_made_cannot_be_asked_for_otherwise() -> None:
    with vk.connect("memory:s?nodes=2&before_images=off") as db, vk.connect("memory:s?nodes=2") as again:
        assert db.store.layout == again.store.layout
        assert (db.store.layout.nodes, db.store.capabilities.before_images) == (2, False)
        with pytest.raises(vk.InputError, match="the store was made with 2 nodes, not 3"):
            vk.connect("memory:s?nodes=3")
        with pytest.raises(vk.InputError, match="kept without before-images"):
            vk.connect("memory:s?before_images=on")


def test_reading_only_makes_no_store_and_reads_one_that_is_there() -> None:
    for url in ("memory:nothing", "memory:"):
        with pytest.raises(vk.StoreError, match="connect without read_only to make one"):
            vk.connect(url, read_only=True)
    with connected("memory:s") as db, vk.connect("memory:s", read_only=True) as reader:
        db.table("t").put(1, {"v": 5})
        assert reader.table("t").get(1) == {"k": 1, "v": 5}
        with pytest.raises(vk.InputError, match="reading only"):
            reader.table("t").put(2, {"v": 6})


def test_what_belongs_to_a_disk_names_the_store_that_has_one(tmp_path: Path) -> None:
    with connected() as db:
        with pytest.raises(vk.NotOffered, match="embedded:PATH"):
            db.backup(tmp_path / "backup")
        with pytest.raises(vk.NotOffered, match="restore it to embedded:PATH"):
            vk.restore(tmp_path / "backup", "memory:s")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_forked_off_has_no_store_of_its_parent() -> None:
    with connected("memory:s") as db:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(vk.InputError, match="before this process was forked off"):
                    db.table("t")
                with vk.connect("memory:s") as own:
                    code = len(own.catalog().tables)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert db.table("t").get(1) is None


def test_every_member_that_clients_may_use_is_there() -> None:
    def members(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert members(EmbeddedStore) - members(MemoryStore) == OF_DIRECTORIES - {"boot"}


# upkeep


def test_compacting_shortens_the_log_and_removes_what_was_dropped() -> None:
    with connected() as db:
        for number in range(50):
            db.table("t").put(1, {"v": number})
        keep_up(db)
        db.execute("DROP MATERIALIZED VIEW n; DROP TABLE t")
        done = db.compact()

        assert done.log_entries == 49 and done.bytes_after < done.bytes_before
        assert (db.store.facts().log_entries, db.store.facts().bytes_used) == (1, done.bytes_after)
        assert db.catalog().dropped == ()


def test_the_status_tells_of_the_pipeline_and_of_what_waits() -> None:
    with connected() as db:
        db.table("t").put(1, {"v": 5})
        status = db.status()
        assert (status.pipeline_pid, status.lag_changes, status.log_entries) == (None, 1, 1)
        assert status.bytes_used > 0 and status.url == db.url
        with db.pipeline() as pipeline:
            pipeline.run_available()
            assert (db.status().pipeline_pid, db.status().lag_changes) == (os.getpid(), 0)
            assert db.status().warnings == ()


# the pipeline


def test_a_pipeline_needs_neither_spark_nor_java() -> None:
    environment = {**os.environ, "VIEWKEEPER_JAVA": "none", "PYTHONPATH": str(ROOT / "src")}
    told = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], env=environment, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    assert told.stdout == "{'s': 11}\n"


def test_no_epoch_is_too_large_for_this_process_and_no_session_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_session, "default_session", lambda *_, **__: pytest.fail("Spark was started"))
    with connected() as db:
        db.table("t").put_many([{"k": k, "v": k} for k in range(300)])
        session = LazySession(object(), view_managers=2)  # one that is handed in does not matter either
        runner = SparkRunner(
            db.store, session, view_managers=2, settings=EngineSettings(small_work_max=0, meanwhile_work=0)
        )
        Coordinator(db.store, runner).catch_up()

        assert db.view("n").get() == {"n": 300, "s": 44_850}


def test_no_session_is_used_by_a_pipeline_that_runs() -> None:
    with connected() as db, db.pipeline() as pipeline:
        pipeline.start()
        for number in range(5):
            pipeline.wait_for(db.table("t").put(number, {"v": 1}))
        pipeline.raise_failure()

        assert db.view("n").get() == {"n": 5, "s": 5}


def test_a_second_pipeline_is_refused_or_takes_over() -> None:
    with connected("memory:s") as db, vk.connect("memory:s") as other, db.pipeline() as first:
        first.start()
        with pytest.raises(vk.PipelineRunning):
            other.pipeline()
        with other.pipeline(take_over=True) as second:
            other.table("t").put(1, {"v": 5})
            second.run_available()
            with pytest.raises(vk.Fenced):
                first.raise_failure()
            with pytest.raises(vk.Fenced):
                first.stop()
        assert db.view("n").get() == {"n": 1, "s": 5}


def test_a_view_that_is_made_while_the_pipeline_runs_is_filled() -> None:
    with connected("memory:?before_images=off") as db, db.pipeline() as pipeline:
        db.table("t").put_many([{"k": k, "v": k % 3} for k in range(100)])
        pipeline.start()
        db.execute("CREATE MATERIALIZED VIEW g AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
        pipeline.wait_for(db.table("t").put(100, {"v": 7}))
        pipeline.stop()
        pipeline.run_available()

        assert [tuple(row.values()) for row in db.view("g").scan()] == [(0, 34), (1, 33), (2, 33), (7, 1)]


def test_two_databases_in_two_threads_see_one_store() -> None:
    """Each writes rows of its own and reads its own writes in the view, while a third runs the pipeline."""
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            with vk.connect("memory:s") as db, db.session() as session:
                for number in range(first, first + 20):
                    session.table("t").put(number, {"v": 1})
                    assert session.view("n").get()["n"] >= number - first + 1
        except BaseException as error:
            failures.append(error)

    with connected("memory:s?nodes=2") as db, db.pipeline() as pipeline:
        pipeline.start()
        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 1_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert db.view("n").get() == {"n": 40, "s": 40}


def test_closing_beside_a_running_pipeline_ends_that_too() -> None:
    db, other = vk.connect("memory:s"), vk.connect("memory:s")
    db.execute(DDL)
    pipeline = db.pipeline()
    pipeline.start()
    db.close()
    pipeline.close()

    with other, other.pipeline() as next_one:
        next_one.run_available()
