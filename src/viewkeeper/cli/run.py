"""Run: the pipeline in the foreground, until stopped or caught up.

In: a store's URL and the pipeline's settings. Out: fresh views, and progress messages. Always: the work is done in a
thread of its own, so that this one is free for signals and the display (and so that Spark does not catch Ctrl-C, as it
would in the main thread); the first signal stops after the epoch in flight, the second at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewkeeper.cli.display import Display, PipelineProgress, choose_display, quiet_java
from viewkeeper.cli.exit_codes import is_from_spark
from viewkeeper.cli.options import Url, open_database, read_bounds
from viewkeeper.errors import EpochFailed, InputError, SparkLost, StoreBusy, StoreUnavailable
from viewkeeper.model.wording import counted
from viewkeeper.settings import Engine

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.events import Event, EventSink

_TICK_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0
_WENT_DOWN = (EpochFailed, SparkLost, ConnectionError)


Patience = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="For `--standby`: how long one that holds the store may be silent.",
        show_default="10.0",
    ),
]
Hang = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="For `--standby`: how long one that holds the store may take for one epoch.",
        show_default="any time",
    ),
]


ChangesPerEpoch = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="About so many changes in one epoch; a transaction is never cut.", show_default="1000000"
    ),
]
EngineOption = Annotated[
    Engine,
    typer.Option(
        help="Where epochs run: large ones as Spark jobs and the others in this process (`auto`), all as jobs of a "
        "streaming query (`spark`), or all in this process, without Java (`driver`)."
    ),
]


class _StopNow(Exception):
    """Ends `run_available` between two epochs, or the wait of a standby."""


def run(
    url: Url,
    view_managers: Annotated[
        str,
        typer.Option(
            metavar="N", help="Workers that share the views' keys; `1..4`: as many of them as the backlog calls for."
        ),
    ] = "2",
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop once the views hold all that was written before.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence off a pipeline that is still running; it ends within seconds.")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another pipeline runs, and take over when it ends or is silent."),
    ] = False,
    patience: Patience = None,
    hang: Hang = None,
    changes_per_epoch: ChangesPerEpoch = None,
    engine: EngineOption = Engine.AUTO,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each committed epoch.")] = False,
) -> None:
    """Run the pipeline that keeps all views fresh, until Ctrl-C or SIGTERM. Needs Java 17, except with `--engine driver`.

    Stopping it at any moment, `kill -9` included, loses nothing and counts nothing twice. With `--standby` a second one
    waits: it takes over at once when the first ends or is killed, and after `--patience` when it is stopped or cannot
    reach the store, or after `--hang` when it does not get on; one that goes on after that ends without changing anything.
    """
    from viewkeeper.client.interruptible import begin

    options: dict[str, Any] = {"view_managers": read_bounds(view_managers), "take_over": take_over, "standby": standby}
    options |= {"changes_per_epoch": changes_per_epoch, "hang_seconds": hang, "engine": engine}
    options["patience_seconds"] = _PATIENCE_SECONDS if patience is None else patience
    for name, given in (("--patience", patience), ("--hang", hang)):
        if given is not None and not standby:
            raise InputError(f"{name} is for a pipeline that stands by", "add --standby")
    if hang == 0:
        raise InputError("an epoch takes longer than 0 seconds", "allow --hang far more than the longest one takes")
    database, progress, stop = open_database(url), PipelineProgress(), threading.Event()
    run_pipeline = partial(_run, database, progress, stop, options, until_caught_up=until_caught_up)
    work, answer = begin(run_pipeline, "viewkeeper-pipeline")
    display = choose_display(as_json=json)
    words = ""
    with quiet_java(), _signals_set(stop):
        display.begin()
        try:
            work.start()
            _watch(work, database, progress, display, stop)
            _raise_failure(answer.exception(), stopped=stop.is_set())
            words = f"stopped at epoch {database.epoch}"
            if until_caught_up and not stop.is_set():
                done = f"{counted(progress.changes, 'change')} in {progress.seconds:.1f} s"
                words = f"caught up at epoch {database.epoch}: {done}"
        finally:
            display.end(words)


def _raise_failure(error: BaseException | None, *, stopped: bool) -> None:
    """Raise the failure of the work, unless it failed because everything was stopped.

    Service managers such as systemd signal the JVM too, and Spark then ends before we can stop it. The epoch stays in
    flight, and the next run resumes it.
    """
    if error is not None and not (stopped and (isinstance(error, _WENT_DOWN) or is_from_spark(error))):
        raise error


def _run(
    database: Database,
    progress: PipelineProgress,
    stop: threading.Event,
    options: dict[str, Any],
    *,
    until_caught_up: bool,
) -> None:
    events = _sink(progress, stop, until_caught_up=until_caught_up)
    with suppress(_StopNow), database.pipeline(events=events, **options) as pipeline:
        if until_caught_up:
            if not stop.is_set():
                pipeline.run_available()
        else:
            pipeline.start()
            progress.is_running = True
            while not stop.wait(_TICK_SECONDS):
                pipeline.raise_failure()


def _sink(progress: PipelineProgress, stop: threading.Event, *, until_caught_up: bool) -> EventSink:
    from viewkeeper.events import Committed, StandingBy, Waiting

    def take(event: Event) -> None:
        progress.take(event)
        # Stopping is safe at any moment; after a commit nothing has to be done again.
        is_between = until_caught_up and isinstance(event, Committed)
        is_standby = isinstance(event, (StandingBy, Waiting)) and not (until_caught_up or progress.is_running)
        if stop.is_set() and (is_between or is_standby):
            raise _StopNow

    return take


def _watch(
    work: threading.Thread, database: Database, progress: PipelineProgress, display: Display, stop: threading.Event
) -> None:
    from viewkeeper.client.status import Lag, read_lag

    is_alive, lag = True, Lag(0, 0)
    while is_alive:
        work.join(_TICK_SECONDS)
        is_alive = work.is_alive()  # read first, so that what the work did before its end is reported below
        with suppress(StoreBusy, StoreUnavailable, OSError):  # the work waits for the store, and says so
            lag = read_lag(database)
        display.update(progress, lag, stopping=stop.is_set())


@contextmanager
def _signals_set(stop: threading.Event) -> Iterator[None]:
    """Within the block SIGINT and SIGTERM set `stop`; a second one interrupts.

    SIGINT that is ignored stays so: a script that began us in the background, or nohup, wants Ctrl-C to be for others.
    """

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    is_for_us = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    numbers = (signal.SIGINT, signal.SIGTERM) if is_for_us else (signal.SIGTERM,)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
