"""A reader beside a live load, in a process of its own: `python -m benchmarks.live_reader URL KIND ROWS STEP_ROWS SEED`.

In: a store's URL, sizes, and the end of the standard input, which stops it. Out: how many snapshots it read, of how many
epochs, and how many of them were wrong. Always: with KIND `exact`, V1 and V2 are compared, record by record, with what they
are after the step that they say they are of, computed by numpy from the steps alone, and never go back; with `versions`, of
the copy of all rows none is missing and no row's version is older than in the snapshot before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

import viewkeeper as vk
from benchmarks.beside import tell, until_told
from benchmarks.live_load import LiveLoad, Model, is_equal
from viewkeeper.client.session import Snapshot

Judge = Callable[[Snapshot], bool]


def main(url: str, kind: str, rows: str, step_rows: str, seed: str) -> None:
    load = LiveLoad(int(rows), int(step_rows), int(seed))
    judge = {"exact": exact, "versions": versions}[kind](load)
    read, wrong, epochs, is_over = 0, 0, set(), until_told()
    with vk.connect(url, read_only=True) as db:
        while not is_over.is_set():
            with db.snapshot() as snapshot:
                wrong += not judge(snapshot)
                epochs.add(snapshot.epoch)
            read += 1
    tell({"reads": read, "epochs": len(epochs), "wrong": wrong})


def exact(load: LiveLoad) -> Judge:
    """Whether both views are those of one step, and not of an earlier one than before."""
    model = Model(load)

    def judge(snapshot: Snapshot) -> bool:
        found = [snapshot.view(name).to_arrow() for name in ("v1", "v2")]
        number = int(np.asarray(found[1]["hi"]).max())
        if number < model.number:
            return False
        model.advance(number)
        return all(is_equal(records, expected) for records, expected in zip(found, model.views(), strict=True))

    return judge


def versions(load: LiveLoad) -> Judge:
    """Whether all rows are there, each at least as new as before."""
    known = np.zeros(load.rows, np.int64)

    def judge(snapshot: Snapshot) -> bool:
        nonlocal known
        records = snapshot.view("v3").to_arrow().sort_by("k")
        found = np.asarray(records["y"]).astype(np.int64)
        if len(found) != len(known) or (found < known).any():
            return False
        known = found
        return True

    return judge


if __name__ == "__main__":
    main(*sys.argv[1:])
