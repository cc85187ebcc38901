"""The clock: own time of the product's functions, by step, while a block runs.

In: names of functions. Out: wall and CPU seconds of each step without the steps inside it. Always: functions are wrapped,
not copied; one that is not there any more is told, and so is one that never ran, because it may run under another name now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from unittest import mock

# What is wrapped, by the name of the step: as `module:attribute` or `module:class.attribute`.
STEPS: dict[str, tuple[str, ...]] = {
    "log read": ("viewkeeper.stores.local.node_log:_read_entries",),
    "log checksum": ("viewkeeper.stores.local.log_batches:_verify",),
    "log decode": ("viewkeeper.stores.local.log_batches:_decode_table",),
    "row decode": (
        "viewkeeper.operators.delta_rows:decode_rows",
        "viewkeeper.operators.aggregate:decode_rows",
        "viewkeeper.operators.apply:decode_rows",
    ),
    "base key decode": ("viewkeeper.operators.delta_rows:decode_keys",),
    "image filter": ("viewkeeper.operators.delta_rows:_present",),
    "expressions (DuckDB)": (
        "viewkeeper.operators.grouping_kernel:evaluate",
        "viewkeeper.operators.delta_rows:run_sql",
    ),
    "group": (
        "viewkeeper.operators.grouping_kernel:ExpressionBatch.codes",
        "viewkeeper.operators.grouping_kernel:ExpressionBatch.sums",
        "viewkeeper.operators.grouping_kernel:ExpressionBatch.sums_by",
        "viewkeeper.operators.grouping_kernel:_groups",
        "viewkeeper.operators.grouping_kernel:_changed",
    ),
    "key encode": (
        "viewkeeper.operators.contributions:encode_keys",
        "viewkeeper.operators.keyed_copies:encode_keys",
        "viewkeeper.operators.keyed_copies:hashes_of_keys",
    ),
    "combine": (
        "viewkeeper.operators.operator:Operator.combine",
        "viewkeeper.operators.aggregate:AggregateOperator.combine",
    ),
    "fold (DuckDB)": ("viewkeeper.operators.aggregate:_finish",),
    "row encode": (
        "viewkeeper.operators.aggregate:encode_rows",
        "viewkeeper.operators.operator:encode_rows",
        "viewkeeper.operators.apply:encode_rows",
    ),
    "by place": ("viewkeeper.operators.apply:Applier.find", "viewkeeper.operators.apply:Applier.put"),
    "extremes": ("viewkeeper.operators.aggregate:apply_entries",),
    "groups": ("viewkeeper.operators.aggregate:apply_groups",),
    "store read": ("viewkeeper.stores.local.partition:Partition.read",),
    "store write": ("viewkeeper.stores.local.partition:Partition.write",),
    "purge": ("viewkeeper.stores.local.partition:Partition._purge",),
    "fences": ("viewkeeper.stores.local.embedded_store:EmbeddedStore.admit",),
    "sync store": ("viewkeeper.stores.local.embedded_store:EmbeddedStore.sync",),
    "sync log": ("viewkeeper.stores.local.node:Node.sync",),
    "begin": ("viewkeeper.coordinator.coordinator:Coordinator._begin",),
    "commit": ("viewkeeper.coordinator.coordinator:Coordinator._commit",),
    "epoch, the rest": ("viewkeeper.coordinator.coordinator:Coordinator.step",),
}
# What an epoch on Spark does besides; these modules need PySpark.
SPARK_STEPS: dict[str, tuple[str, ...]] = {
    "split by manager": ("viewkeeper.operators.program:split_by_manager",),
    "blocks": ("viewkeeper.engine.jobs:encode", "viewkeeper.engine.jobs:from_batch"),
}
JOB_STEPS: dict[str, tuple[str, ...]] = {"Spark job": ("viewkeeper.engine.runner:SparkRunner._run_job",)}
SPARK = "Spark, shuffle and moving bytes"

# The steps in the words of a profile; what is in none of them is `other`.
WORDS: dict[str, tuple[str, ...]] = {
    "log read": ("log read", "log checksum"),
    "decode": ("log decode", "row decode", "base key decode", "image filter"),
    "expressions": ("expressions (DuckDB)",),
    "grouping": ("group", "combine", "fold (DuckDB)", "extremes", "groups"),
    "encode": ("key encode", "row encode"),
    "shuffle": ("split by manager", "by place", "blocks", SPARK),
    "store read": ("store read",),
    "store write": ("store write", "purge", "fences"),
    "sync": ("sync store", "sync log"),
}


@dataclass(slots=True)
class Clock:
    """Own time of each step: what runs inside another step is taken off the outer one."""

    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    inner: list[list[float]] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)

    def wrap(self, step: str, function: Callable) -> Callable:
        def timed(*args: object, **named: object) -> object:
            self.inner.append([0.0, 0.0])
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return function(*args, **named)
            finally:
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                inside = self.inner.pop()
                self.add(step, wall - inside[0], cpu - inside[1])
                if self.inner:
                    self.inner[-1][0] += wall
                    self.inner[-1][1] += cpu

        return timed

    def add(self, step: str, wall: float, cpu: float) -> None:
        self.wall[step] = self.wall.get(step, 0.0) + wall
        self.cpu[step] = self.cpu.get(step, 0.0) + cpu


@contextmanager
def clocked(steps: Mapping[str, tuple[str, ...]] = STEPS) -> Iterator[Clock]:
    """A clock that runs while the block does."""
    clock = Clock()
    with ExitStack() as stack:
        for step, names in steps.items():
            for name in names:
                try:
                    owner, attribute = find(name)
                except AttributeError:
                    clock.not_found.append(name)
                    continue
                wrapped = clock.wrap(step, getattr(owner, attribute))
                stack.enter_context(mock.patch.object(owner, attribute, wrapped))
        yield clock


def in_words(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds of steps as seconds of the words of a profile."""
    told = {word: sum(seconds.get(step, 0.0) for step in steps) for word, steps in WORDS.items()}
    return {**told, "other": sum(seconds.values()) - sum(told.values())}


def find(name: str) -> tuple[object, str]:
    """The module or class that holds a function, and the function's name; AttributeError when it is not there."""
    module, _, path = name.partition(":")
    owner: object = import_module(module)
    *classes, attribute = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    getattr(owner, attribute)
    return owner, attribute
