"""View managers: how many the next epoch has, and which shards each of them owns.

In: bounds, what each epoch did and left to do, what an operator asks for, and the rows of input of each shard. Out: a
number within the bounds, and why it changed (paper 1, section 3.3: assign and withdraw); an owner for each shard, that
is, a partition or a part of one; the shards to share out among all managers (paper 2, section 3.3). Always: one manager
more or fewer at a time; shares differ by at most one shard, and adding a manager to n moves about 1/(n+1) of the keys,
all of them to the new one (paper 1, section 3.2). As long as no manager has had more than a quarter above its share, no
shard is shared out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from viewkeeper.errors import InputError
from viewkeeper.ports.meta import Meta
from viewkeeper.settings import ManagerBounds, ScalingSettings


@dataclass(frozen=True, slots=True)
class Load:
    """What an epoch did, and what waits after it: changes, and rows to fill views with."""

    waiting: int
    done: int
    seconds: float
    paused_seconds: float = 0.0  # between the epoch before and this one


@dataclass(frozen=True, slots=True)
class Scaling:
    """The number of managers, and what was measured since it is that: sums in which the last epoch counts most."""

    bounds: ManagerBounds
    managers: int
    done: float = 0.0
    seconds: float = 0.0
    paused_seconds: float = 0.0
    behind: int = 0  # epochs in a row that left much to do
    idle: int = 0  # epochs in a row after long pauses that left little
    pace_before: float = 0.0  # with one manager less, when that was found too few

    @staticmethod
    def within(bounds: ManagerBounds, managers: int = 1) -> Scaling:
        return Scaling(bounds, bounds.nearest(managers))

    @property
    def pace(self) -> float:
        """Changes and rows in a second."""
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def busy_share(self) -> float:
        """The share of time in which epochs ran."""
        total = self.seconds + self.paused_seconds
        return self.seconds / total if total else 0.0


def scaled(scaling: Scaling, load: Load, settings: ScalingSettings) -> tuple[Scaling, str]:
    """The scaling after an epoch, and the reason if the number of managers changed.

    A manager that did not raise the pace is the last one that is added. One is withdrawn only if epochs ran for at most
    half of the time: those that stay have at most twice as much to do.
    """
    now = replace(
        scaling,
        done=scaling.done / 2 + load.done,
        seconds=scaling.seconds / 2 + load.seconds,
        paused_seconds=scaling.paused_seconds / 2 + load.paused_seconds,
    )
    wait = load.waiting / now.pace if now.pace else 0.0
    is_idle = wait <= settings.idle_seconds and now.busy_share <= settings.idle_share
    is_behind = wait >= settings.behind_seconds
    now = replace(now, behind=now.behind + 1 if is_behind else 0, idle=now.idle + 1 if is_idle else 0)
    has_helped = now.pace >= settings.gain_min * now.pace_before
    if now.behind >= settings.behind_epochs and now.managers < now.bounds.most and has_helped:
        more = Scaling(now.bounds, now.managers + 1, pace_before=now.pace)
        return more, f"{load.waiting:,} changes or rows wait, about {wait:.0f} s of work"
    if now.idle >= settings.idle_epochs and now.managers > now.bounds.least:
        fewer = Scaling(now.bounds, now.managers - 1)
        return fewer, f"idle for {1 - now.busy_share:.0%} of the time"
    return now, ""


_NOTE = "managers"


def request_managers(store: Meta, bounds: ManagerBounds) -> None:
    """Ask the pipeline that owns the store for so many, from its next epoch on."""
    generation = store.read_epoch_record().generation
    store.keep_json("note", _NOTE, {"generation": generation, "least": bounds.least, "most": bounds.most})


def requested_managers(store: Meta, generation: int) -> ManagerBounds | None:
    """What the pipeline of that generation was last asked for."""
    note = store.read_json("note", _NOTE)
    return ManagerBounds(note["least"], note["most"]) if note.get("generation") == generation else None


_SHARDS_EACH = 4  # at least, where partitions are divided: so shares are even to about a quarter


def owners_of_shards(partitions: int, managers: int) -> list[int]:
    """`owners[hash % len(owners)]` is a manager from 0 to managers − 1; the length is a multiple of `partitions`.

    So a shard lies in one partition, and twice as many shards, each with the owner of its former whole, move nothing.
    """
    if managers < 1:
        raise InputError(f"{managers} view managers cannot do any work", "use 1 or more")
    owners = [0] * partitions
    for newcomer in range(1, managers):
        while newcomer >= partitions and len(owners) < _SHARDS_EACH * (newcomer + 1):
            owners += owners
        shares = [owners.count(manager) for manager in range(newcomer)]
        for _ in range(len(owners) // (newcomer + 1)):
            richest = shares.index(max(shares))
            shares[richest] -= 1
            owners[len(owners) - 1 - owners[::-1].index(richest)] = newcomer
    return owners


UNEVEN = 1.25  # times the mean: what counts in shards has about that much by chance


@dataclass(frozen=True, slots=True)
class Balance:
    """Rows of input by shard, in sums in which the last epoch counts most."""

    rows: tuple[float, ...] = ()

    def after(self, shards: int, rows: Mapping[int, int]) -> Balance:
        """With another epoch's rows; what was measured with another number of shards is forgotten."""
        known = self.rows if len(self.rows) == shards else (0.0,) * shards
        return Balance(tuple(known[shard] / 2 + rows.get(shard, 0) for shard in range(shards)))

    def divided(self, owners: Sequence[int]) -> frozenset[int]:
        """The heaviest shards of the busiest managers, until the shares are even or all of a manager's are divided."""
        found: set[int] = set()
        if len(self.rows) != len(owners):
            return frozenset()
        while True:
            loads = self.loads(owners, found)
            busiest = loads.index(max(loads))
            left = [shard for shard, owner in enumerate(owners) if owner == busiest and shard not in found]
            if not left or loads[busiest] <= UNEVEN * sum(loads) / len(loads):
                return frozenset(found)
            found.add(max(left, key=lambda shard: self.rows[shard]))

    def loads(self, owners: Sequence[int], divided: frozenset[int] | set[int]) -> list[float]:
        """The rows of each manager, if the divided shards are shared out evenly."""
        loads = [0.0] * (max(owners) + 1)
        for shard, owner in enumerate(owners):
            if shard in divided:
                loads = [load + self.rows[shard] / len(loads) for load in loads]
            else:
                loads[owner] += self.rows[shard]
        return loads
