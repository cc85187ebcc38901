"""Display: what is shown while something takes long, without the lines that Java always prints.

In: events of a pipeline and numbers of what is done. Out: a spinner, a bar or a live line on a terminal; for `run`
occasional plain lines or JSON lines elsewhere. Always: only the display of `run` writes to stdout, all else to stderr; a
line of the JVM that matters reaches stderr unchanged.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from viewkeeper.cli.terminal import console, print_json
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.client.status import Lag
    from viewkeeper.events import Committed, Event, Scaled, StandingBy, Where

_WINDOW_SECONDS = 5.0
_PLAIN_SECONDS = 10.0
_SILENT_SECONDS = 3.0
_STOPPING = "stopping after the epoch under way; Ctrl-C again stops at once"
_NOISE = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting default log level to"
    rb"|To adjust logging level use|.* WARN NativeCodeLoader: |.* WARN Utils: (Your hostname|Set SPARK_LOCAL_IP)"
    rb"|.* WARN SparkConf: Note that spark.local.dir will be overridden"
)


def working(what: str) -> AbstractContextManager[object]:
    """A spinner on stderr while something takes long, if it is a terminal."""
    target = console(stderr=True)
    return target.status(what) if target.is_terminal else nullcontext()


@contextmanager
def bar(what: str, *, then: str | None = None, bytes_counted: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that moves with what is done, bytes or rows, if that is a terminal; `then`: its title from then on."""
    target = console(stderr=True)
    if not target.is_terminal:
        yield lambda done, total: None
        return
    from rich import progress

    title, line = progress.TextColumn("{task.description}"), progress.BarColumn()
    columns: tuple[progress.ProgressColumn, ...] = (
        (title, line, progress.DownloadColumn(), progress.TransferSpeedColumn())
        if bytes_counted
        else (progress.SpinnerColumn(), title, line, progress.MofNCompleteColumn(), progress.TimeRemainingColumn())
    )
    with progress.Progress(*columns, console=target, transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, description=then or what, completed=done, total=total)


def is_noise(line: bytes) -> bool:
    """Whether a line of the JVM is one of those it prints at every start; no option of Spark or Java stops the first."""
    return _NOISE.match(line) is not None


@contextmanager
def quiet_java() -> Iterator[None]:
    """Within the block child processes write to a pipe whose reader passes on all but the noise; Python does not."""
    real = os.dup(2)
    reader, writer = os.pipe()

    def pass_on() -> None:
        with open(reader, "rb") as lines:
            for line in lines:
                if not is_noise(line):
                    os.write(real, line)

    threading.Thread(target=pass_on, name="viewkeeper-stderr", daemon=True).start()
    ours, sys.stderr = sys.stderr, _on_real_stderr(real)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = ours
        os.dup2(real, 2)  # the JVM may live on and keep the pipe, so its reader stays


def _on_real_stderr(real: int) -> TextIO:
    """Python's stderr past the pipe; one that is not the process's own, as in a test, stays as it is."""
    try:
        if sys.stderr.fileno() != 2:
            return sys.stderr
    except (OSError, ValueError):
        return sys.stderr
    return open(real, "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1, closefd=False)


class PipelineProgress:
    """What a pipeline did so far, in numbers: listens to it from any thread, and is safe to read meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._committed: list[Committed] = []
        self._scaled: list[Scaled] = []
        self._recent: deque[tuple[float, int]] = deque()
        self.epoch: int | None = None
        self.where: Where | None = None  # it ran, and why there
        self.under_way: int | None = None
        self.changes = 0
        self.filling: tuple[int, int] | None = None  # rows in views that are being filled, of about how many
        self.tasks: tuple[int, int] | None = None  # of the epoch under way those that are done, of how many
        self.given_up: str | None = None  # the last epoch that could not finish, and why
        self.waiting: str | None = None  # the condition that must pass before it can go on
        self.standing_by: StandingBy | None = None
        self.is_running = False  # set by the caller that runs the pipeline, once it takes changes

    def take(self, event: Event) -> None:
        from viewkeeper import events

        with self._lock:
            self.waiting = None
            match event:
                case events.Waiting(reason=reason):
                    self.waiting = reason
                case events.Began(epoch=epoch):
                    self.under_way, self.tasks = epoch, None
                case events.Working(epoch=epoch, done=done, tasks=tasks):
                    self.under_way, self.tasks = epoch, (done, tasks)
                case events.Committed(epoch=epoch, changes=changes, where=where):
                    self.epoch, self.where, self.under_way, self.filling = epoch, where, None, None
                    self.changes += changes
                    self._recent.append((self._clock(), changes))
                    self._committed.append(event)
                case events.Backfilling(rows=rows, total=total):
                    self.filling = rows, total
                case events.StandingBy():
                    self.standing_by = event
                case events.TookOver():
                    self.standing_by = None
                case events.Scaled():
                    self._scaled.append(event)
                case events.Aborted(epoch=epoch, reason=reason):
                    self.under_way = None
                    self.given_up = f"epoch {epoch} was given up: {reason}"

    def committed(self) -> list[Committed]:
        """The epochs committed since the last call: each is returned exactly once."""
        with self._lock:
            found, self._committed = self._committed, []
            return found

    def scaled(self) -> list[Scaled]:
        """Changes of the number of view managers since the last call."""
        with self._lock:
            found, self._scaled = self._scaled, []
            return found

    @property
    def seconds(self) -> float:
        return self._clock() - self._started

    def changes_per_second(self) -> float:
        """The rate over the last seconds; 0 when nothing was committed in them."""
        now = self._clock()
        with self._lock:
            while self._recent and self._recent[0][0] < now - _WINDOW_SECONDS:
                self._recent.popleft()
            return sum(changes for _, changes in self._recent) / min(_WINDOW_SECONDS, max(now - self._started, 0.1))


class LiveLine:
    """One line that is rewritten in place, and removed before the closing words."""

    def __init__(self) -> None:
        self._console = console()
        self._status = self._console.status("starting …")

    def begin(self) -> None:
        self._status.start()

    def update(self, progress: PipelineProgress, lag: Lag, *, stopping: bool) -> None:
        for change in progress.scaled():
            self._console.print(describe_scaled(change), soft_wrap=True)
        self._status.update(describe(progress, lag, stopping=stopping))

    def end(self, words: str) -> None:
        self._status.stop()
        if words:
            self._console.print(words, soft_wrap=True)


class PlainLines:
    """A line for the first epoch, and then one every few seconds while there is work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_line = clock()
        self._has_shown_epoch = False
        self._waiting: str | None = None
        self._said: set[str] = set()

    def begin(self) -> None:
        print("starting", flush=True)

    def update(self, progress: PipelineProgress, lag: Lag, *, stopping: bool) -> None:
        if progress.standing_by:
            self._say_once(_standing_by(progress.standing_by))
        if progress.is_running:
            self._say_once("running")
        if stopping:
            self._say_once(_STOPPING)
        if progress.waiting and progress.waiting != self._waiting:
            print(f"waiting: {progress.waiting}", flush=True)
        self._waiting = progress.waiting
        for change in progress.scaled():
            print(describe_scaled(change), flush=True)
        now = self._clock()
        is_due = now - self._last_line >= _PLAIN_SECONDS
        has_work = progress.under_way is not None or lag.changes > 0 or lag.views > 0
        if (is_due or not self._has_shown_epoch) and progress.committed():
            self._has_shown_epoch = True
        elif not (is_due and has_work):
            return
        print(describe(progress, lag, stopping=False), flush=True)
        self._last_line = now

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            print(line, flush=True)
            self._said.add(line)

    def end(self, words: str) -> None:
        if words:
            print(words, flush=True)


class JsonLines:
    """One JSON line for each committed epoch; words go to stderr."""

    def begin(self) -> None:
        pass

    def update(self, progress: PipelineProgress, lag: Lag, *, stopping: bool) -> None:
        for event in progress.committed():
            print_json(asdict(event))

    def end(self, words: str) -> None:
        if words:
            print(words, file=sys.stderr, flush=True)


Display = LiveLine | PlainLines | JsonLines


def choose_display(*, as_json: bool) -> Display:
    """The display of `run` that fits the output; used from one thread, and updated several times a second."""
    if as_json:
        return JsonLines()
    return LiveLine() if console().is_terminal else PlainLines()


def describe(progress: PipelineProgress, lag: Lag, *, stopping: bool) -> str:
    """The line: epoch, lag, rate."""
    if progress.standing_by and not progress.waiting:
        silent = progress.standing_by.silent_seconds
        how_long = f" · silent for {silent:.0f} s" if silent >= _SILENT_SECONDS else ""
        return _standing_by(progress.standing_by) + how_long
    if progress.under_way is not None:
        epoch = f"epoch {progress.under_way} under way"
        if progress.tasks is not None:
            epoch += ", {} of {} tasks done".format(*progress.tasks)
    elif progress.epoch is not None:
        epoch = f"epoch {progress.epoch} {progress.where}"
    else:
        epoch = "starting" if not progress.is_running else "planning" if lag.views else "waiting for changes"
    if progress.filling is not None:
        epoch += " · filling views, {:,} of about {:,} rows".format(*progress.filling)
    left = f"{counted(lag.changes, 'change')} behind" if lag.changes else f"{counted(lag.views, 'view')} to fill"
    rate = progress.changes_per_second()
    rates = [f"{rate:,.0f} changes/s"] if rate or progress.filling is None else []  # rows of a fill are no changes
    minutes, seconds = divmod(int(progress.seconds), 60)
    duration = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    waiting = f"waiting: {progress.waiting}" if progress.waiting else None
    more = [words for words in (progress.given_up, waiting, _STOPPING if stopping else None) if words]
    return " · ".join([epoch, left if lag.changes or lag.views else "up to date", *rates, duration, *more])


def describe_scaled(change: Scaled) -> str:
    return f"{counted(change.view_managers, 'view manager')} instead of {change.before}: {change.reason}"


def _standing_by(event: StandingBy) -> str:
    return f"standing by: process {event.pid or 'unknown'} runs the pipeline"
