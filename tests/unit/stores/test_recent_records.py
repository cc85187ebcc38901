"""Records that processes keep in memory: whatever is found there is what the epoch before left, in any order of events."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from tests.support import tiers
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Cut
from viewkeeper.stores.hbase.record_cache import CachedVersion, RecordCache

TABLE = 7
PLACES = [(partition, b"%d" % number) for partition in range(2) for number in range(3)]


@dataclass
class Rows:
    """The rows that writers tell in; a put may arrive late, after others that were sent later."""

    draw: random.Random
    told: dict[str, int] = field(default_factory=dict)
    hidden: dict[str, int] = field(default_factory=dict)  # by deletes
    late: list[tuple[dict[str, bytes], int]] = field(default_factory=list)

    def cells(self, row: bytes) -> dict[str, SimpleNamespace]:
        return {name: SimpleNamespace(timestamp=at) for name, at in self.told.items() if at > self.hidden.get(name, 0)}

    def put(self, row: bytes, values: dict[str, bytes], stamp: int) -> None:
        for name in values:
            self.told[name] = max(stamp, self.told.get(name, 0))
        if self.draw.random() < 0.3:
            self.late.append((values, stamp))  # sent twice

    def delete(self, row: bytes, names: dict[str, int]) -> None:
        self.hidden |= names

    def deliver(self) -> None:
        while self.late and self.draw.random() < 0.5:
            values, stamp = self.late.pop(self.draw.randrange(len(self.late)))
            self.put(b"", values, stamp)


def at(epoch: int, aborted: set[int]) -> Inflight:
    return Inflight(epoch, {}, Cut({}, epoch, 0), "", max(0, epoch - 2), tuple(sorted(aborted)), ())


class World:
    """Epochs, each begun by some processes and ended by one, over the true versions of records."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rows = Rows(self.draw)
        self.versions: dict[tuple[int, bytes], dict[int, bytes | None]] = {place: {} for place in PLACES}
        self.aborted: set[int] = set()
        self.found = Counter[bool]()

    def before(self, place: tuple[int, bytes], epoch: int) -> CachedVersion:
        """What an epoch that reads a record finds."""
        newest = max((one for one in self.versions[place] if one < epoch and one not in self.aborted), default=-1)
        return epoch, newest, 0, self.versions[place].get(newest)

    def attempt(
        self,
        process: RecordCache,
        epoch: int,
        changed: list[tuple[int, bytes]],
        *,
        is_last: bool,
        is_empty: bool = False,
    ) -> None:
        """What a task does; one that is not the last may end after any step."""
        inflight = at(epoch, self.aborted)
        known = dict(zip(changed, process.find(TABLE, changed, inflight), strict=True))
        for place, kept in known.items():
            self.found[kept is not None] += 1
            if kept is not None:
                assert kept[1:] == self.before(place, epoch)[1:], (epoch, place, kept)
        asked = [place for place, kept in known.items() if kept is None]
        process.keep_read(TABLE, asked, [self.before(place, epoch) for place in asked], inflight)
        steps = [] if is_empty else list(range(0, len(changed), 2))
        for start in steps if is_last else steps[: self.draw.randrange(len(steps) + 1)]:
            some = changed[start : start + 2]
            new = [None if hash((epoch, place)) % 4 == 0 else b"%d %r" % (epoch, place) for place in some]
            process.tell(TABLE, {partition for partition, _ in some}, inflight)
            self.rows.deliver()
            for place, row in zip(some, new, strict=True):
                self.versions[place][epoch] = row
            if is_last or self.draw.random() < 0.5:
                process.keep(TABLE, some, [(epoch, epoch, 0, row) for row in new], inflight)


@pytest.mark.parametrize("seed", range(2_000 if tiers.is_deep() else 200))
def test_what_a_process_remembers_is_what_the_epoch_before_left(seed: int) -> None:
    world = World(seed)
    draw = world.draw
    processes = [RecordCache(world.rows, bytes_max=draw.choice((600, 1 << 20))) for _ in range(3)]
    favourite = draw.choice(processes)
    for epoch in range(1, 30):
        changed = draw.sample(PLACES, draw.randrange(1, len(PLACES) + 1))
        for process in draw.sample(processes, draw.randrange(3)):  # reads, and finds nothing to write
            world.attempt(process, epoch, draw.sample(PLACES, 2), is_last=False, is_empty=True)
        for _ in range(draw.choice((0, 0, 1, 2))):
            world.attempt(draw.choice(processes), epoch, changed, is_last=False)
        if draw.random() < 0.15:
            world.aborted.add(epoch)
        else:
            last = favourite if draw.random() < 0.7 else draw.choice(processes)
            world.attempt(last, epoch, changed, is_last=True)
            for process in draw.sample(processes, draw.randrange(3)):  # comes late: reads, and may no longer write
                world.attempt(process, epoch, changed, is_last=False, is_empty=True)
        world.rows.deliver()
        if draw.random() < 0.05:
            place = processes.index(favourite)
            processes[place] = favourite = RecordCache(world.rows)
    assert seed or world.found[True] > 10


def test_a_process_that_is_alone_finds_all_that_it_wrote() -> None:
    world = World(1)
    process = RecordCache(world.rows)
    for epoch in range(1, 6):
        world.attempt(process, epoch, PLACES, is_last=True)
    assert world.found == {False: len(PLACES), True: 4 * len(PLACES)}
    assert len(world.rows.told) == 2


def test_of_several_others_the_one_that_wrote_last_counts() -> None:
    rows = Rows(random.Random(1))
    process, others = RecordCache(rows), [RecordCache(rows), RecordCache(rows)]
    place = PLACES[0]
    process.keep(TABLE, [place], [(10, 10, 0, b"mine")], at(10, set()))
    for other, epoch in zip(others, (12, 9), strict=True):
        other.tell(TABLE, {place[0]}, at(epoch, set()))
    assert process.find(TABLE, [place], at(13, set())) == [None]


def test_what_is_kept_ends_when_others_may_have_changed_it() -> None:
    recent, kept = RecordCache(Rows(random.Random(1))), [(5, 5, 0, b"row")] * len(PLACES)
    recent.keep(TABLE, PLACES, kept, at(5, set()))
    assert recent.find(TABLE, PLACES, at(6, set())) == kept
    recent.invalidate(TABLE, range(2), 6)
    assert recent.find(TABLE, PLACES, at(7, set())) == [None] * len(PLACES)
    recent.keep_read(TABLE, PLACES, [(7, 5, 0, b"row")] * len(PLACES), at(7, set()))
    assert None not in recent.find(TABLE, PLACES, at(8, set()))


def test_a_batch_that_is_larger_than_memory_is_not_kept() -> None:
    process = RecordCache(Rows(random.Random(1)), bytes_max=10_000)
    places = [(0, b"%d" % number) for number in range(100)]
    for epoch, count in ((1, 10), (2, 100)):
        process.keep(TABLE, places[:count], [(epoch, epoch, 0, b"")] * count, at(epoch, set()))
        known = [kept is not None for kept in process.find(TABLE, places, at(epoch + 1, set()))]
        assert known == [count == 10 and number < 10 for number in range(100)]
