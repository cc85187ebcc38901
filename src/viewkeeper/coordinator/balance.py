"""Balance: which shards are divided among all view managers, by what earlier epochs brought to each (paper 2, section 3.3).

In: the owners of shards, and how many rows of input each shard had. Out: the shards to divide. Always: no I/O; as long as no
manager has had more than a quarter above its share, nothing is divided; what is divided changes no result, so a wrong guess
costs time only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
