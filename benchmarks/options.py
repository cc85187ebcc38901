"""Options: what a person may set, one value for all questions.

In: nothing. Out: `Options`, with the sizes of a full run as defaults, and those of a quick one. Always: a question reads
only what concerns it; a quick run says whether the harness works and never how fast anything is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.workload import Workload


@dataclass(frozen=True, slots=True)
class Options:
    """Sizes of a run."""

    rows: int = 1_000_000
    changes: int = 1_000_000
    seed: int = Workload().seed
    runs: int = 3
    view_managers: int = 2
    changes_per_epoch: int | None = None
    distributions: tuple[str, ...] = ("uniform", "zipf")
    views: tuple[str, ...] = ("V1", "V2", "V4")
    pipeline_alone: bool = False
    refreshes: int = 10
    changes_per_refresh: int = 10_000
    puts: int = 50
    gets: int = 2_000
    rounds: int = 50
    seconds: float = 20.0
    backlogs: tuple[int, ...] = (1_000_000, 5_000_000)
    sizes: tuple[int, ...] = (100_000, 1_000_000, 5_000_000)
    changes_per_size: int = 100_000
    matches: tuple[int, ...] = (10_000, 1_000_000)
    scale: float = 0.1
    counts: tuple[int, ...] = (1, 10, 100, 300)
    join_rows: int = 100_000
    join_changes: int = 20_000
    ratio_changes: int = 200_000
    live_rows: int = 100_000
    part_seconds: float = 20.0
    kill_seconds: float = 10.0
    rate: float = 10_000.0
    hot_share: float = 0.8
    hbase_rows: int = 20_000
    hbase_changes: int = 10_000
    hbase_counts: tuple[int, ...] = (1, 2, 5, 10, 20)
    hbase_sizes: tuple[int, ...] = (5_000, 50_000, 200_000)
    hbase_gets: int = 1_000
    hbase_write_seconds: int = 15
    hbase_turns: int = 4
    hbase_rate: int = 500
    hbase_crash_seconds: int = 60
    hbase_operations: int = 1_500
    quick: bool = False

    def hbase_workload(self, distribution: str = "uniform") -> Workload:
        """Changes without end, as good as: each turn takes as many as it needs."""
        return Workload(self.hbase_rows, 2_000_000, self.seed, distribution, x_max=1_000)

    def workload(self, distribution: str = "uniform") -> Workload:
        return Workload(self.rows, self.changes, self.seed, distribution)

    def quickly(self) -> Options:
        """The same question at a size that takes seconds."""
        return replace(
            self,
            rows=min(self.rows, 20_000),
            changes=min(self.changes, 20_000),
            runs=1,
            refreshes=2,
            changes_per_refresh=min(self.changes_per_refresh, 2_000),
            puts=5,
            gets=200,
            rounds=3,
            seconds=2.0,
            backlogs=(20_000, 60_000),
            sizes=(5_000, 20_000),
            changes_per_size=min(self.changes_per_size, 5_000),
            matches=(1_000, 20_000),
            scale=min(self.scale, 0.01),
            counts=(1, 12),
            join_rows=min(self.join_rows, 2_000),
            join_changes=min(self.join_changes, 1_000),
            ratio_changes=min(self.ratio_changes, 5_000),
            live_rows=min(self.live_rows, 5_000),
            part_seconds=3.0,
            kill_seconds=1.5,
            rate=min(self.rate, 2_000.0),
            hbase_rows=2_000,
            hbase_changes=2_000,
            hbase_counts=(1, 3),
            hbase_sizes=(500, 2_000),
            hbase_gets=50,
            hbase_write_seconds=2,
            hbase_turns=2,
            hbase_rate=200,
            hbase_crash_seconds=9,
            hbase_operations=100,
            quick=True,
        )
