"""Displays: how `run` reports what it does.

In: a gauge, and how far the views lag. Out: a live line on a terminal, occasional plain lines elsewhere, or JSON
lines. Always: used from one thread; the closing words are printed after the live line is removed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from viewkeeper.cli.gauge import Gauge
from viewkeeper.cli.jsonlines import print_json
from viewkeeper.cli.output import console
from viewkeeper.events import Scaled, StandingBy
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.client.status import Lag

_PLAIN_SECONDS = 10.0
_SILENT_SECONDS = 3.0
_STOPPING = "stopping after the epoch under way; Ctrl-C again stops at once"


class Display(Protocol):
    """Updated several times a second."""

    def begin(self) -> None:
        """Before the pipeline starts."""

    def update(self, gauge: Gauge, lag: Lag, *, stopping: bool) -> None:
        """While it runs."""

    def end(self, words: str) -> None:
        """After it stopped; once, with closing words (none after an error)."""


class LiveLine:
    """One line that is rewritten in place."""

    def __init__(self) -> None:
        from rich.status import Status

        self._console = console()
        self._status = Status("starting …", console=self._console)

    def begin(self) -> None:
        self._status.start()

    def update(self, gauge: Gauge, lag: Lag, *, stopping: bool) -> None:
        for change in gauge.scaled():
            self._console.print(describe_scaled(change), soft_wrap=True)
        self._status.update(describe(gauge, lag, stopping=stopping))

    def end(self, words: str) -> None:
        self._status.stop()
        if words:
            self._console.print(words, soft_wrap=True)


class PlainLines:
    """A line for the first epoch, and then one every few seconds while there is work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told = clock()
        self._has_told_epoch = False
        self._waiting: str | None = None
        self._has_said_running = False
        self._has_said_standby = False
        self._has_said_stopping = False

    def begin(self) -> None:
        print("starting", flush=True)

    def update(self, gauge: Gauge, lag: Lag, *, stopping: bool) -> None:
        if gauge.standing_by and not self._has_said_standby:
            print(_standing_by(gauge.standing_by), flush=True)
            self._has_said_standby = True
        if gauge.is_running and not self._has_said_running:
            print("running", flush=True)
            self._has_said_running = True
        if stopping and not self._has_said_stopping:
            print(_STOPPING, flush=True)
            self._has_said_stopping = True
        if gauge.waiting and gauge.waiting != self._waiting:
            print(f"waiting: {gauge.waiting}", flush=True)
        self._waiting = gauge.waiting
        for change in gauge.scaled():
            print(describe_scaled(change), flush=True)
        now = self._clock()
        is_due = now - self._told >= _PLAIN_SECONDS
        has_work = gauge.under_way is not None or lag.changes > 0 or lag.views > 0
        if (is_due or not self._has_told_epoch) and gauge.committed():
            self._has_told_epoch = True
        elif not (is_due and has_work):
            return
        print(describe(gauge, lag, stopping=False), flush=True)
        self._told = now

    def end(self, words: str) -> None:
        if words:
            print(words, flush=True)


class JsonLines:
    """One JSON line for each committed epoch; words go to stderr."""

    def begin(self) -> None:
        pass

    def update(self, gauge: Gauge, lag: Lag, *, stopping: bool) -> None:
        for event in gauge.committed():
            print_json(asdict(event))

    def end(self, words: str) -> None:
        if words:
            print(words, file=sys.stderr, flush=True)


def choose_display(*, as_json: bool) -> Display:
    """The display that fits the output."""
    if as_json:
        return JsonLines()
    return LiveLine() if console().is_terminal else PlainLines()


def describe(gauge: Gauge, lag: Lag, *, stopping: bool) -> str:
    """The line: epoch, lag, rate."""
    if gauge.standing_by:
        silent = gauge.standing_by.silent_seconds
        return _standing_by(gauge.standing_by) + (f" · silent for {silent:.0f} s" if silent >= _SILENT_SECONDS else "")
    if gauge.under_way is not None:
        epoch = f"epoch {gauge.under_way} under way"
        if gauge.tasks is not None:
            epoch += f", {gauge.tasks[0]} of {gauge.tasks[1]} tasks done"
    elif gauge.epoch is not None:
        epoch = f"epoch {gauge.epoch}"
    else:
        epoch = "starting" if not gauge.is_running else "planning" if lag.views else "waiting for changes"
    behind = _behind(lag)
    if gauge.filling is not None:
        rows, total = gauge.filling
        epoch += f" · filling views, {rows:,} of about {total:,} rows"
    rate = gauge.changes_per_second()
    rates = (
        [] if gauge.filling is not None and not rate else [f"{rate:,.0f} changes/s"]
    )  # rows of a fill are no changes
    parts = [epoch, behind, *rates, _duration(gauge.seconds)]
    waiting = f"waiting: {gauge.waiting}" if gauge.waiting else None
    more = [words for words in (gauge.given_up, waiting, _STOPPING if stopping else None) if words]
    return " · ".join([*parts, *more])


def describe_scaled(change: Scaled) -> str:
    """A line about more or fewer view managers."""
    return f"{counted(change.view_managers, 'view manager')} instead of {change.before}: {change.reason}"


def _standing_by(event: StandingBy) -> str:
    return f"standing by: process {event.pid or 'unknown'} runs the pipeline"


def _behind(lag: Lag) -> str:
    if lag.changes:
        return f"{counted(lag.changes, 'change')} behind"
    return f"{counted(lag.views, 'view')} to fill" if lag.views else "up to date"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
