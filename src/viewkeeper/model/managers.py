"""Manager bounds: how many view managers a pipeline may have.

In: a number, or the least and the most. Out: a frozen value. Always: at least one, and the least is not above the most.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.errors import InputError


@dataclass(frozen=True, slots=True)
class ManagerBounds:
    """As many as `least` to `most`; a fixed number is both."""

    least: int
    most: int

    @staticmethod
    def of(value: object) -> ManagerBounds:
        """The bounds that a caller gives: `2`, or `(1, 4)`."""
        both = value if isinstance(value, tuple | list) and len(value) == 2 else (value, value)
        counts = [one for one in both if isinstance(one, int) and not isinstance(one, bool) and one >= 1]
        if len(counts) < 2 or counts[0] > counts[1]:
            raise InputError(
                f"view_managers={value!r} is not a number of them", "use 1 or more, or (least, most) as in (1, 4)"
            )
        return ManagerBounds(*counts)

    @property
    def is_fixed(self) -> bool:
        return self.least == self.most

    def nearest(self, managers: int) -> int:
        """The number within the bounds that is next to this one."""
        return min(max(managers, self.least), self.most)

    def __str__(self) -> str:
        return str(self.most) if self.is_fixed else f"{self.least} to {self.most}"
