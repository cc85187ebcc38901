"""The world of a schedule: one store with its clock, a model of its base, and a history of what happened.

In: a seed. Out: an open database. Always: everything is drawn from the seed; what the history records holds no time, no path
and no nonce, so that one seed gives one history.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import viewkeeper as vk
from tests.support.handles import close_environments
from tests.support.simulation.kinds import Kind
from tests.support.simulation.processes import Processes, WatchedHBase
from tests.support.simulation.recomputed import Base
from viewkeeper.client.database import Database
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.positions import Positions
from viewkeeper.ports.store import Store

HBASE = "hbase"
STORES = ("memory", HBASE, "embedded")  # by seed
_MEMORY_DISK = Path("/dev/shm")  # where there is one, an embedded store costs no disk


class Wrong(BaseException):
    """What must not be: a view, an error, or a pipeline without an end; no task takes it for a failure of its own."""


class Clock:
    """The store's clock: goes on by a little at each look, never back, and jumps when told to."""

    def __init__(self, seed: int) -> None:
        self._random, self._now = random.Random(seed), 1_700_000_000_000_000_000

    def __call__(self) -> int:
        self._now += self._random.randint(1, 1_000)
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += int(seconds * 1e9)


class World:
    """What all actors of a schedule share."""

    def __init__(self, seed: int, kind: str = "") -> None:
        self.seed, self.random, self.clock = seed, random.Random(seed), Clock(seed)
        self.kind = kind or STORES[seed % len(STORES)]
        self.counts: Counter[str] = Counter()
        self._history = hashlib.blake2b(digest_size=12)
        self.base = Base()
        self.views: dict[str, Kind] = {}  # those that there should be
        self.shown: set[str] = set()  # those that were readable once
        self.positions: dict[int, Positions] = {}  # of committed epochs
        self._reached: Positions = {}
        self.nodes = self.random.choice((1, 1, 2, 3, 4))
        self.is_looked_after = random.Random(f"{seed} nodes").random() < 0.3  # by admins
        self.options = f"nodes={self.nodes}&before_images={self.random.choice(('on', 'off'))}"
        self._folder: Path | None = None
        self._ends = ExitStack()
        self.hbase = WatchedHBase(seed) if self.kind == HBASE else None
        self._processes: Processes | None = None
        self.db = self._connect()
        self.store = self.db.store
        self._set_clock()
        self._watch_commits()

    def _connect(self) -> vk.Database:
        if self.hbase is None:
            return vk.connect(self._url())
        self._ends.enter_context(self.hbase.serving())
        self._processes = Processes(self.hbase, self.options, self.seed)
        self._ends.callback(self._processes.close)
        return Database(self._processes.first, read_only=False)

    def _url(self) -> str:
        if self.kind == "embedded":
            self._folder = Path(tempfile.mkdtemp(dir=_MEMORY_DISK if _MEMORY_DISK.is_dir() else None))
            return f"embedded:{self._folder / 's'}?sync=off&{self.options}"
        return f"memory:?{self.options}"

    def _set_clock(self) -> None:
        if self.kind == "embedded":
            self.store.now = self.clock
        else:
            self.store._contents.now = self.clock

    def _watch_commits(self) -> None:
        if self.hbase is not None:
            self.hbase.swapped = self._see
            return
        swap = self.store.meta.swap_epoch_record

        def seen_swap(expected_version: int, record: EpochRecord) -> bool:
            swapped = swap(expected_version, record)
            if swapped:
                self._see(record)
            return swapped

        self.store.meta.swap_epoch_record = seen_swap

    def _see(self, record: EpochRecord) -> None:
        if record.committed not in self.positions:
            self._reached |= record.positions  # logs of removed nodes stay where they ended
            self.positions[record.committed] = dict(self._reached)
            self.note("epochs", record.committed, sorted(record.positions.items()))

    @property
    def answers_always(self) -> bool:
        return self.kind != HBASE

    @contextmanager
    def process(self) -> Iterator[Store]:
        """A process for a pipeline or a task: over HBase one of its own."""
        if self._processes is None:
            yield self.store
        else:
            with self._processes.one() as store:
                yield store

    def listen_to_reads(self, reading: Callable[[], None]) -> None:
        """Call this when a process of HBase's reads records for a task."""
        assert self._processes is not None
        self._processes.reading = reading

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Requests are answered, and what is under way goes on."""
        if self.hbase is None:
            yield
        else:
            with self.hbase.calm():
                yield

    def close(self) -> None:
        self.db.close()
        self._ends.close()
        if self._folder is not None:
            close_environments()
            shutil.rmtree(self._folder)

    def record(self) -> EpochRecord:
        """The epoch record as it is, whatever becomes of requests."""
        return self.store.meta.read_epoch_record()

    def note(self, what: str, *facts: object) -> None:
        """Count what happened, and remember in which order."""
        self.counts[what] += 1
        self._history.update(repr((what, *facts)).encode())

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    @property
    def history(self) -> str:
        return self._history.hexdigest()
