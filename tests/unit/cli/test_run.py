"""run, with a pipeline that needs no JVM; the real one is tried in tests/spark."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.support.running import HereRunner, keep_up
from viewkeeper import connect
from viewkeeper.cli.display import JsonLines, PipelineProgress, PlainLines, describe, is_noise, quiet_java
from viewkeeper.client.database import Database
from viewkeeper.client.status import Lag, read_lag
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import EpochFailed
from viewkeeper.events import (
    Backfilling,
    Began,
    Committed,
    EventSink,
    Scaled,
    StandingBy,
    TookOver,
    Waiting,
    Where,
    Working,
)
from viewkeeper.model.work_stats import Counts
from viewkeeper.settings import EpochLimits

Run = Callable[..., Result]
NOTHING = Lag(0, 0)


class PipelineHere:
    """The pipeline's face over epochs that run in this process; `on_start` is what happens once it runs."""

    def __init__(
        self, database: Database, events: EventSink, changes: int | None, on_start: Callable[[], None]
    ) -> None:
        runner = HereRunner(database.store)
        self._coordinator = Coordinator(
            database.store, runner, limits=EpochLimits(changes=changes or 1_000), events=events
        )
        self._on_start = on_start
        self.failure: Exception | None = None

    def __enter__(self) -> PipelineHere:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run_available(self) -> None:
        self._on_start()
        self._coordinator.catch_up()

    def start(self) -> None:
        self._coordinator.catch_up()
        try:
            self._on_start()
        except EpochFailed as error:
            self.failure = error

    def raise_failure(self) -> None:
        if self.failure:
            raise self.failure


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Puts a pipeline without a JVM in place of the real one; the test says what happens when it starts."""

    def place(on_start: Callable[[], None]) -> None:
        def pipeline(self: Database, **settings: object) -> PipelineHere:
            return PipelineHere(self, settings["events"], settings["changes_per_epoch"], on_start)

        monkeypatch.setattr(Database, "pipeline", pipeline)

    return place


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def nothing() -> None:
    pass


def test_until_caught_up_ends_by_itself(run: Run, shop: str, starting: Callable) -> None:
    starting(nothing)
    told = run("run", shop, "--until-caught-up")

    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    assert lines[0] == "starting"
    assert lines[-2].startswith(
        "epoch 1 on the driver · up to date · "
    )  # a slow machine says before that it is under way
    assert lines[-1].startswith("caught up at epoch 1: 3 changes in ")
    assert run("get", shop, "revenue", "eu").exit_code == 0


@pytest.mark.parametrize("given", [("--patience", "5"), ("--hang", "60")])
def test_what_is_for_a_standby_is_refused_without_one(run: Run, shop: str, given: tuple[str, str]) -> None:
    told = run("run", shop, *given)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr == f"error: {given[0]} is for a pipeline that stands by\nhint: add --standby\n"


def test_an_epoch_is_given_some_time(run: Run, shop: str) -> None:
    told = run("run", shop, "--standby", "--hang", "0")
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("error: an epoch takes longer than 0 seconds\n")


def test_one_change_is_a_change(run: Run, fresh_shop: str, starting: Callable) -> None:
    run("put", fresh_shop, "orders", "p1", "amount=1")
    status = run("status", fresh_shop).stdout
    assert "no pipeline is running: the log grows, 1 change waits" in status and " 1 change, " in status
    starting(nothing)
    last = run("run", fresh_shop, "--until-caught-up").stdout.splitlines()[-1]
    assert last.startswith("caught up at epoch 2: 1 change in ")


def put_three_rows(run: Run, url: str) -> None:
    for number in range(3):
        run("put", url, "orders", f"p{number}", "amount=1")


def test_json_gives_a_line_for_each_epoch_and_words_on_stderr(run: Run, fresh_shop: str, starting: Callable) -> None:
    put_three_rows(run, fresh_shop)
    starting(nothing)
    told = run("run", fresh_shop, "--until-caught-up", "--json", "--changes-per-epoch", "2")

    epochs = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(epoch["epoch"], epoch["changes"]) for epoch in epochs] == [(2, 2), (3, 1)]
    assert all(epoch["where"]["engine"] == "driver" for epoch in epochs)
    assert told.stderr.startswith("caught up at epoch 3: 3 changes in ")


def test_control_c_is_ignored_where_it_was_and_sigterm_ends_the_run(run: Run, shop: str, starting: Callable) -> None:
    """As a shell script starts what it ends in `&`, and as nohup does."""

    def on_start() -> None:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        starting(on_start)
        told = run("run", shop)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

    assert (told.exit_code, told.stdout.splitlines()[-1]) == (0, "stopped at epoch 1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_cleanly(run: Run, shop: str, starting: Callable, number: int) -> None:
    before = signal.getsignal(number)
    starting(send(number))
    told = run("run", shop)

    assert told.exit_code == 0
    assert told.stdout.splitlines()[-1] == "stopped at epoch 1"
    assert signal.getsignal(number) is before


def test_a_signal_ends_catching_up_after_the_epoch_under_way(run: Run, fresh_shop: str, starting: Callable) -> None:
    put_three_rows(run, fresh_shop)
    starting(send(signal.SIGTERM))
    told = run("run", fresh_shop, "--until-caught-up", "--changes-per-epoch", "1")

    assert told.exit_code == 0
    assert told.stdout.splitlines()[-1] == "stopped at epoch 2"
    assert json.loads(run("status", fresh_shop, "--json").stdout)["lag_changes"] == 2


def test_what_stops_the_pipeline_is_told(run: Run, shop: str, starting: Callable) -> None:
    def fail() -> None:
        raise EpochFailed("epoch 2 failed", "it is run again")

    starting(fail)
    told = run("run", shop)

    assert told.exit_code == 6
    assert told.stderr == "error: epoch 2 failed\nhint: it is run again\n"
    assert "stopped" not in told.stdout


def test_without_java_the_run_ends_at_once(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWKEEPER_JAVA", "none")
    told = run("run", shop)

    assert told.exit_code == 4
    assert told.stderr.startswith("error: Spark needs Java 17 and none was found\nhint: ")


def test_without_java_the_demo_writes_nothing(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWKEEPER_JAVA", "none")
    directory = url.removeprefix("embedded:")
    told = run("demo", "--keep", directory)

    assert (told.exit_code, told.stdout) == (4, "")
    assert not os.path.exists(directory)


def committed(epoch: int, changes: int) -> Committed:
    return Committed(epoch, changes, 0.5, Counts(rows_read=changes))


def test_the_progress_knows_the_rate_of_the_last_seconds() -> None:
    now = [100.0]
    progress = PipelineProgress(clock=lambda: now[0])
    now[0] = 110.0
    progress.take(Began(1, {}))
    assert progress.under_way == 1
    progress.take(committed(1, 500))
    assert (progress.epoch, progress.under_way, progress.changes, progress.changes_per_second()) == (
        1,
        None,
        500,
        100.0,
    )
    now[0] = 115.1
    assert progress.changes_per_second() == 0


def test_every_epoch_is_told_once() -> None:
    progress = PipelineProgress()
    threads = [threading.Thread(target=progress.take, args=(committed(number, 1),)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(event.epoch for event in progress.committed()) == list(range(20))
    assert progress.committed() == []
    assert progress.changes == 20


def test_the_line_says_where_the_epoch_ran_and_why() -> None:
    progress = PipelineProgress(clock=lambda: 0.0)
    progress.take(Committed(7, 5, 0.5, Counts(), Where("spark", "large")))
    assert describe(progress, NOTHING, stopping=False).startswith("epoch 7 on Spark (large) · up to date · ")


@pytest.mark.parametrize("engine", ["auto", "spark", "driver"])
def test_the_engine_is_passed_on(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    asked = []

    def pipeline(self: Database, **settings: object) -> PipelineHere:
        asked.append(settings["engine"])
        return PipelineHere(self, settings["events"], None, nothing)

    monkeypatch.setattr(Database, "pipeline", pipeline)
    assert run("run", shop, "--until-caught-up", "--engine", engine).exit_code == 0
    assert asked == [engine]


def test_an_engine_that_is_none_is_refused(run: Run, shop: str) -> None:
    told = run("run", shop, "--engine", "flink")
    assert (told.exit_code, told.stdout) == (2, "")
    assert "'flink'" in told.stderr and "driver" in told.stderr


def test_the_driver_alone_needs_no_java(run: Run, fresh_shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWKEEPER_JAVA", "none")
    put_three_rows(run, fresh_shop)
    told = run("run", fresh_shop, "--until-caught-up", "--engine", "driver")
    assert (told.exit_code, told.stderr) == (0, "")
    assert " on the driver (asked for) · up to date · " in told.stdout
    assert "ran       on the driver (asked for)" in run("status", fresh_shop).stdout.splitlines()


def test_the_line_says_epoch_lag_and_rate() -> None:
    progress = PipelineProgress(clock=lambda: 3_725.0)
    assert describe(progress, NOTHING, stopping=False) == "starting · up to date · 0 changes/s · 0:00:00"
    progress.is_running = True
    assert describe(progress, NOTHING, stopping=False).startswith("waiting for changes · ")
    progress.take(Began(7, {}))
    assert describe(progress, Lag(1_200, 1), stopping=True) == (
        "epoch 7 under way · 1,200 changes behind · 0 changes/s · 0:00:00 · "
        "stopping after the epoch under way; Ctrl-C again stops at once"
    )


def test_views_that_wait_to_be_filled_are_not_up_to_date() -> None:
    progress = PipelineProgress(clock=lambda: 3_725.0)
    assert describe(progress, Lag(0, 1), stopping=False) == "starting · 1 view to fill · 0 changes/s · 0:00:00"
    assert "2 views to fill" in describe(progress, Lag(0, 2), stopping=False)


def test_a_fill_shows_rows_and_tasks_and_no_rate_of_changes_that_do_not_come() -> None:
    progress = PipelineProgress(clock=lambda: 3_725.0)
    progress.is_running = True
    assert describe(progress, Lag(0, 1), stopping=False).startswith("planning · 1 view to fill · ")
    progress.take(Began(1, {}))
    progress.take(Backfilling(1, 0, 5_000_000))
    progress.take(Working(1, 3, 12))
    assert describe(progress, Lag(0, 1), stopping=False) == (
        "epoch 1 under way, 3 of 12 tasks done · filling views, 0 of about 5,000,000 rows · 1 view to fill · 0:00:00"
    )
    progress.take(committed(1, 10))
    progress.take(Began(2, {}))
    assert describe(progress, Lag(0, 1), stopping=False).startswith(
        "epoch 2 under way · 1 view to fill · 100 changes/s"
    )


def test_the_lag_counts_changes_and_views_that_are_not_filled(tmp_path: Path) -> None:
    db = connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY); CREATE INDEX i ON t (k)")
    db.table("t").put(1, {})
    assert read_lag(db) == Lag(1, 1)
    keep_up(db)
    assert read_lag(db) == NOTHING


def test_what_a_run_waits_for_is_told_once_and_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress, lines = PipelineProgress(clock=lambda: 0.0), PlainLines(clock=lambda: 0.0)
    for _ in range(3):
        progress.take(Waiting("no space left for partition-1; free space on the disk"))
        lines.update(progress, Lag(5, 0), stopping=False)
    assert capsys.readouterr().out == "waiting: no space left for partition-1; free space on the disk\n"
    assert describe(progress, Lag(5, 0), stopping=False).endswith(
        "waiting: no space left for partition-1; free space on the disk"
    )
    progress.take(committed(1, 5))
    assert "waiting:" not in describe(progress, NOTHING, stopping=False)


def test_plain_lines_are_not_silent_while_the_first_epoch_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    progress, lines = PipelineProgress(clock=lambda: now[0]), PlainLines(clock=lambda: now[0])
    progress.take(Began(1, {}))
    for second in range(25):
        now[0] = float(second)
        lines.update(progress, Lag(0, 1), stopping=False)

    told = capsys.readouterr().out.splitlines()
    assert [line.split(" · ")[:2] for line in told] == [["epoch 1 under way", "1 view to fill"]] * 2


def test_plain_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    progress, lines = PipelineProgress(clock=lambda: now[0]), PlainLines(clock=lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        progress.take(committed(second, 1))
        lines.update(progress, NOTHING, stopping=False)

    told = [line.split(" · ")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == [f"epoch {number} on the driver" for number in (0, 10, 20)]


def test_json_lines_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    progress, lines = PipelineProgress(), JsonLines()
    progress.take(committed(1, 5))
    progress.take(committed(2, 6))
    lines.update(progress, Lag(9, 0), stopping=False)

    assert [json.loads(line)["epoch"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_only_the_noise_of_java_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    noise = b"26/11/15 13:56:10 WARN NativeCodeLoader: Unable to load native-hadoop library\n"
    assert is_noise(noise)
    assert not is_noise(b"26/11/15 13:56:10 ERROR Executor: Exception in task\n")

    done = threading.Event()
    with quiet_java():
        os.write(2, noise + b"ERROR that matters\n")
        print("from Python", file=sys.stderr)
    captured = ""
    while "ERROR that matters" not in captured and not done.wait(0.01):
        captured += capfd.readouterr().err

    assert "NativeCodeLoader" not in captured
    assert "from Python" in captured


def test_a_signal_that_takes_spark_down_too_is_no_failure(run: Run, shop: str, starting: Callable) -> None:
    def stop_and_fail() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise EpochFailed("the streaming query ended")

    starting(stop_and_fail)
    told = run("run", shop)

    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.splitlines()[-1] == "stopped at epoch 1"


def test_an_error_of_spark_is_one_line(run: Run, shop: str, starting: Callable) -> None:
    from py4j.protocol import Py4JError

    def fail() -> None:
        raise Py4JError("the JVM is gone\nat some.java.Thing")

    starting(fail)
    told = run("run", shop)

    assert told.exit_code == 4
    assert told.stderr == "error: Spark failed: the JVM is gone\nhint: no change is lost: run the command again\n"


def test_plain_lines_say_once_that_they_stop_and_what_a_second_signal_does(capsys: pytest.CaptureFixture[str]) -> None:
    lines, progress = PlainLines(lambda: 0.0), PipelineProgress(lambda: 0.0)
    for _ in range(2):
        lines.update(progress, NOTHING, stopping=True)

    assert capsys.readouterr().out == "stopping after the epoch under way; Ctrl-C again stops at once\n"


def test_a_standby_says_for_whom_it_waits_and_ends_with_a_signal(
    run: Run, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def pipeline(self: Database, **settings: object) -> None:
        asked.append((settings["standby"], settings["patience_seconds"], settings["hang_seconds"]))
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            settings["events"](StandingBy(4711, 0.0))

    monkeypatch.setattr(Database, "pipeline", pipeline)
    told = run("run", shop, "--standby", "--patience", "3", "--hang", "60")

    assert asked == [(True, 3.0, 60.0)]
    assert told.exit_code == 0
    assert "standing by: process 4711 runs the pipeline" in told.stdout.splitlines()
    assert told.stdout.splitlines()[-1] == "stopped at epoch 0"


def test_the_line_says_that_it_stands_by_and_for_how_long_the_other_is_silent() -> None:
    progress = PipelineProgress(clock=lambda: 0.0)
    progress.take(StandingBy(4711, 0.5))
    assert describe(progress, NOTHING, stopping=False) == "standing by: process 4711 runs the pipeline"
    progress.take(StandingBy(4711, 7.2))
    assert describe(progress, NOTHING, stopping=False).endswith(" · silent for 7 s")
    progress.take(TookOver("me"))
    assert describe(progress, NOTHING, stopping=False).startswith("starting · ")


def test_a_change_of_the_number_of_managers_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress, lines = PipelineProgress(clock=lambda: 0.0), PlainLines(clock=lambda: 0.0)
    progress.take(Scaled(2, 3, "9,000 changes or rows wait, about 8 s of work"))
    for _ in range(2):
        lines.update(progress, NOTHING, stopping=False)
    assert capsys.readouterr().out == "3 view managers instead of 2: 9,000 changes or rows wait, about 8 s of work\n"
