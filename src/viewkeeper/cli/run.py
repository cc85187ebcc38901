"""Run: the pipeline in the foreground, until stopped or caught up.

In: a store's URL and the pipeline's settings. Out: fresh views, and progress messages. Always: the work is done in a
thread of its own, so that this one is free for signals and the display (and so that Spark does not catch Ctrl-C, as it
would in the main thread); the first signal stops after the epoch in flight, the second at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from viewkeeper.cli.display import Display, PipelineProgress, choose_display, quiet_java
from viewkeeper.cli.exit_codes import is_from_spark
from viewkeeper.cli.options import Url, open_database, read_bounds
from viewkeeper.errors import EpochFailed, InputError, SparkLost, StoreBusy, StoreUnavailable
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.events import Event, EventSink

_TICK_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0


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


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose."""

    view_managers: tuple[int, int]
    take_over: bool
    changes_per_epoch: int | None
    until_caught_up: bool
    standby: bool
    patience: float | None
    hang: float | None

    def require_sense(self) -> None:
        """Refuse what would be ignored."""
        for name, given in (("--patience", self.patience), ("--hang", self.hang)):
            if given is not None and not self.standby:
                raise InputError(f"{name} is for a pipeline that stands by", "add --standby")
        if self.hang == 0:
            raise InputError("an epoch takes longer than 0 seconds", "allow --hang far more than the longest one takes")


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
    changes_per_epoch: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="About so many changes in one epoch; a transaction is never cut.", show_default="1000000"
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each committed epoch.")] = False,
) -> None:
    """Run the pipeline that keeps all views fresh, until Ctrl-C or SIGTERM. Needs Java 17.

    Stopping it at any moment, `kill -9` included, loses nothing and counts nothing twice. With `--standby` a second one
    waits: it takes over at once when the first ends or is killed, and after `--patience` when it is stopped or cannot
    reach the store, or after `--hang` when it does not get on; one that goes on after that ends without changing anything.
    """
    bounds = read_bounds(view_managers)
    settings = Settings(bounds, take_over, changes_per_epoch, until_caught_up, standby, patience, hang)
    settings.require_sense()
    database, progress, stop = open_database(url), PipelineProgress(), threading.Event()
    work = _Work(lambda: _work(database, settings, progress, stop))
    display = choose_display(as_json=json)
    words = ""
    with quiet_java(), _signals_set(stop):
        display.begin()
        try:
            work.start()
            _watch(work, database, progress, display, stop)
            work.raise_failure(stopped=stop.is_set())
            words = _last_words(database, progress, settings, stopped=stop.is_set())
        finally:
            display.end(words)


class _Work(threading.Thread):
    """The work, and its failure."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="viewkeeper-pipeline", daemon=True)
        self._work = work
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error

    def raise_failure(self, *, stopped: bool) -> None:
        """Raise the failure of the work, unless it failed because everything was stopped.

        Service managers such as systemd signal the JVM too, and Spark then ends before we can stop it. The epoch stays
        in flight, and the next run resumes it.
        """
        error = self._failure
        went_down = isinstance(error, EpochFailed | SparkLost | ConnectionError) or (
            error is not None and is_from_spark(error)
        )
        if error and not (stopped and went_down):
            raise error


def _work(database: Database, settings: Settings, progress: PipelineProgress, stop: threading.Event) -> None:
    with suppress(_StopNow):
        _run(database, settings, progress, stop)


def _run(database: Database, settings: Settings, progress: PipelineProgress, stop: threading.Event) -> None:
    with database.pipeline(
        view_managers=settings.view_managers,
        take_over=settings.take_over,
        changes_per_epoch=settings.changes_per_epoch,
        events=_sink(progress, settings, stop),
        standby=settings.standby,
        patience_seconds=_PATIENCE_SECONDS if settings.patience is None else settings.patience,
        hang_seconds=settings.hang,
    ) as pipeline:
        if settings.until_caught_up:
            if not stop.is_set():
                pipeline.run_available()
        else:
            pipeline.start()
            progress.is_running = True
            while not stop.wait(_TICK_SECONDS):
                pipeline.raise_failure()


def _sink(progress: PipelineProgress, settings: Settings, stop: threading.Event) -> EventSink:
    from viewkeeper.events import Committed, StandingBy

    def take(event: Event) -> None:
        progress.take(event)
        # Stopping is safe at any moment; after a commit nothing has to be done again.
        is_between = settings.until_caught_up and isinstance(event, Committed)
        if stop.is_set() and (is_between or isinstance(event, StandingBy)):
            raise _StopNow

    return take


def _watch(
    work: _Work, database: Database, progress: PipelineProgress, display: Display, stop: threading.Event
) -> None:
    from viewkeeper.client.status import Lag, read_lag

    is_alive, lag = True, Lag(0, 0)
    while is_alive:
        work.join(_TICK_SECONDS)
        is_alive = work.is_alive()  # read first, so that what the work did before its end is reported below
        with suppress(StoreBusy, StoreUnavailable, OSError):  # the work waits for the store, and says so
            lag = read_lag(database)
        display.update(progress, lag, stopping=stop.is_set())


def _last_words(database: Database, progress: PipelineProgress, settings: Settings, *, stopped: bool) -> str:
    epoch = database.epoch
    if stopped or not settings.until_caught_up:
        return f"stopped at epoch {epoch}"
    return f"caught up at epoch {epoch}: {counted(progress.changes, 'change')} in {progress.seconds:.1f} s"


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
