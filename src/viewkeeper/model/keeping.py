"""Keeping: how long versions of view records are kept, for readers of changes.

In: what an operator asks for, and the committed epochs. Out: the epoch down to which versions are kept. Always: at
least what was asked for is kept, by epochs and by seconds; a few marks map earlier instants to epochs, so that the
epoch record does not grow with the time that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from viewkeeper.errors import InputError

_MARKS = 32  # for the seconds that are kept: up to one interval between marks more is kept


@dataclass(frozen=True, slots=True)
class Keeping:
    """At least the last `epochs`, and those of the last `seconds`; 0 and 0 is what readers need anyway."""

    epochs: int = 0
    seconds: float = 0
    marks: tuple[tuple[int, int], ...] = ()  # committed epochs with their stamps, oldest first
    indexed_from: int | None = None  # from this epoch on, the records that each epoch wrote are indexed

    def __post_init__(self) -> None:
        for name, value, kinds in (("epochs", self.epochs, int), ("seconds", self.seconds, int | float)):
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < float("inf"):
                raise InputError(
                    f"{name}={value!r} is not how much is kept", "use 0 or more; 0 keeps what readers need"
                )

    def __bool__(self) -> bool:
        return bool(self.epochs or self.seconds)

    def begun(self, epoch: int) -> Keeping:
        """With an epoch begun: it and all later ones are indexed, for as long as anything is kept."""
        first = epoch if self.indexed_from is None else self.indexed_from
        return replace(self, indexed_from=first if self else None)

    def committed(self, epoch: int, stamp: int) -> Keeping:
        """With an epoch committed: marked, if the previous mark is old enough; marks no longer needed are dropped."""
        if not self.seconds:
            return replace(self, marks=())
        apart = int(self.seconds * 1e9 / _MARKS)
        marks = self.marks if self.marks and stamp - self.marks[-1][1] < apart else (*self.marks, (epoch, stamp))
        passed = [mark for mark in marks if mark[1] <= stamp - self.seconds * 1e9]
        return replace(self, marks=marks[max(0, len(passed) - 1) :])

    def floor(self, committed: int, stamp: int, kept: int) -> int:
        """The epoch after which everything is kept at `stamp`; `kept` is the floor until now."""
        floors = [committed - self.epochs] if self.epochs else []
        if self.seconds:
            passed = [epoch for epoch, then in self.marks if then <= stamp - self.seconds * 1e9]
            floors.append(passed[-1] if passed else kept)
        return min(floors, default=committed)
