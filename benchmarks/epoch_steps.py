"""Epoch steps: where does the time of an epoch go?

In: a workload. Out: seconds of each step, own time without the steps inside it. Always: the product's functions are
wrapped, not copied, so a step that is renamed is an error here; one that never ran is said to, because it may run under
another name; CPU seconds stand beside wall seconds, because on a shared machine only they can be compared.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from unittest import mock

import viewkeeper as vk
from benchmarks.results import write_result
from benchmarks.workload import Workload, copy_store, prepare
from viewkeeper.engine.session import default_session
from viewkeeper.flow.coordinator import Coordinator
from viewkeeper.model.epochs import Inflight
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.stores.embedded.store import EmbeddedStore
from viewkeeper.views.program import run_here

# What is wrapped, by the name of the step: as `module:attribute` or `module:class.attribute`.
STEPS = {
    "log read": ("viewkeeper.stores.embedded.node:_read_entries",),
    "log checksum": ("viewkeeper.stores.embedded.logbatches:_verify",),
    "log decode": ("viewkeeper.stores.embedded.logbatches:_decode_table",),
    "row decode": ("viewkeeper.views.images:decode_rows", "viewkeeper.views.fold:decode_rows"),
    "base key decode": ("viewkeeper.views.images:decode_keys",),
    "image filter": ("viewkeeper.views.images:_present",),
    "group (DuckDB)": ("viewkeeper.views.fold:_grouped",),
    "key encode": ("viewkeeper.views.fold:encode_keys",),
    "combine (DuckDB)": ("viewkeeper.views.settle:combine",),
    "fold (DuckDB)": ("viewkeeper.views.settle:fold",),
    "row encode": ("viewkeeper.views.fold:encode_rows",),
    "store read": ("viewkeeper.stores.embedded.place:Place.read",),
    "store write": ("viewkeeper.stores.embedded.place:Place.write",),
    "purge": ("viewkeeper.stores.embedded.place:Place.purge",),
    "fences": ("viewkeeper.stores.embedded.store:EmbeddedStore.raise_fences",),
    "sync views": ("viewkeeper.stores.embedded.store:EmbeddedStore.sync_views",),
    "sync epoch record": ("viewkeeper.stores.embedded.store:EmbeddedStore.sync_epoch_record",),
    "begin": ("viewkeeper.flow.coordinator:Coordinator._begin",),
    "commit": ("viewkeeper.flow.coordinator:Coordinator._commit",),
    "epoch, the rest": ("viewkeeper.flow.coordinator:Coordinator.step",),
}


@dataclass
class Clock:
    """Own time of each step: what runs inside another step is taken off the outer one."""

    wall: dict[str, float]
    cpu: dict[str, float]
    inner: list[list[float]]

    def wrap(self, step: str, function: Callable) -> Callable:
        def timed(*args: object, **named: object) -> object:
            self.inner.append([0.0, 0.0])
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return function(*args, **named)
            finally:
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                inside = self.inner.pop()
                self.wall[step] = self.wall.get(step, 0.0) + wall - inside[0]
                self.cpu[step] = self.cpu.get(step, 0.0) + cpu - inside[1]
                if self.inner:
                    self.inner[-1][0] += wall
                    self.inner[-1][1] += cpu

        return timed


class HereRunner:
    """The epoch on the driver, whatever its size."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> None:
        run_here(self._store, plan, epoch)


@contextmanager
def clocked() -> Iterator[Clock]:
    """A clock that runs while the block does."""
    clock = Clock({}, {}, [])
    with ExitStack() as stack:
        for step, names in STEPS.items():
            for name in names:
                owner, attribute = _owner(name)
                wrapped = clock.wrap(step, getattr(owner, attribute))
                stack.enter_context(mock.patch.object(owner, attribute, wrapped))
        yield clock


def profile_here(store: Path, *, changes_per_epoch: int) -> tuple[float, Clock]:
    """All waiting changes by one process; answers the seconds of all epochs and of each step."""
    with vk.connect(f"embedded:{store}") as db, clocked() as clock:
        coordinator = Coordinator(db.store, HereRunner(db.store), changes_max=changes_per_epoch)
        done = coordinator.catch_up()
    return sum(epoch.seconds for epoch in done), clock


def main(workload: Workload, *, runs: int, changes_per_epoch: int) -> None:
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        root = Path(folder)
        prepare(root / "prepared", workload, default_session(2))
        profiles = [
            profile_here(copy_store(root / "prepared", root / f"copy-{turn}"), changes_per_epoch=changes_per_epoch)
            for turn in range(runs)
        ]
    seconds, clock = min(profiles, key=lambda profile: sum(profile[1].cpu.values()))
    steps = {step: {"wall": round(clock.wall[step], 3), "cpu": round(clock.cpu[step], 3)} for step in clock.wall}
    unseen = sorted(STEPS.keys() - clock.wall.keys())
    figures = {**asdict(workload), "seconds": round(seconds, 3), "steps": steps, "did_not_run": unseen}
    file = write_result("epoch_steps", figures)
    print_steps(seconds, clock)
    print(f"  {file}")


def print_steps(seconds: float, clock: Clock) -> None:
    print(f"one process: {seconds:.2f} s, {sum(clock.cpu.values()):.2f} s of CPU")
    for step in sorted(clock.cpu, key=clock.cpu.__getitem__, reverse=True):
        print(f"  {step:20} {clock.wall[step]:7.3f} s wall {clock.cpu[step]:7.3f} s CPU")
    for step in sorted(STEPS.keys() - clock.wall.keys()):
        print(f"  {step:20} did not run where it is wrapped")


def _owner(name: str) -> tuple[object, str]:
    module, _, path = name.partition(":")
    owner: object = import_module(module)
    *classes, attribute = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    return owner, attribute
