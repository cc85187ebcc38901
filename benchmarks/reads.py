"""Reads: what does a get of a view record or of a base row cost, against a bare LMDB get?

In: sizes. Out: nanoseconds for each get, and ratios. Always: the bare get encodes the same key, begins a read transaction
of its own, and decodes the same row bytes by the same function as the product; rounds of all systems take turns in one
process, each over the same keys; every answer of the first round is compared.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.recompute import WrongResult
from benchmarks.results import median, spread
from benchmarks.views import V1
from benchmarks.workload import fill_here, prepare
from viewkeeper.client.arguments import key_bytes
from viewkeeper.client.tables import _to_dict
from viewkeeper.client.views import record_of
from viewkeeper.ports.base_rows import scan_rows

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

_SIDES = ("view", "table")
Get = Callable[[object], dict[str, object] | None]


def measure(options: Options) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder, ExitStack() as stack:
        url = f"embedded:{Path(folder) / 'store'}"
        prepare(url, options.workload(), [V1], fill_here, changes=False)
        db = stack.enter_context(vk.connect(url))
        keys = _keys(db, options)
        gets: dict[str, Get] = {"view": db.view("v1").get, "table": db.table("r").get}
        gets |= {f"bare_{side}": stack.enter_context(_Bare(db, side, Path(folder) / side)).get for side in _SIDES}
        for side in _SIDES:
            if [gets[side](key) for key in keys[side]] != [gets[f"bare_{side}"](key) for key in keys[side]]:
                raise WrongResult(f"{side}: the product and the bare get do not answer the same")
        took: dict[str, list[float]] = {name: [] for name in gets}
        for _ in range(options.rounds):
            for name, get in gets.items():
                took[name].append(_nanoseconds(get, keys[name.removeprefix("bare_")]))
    middle = {name: median(values, 1) for name, values in took.items()}
    return {
        "rows": options.rows,
        "gets": options.gets,
        "rounds": options.rounds,
        "seed": options.seed,
        **{f"{name}_get_ns": spread(values) for name, values in took.items()},
        "ratio_view_to_bare": round(middle["view"] / middle["bare_view"], 2),
        "ratio_table_to_bare": round(middle["table"] / middle["bare_table"], 2),
        "ratio_view_to_table": round(middle["view"] / middle["table"], 2),
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, {figures['rounds']} rounds of {figures['gets']:,} gets, snapshot mode"
    for side in _SIDES:
        ours, bare = (figures[f"{name}_get_ns"]["median"] for name in (side, f"bare_{side}"))
        yield f"  {side + '.get':10} {ours:9,.0f} ns   bare {bare:9,.0f} ns   {figures[f'ratio_{side}_to_bare']:.2f}x"
    yield f"  view.get / table.get: {figures['ratio_view_to_table']:.2f}"


class _Bare:
    """The same rows in an environment of their own, reached by py-lmdb alone."""

    def __init__(self, db: Database, side: str, path: Path) -> None:
        self._environment = lmdb.open(str(path), map_size=1 << 36, sync=False, metasync=False, readahead=False)
        if side == "view":
            view = db.view("v1")
            self._name, self._columns = "view v1", view.definition.node.key
            self._decode = partial(record_of, view.definition)
            pairs: Iterator[tuple[bytes, bytes]] = (
                pair
                for _, *found in view._records(((), None, None), None, 10.0)
                for pair in zip(*(part.to_pylist() for part in found), strict=True)
            )
        else:
            table = db.table("r")
            self._name, self._columns = "table r", table.schema.key_columns
            self._decode = partial(_to_dict, table.schema)
            pairs = scan_rows(db.store, table.schema.id, b"", None)
        with self._environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(pairs)

    def __enter__(self) -> _Bare:
        return self

    def __exit__(self, *error: object) -> None:
        self._environment.close()

    def get(self, key: object) -> dict[str, object] | None:
        encoded = key_bytes(self._name, self._columns, (key,))
        with self._environment.begin() as transaction:
            row = transaction.get(encoded)
        return None if row is None else self._decode(encoded, row)


def _keys(db: Database, options: Options) -> dict[str, list]:
    chosen = random.Random(options.seed)
    groups = db.view("v1").to_arrow()["x"].to_pylist()
    return {
        "view": chosen.choices(groups, k=options.gets),
        "table": [f"k{number:09d}" for number in chosen.choices(range(options.rows), k=options.gets)],
    }


def _nanoseconds(get: Get, keys: Sequence[object]) -> float:
    began = time.perf_counter_ns()
    for key in keys:
        get(key)
    return (time.perf_counter_ns() - began) / len(keys)
