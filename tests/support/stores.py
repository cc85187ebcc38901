"""Small worlds: a database with a table and views of every kind, and a few rounds of changes to it.

In: a folder. Out: an open database. Always: `sync=off`, because these tests kill processes, not machines.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from tests.support.histories import TEXT, Change, HistoryMaker, Shape, state_after
from tests.support.oracle import CASES, Oracle, bag_of

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

NAME = "t"


def make_database(
    folder: Path,
    *,
    nodes: int = 1,
    shape: Shape = TEXT,
    cases: tuple[str, ...] | None = None,
    before_images: bool = True,
    scheme: str = "embedded",
) -> Database:
    """A store in `folder`, or called so, with one table and the wanted views of `oracle.CASES`; all of them by default."""
    options = f"nodes={nodes}&before_images={'on' if before_images else 'off'}"
    db = vk.connect(f"{scheme}:{folder}?{options}{'&sync=off' if scheme == 'embedded' else ''}")
    make_views(db, shape=shape, cases=cases)
    return db


def make_views(db: Database, *, shape: Shape = TEXT, cases: tuple[str, ...] | None = None) -> None:
    """The table, and the views."""
    db.execute(f"CREATE TABLE {NAME} {shape.ddl}")
    key = ", ".join(name for name, _ in shape.columns)
    for case in CASES:
        if cases is None or case.name in cases:
            db.execute(case.definition.format(v=case.name, t=NAME, k=key))


def drop_views(db: Database) -> None:
    """Drop all views and indexes."""
    for view in db.catalog().views:
        db.execute(f"DROP {'INDEX' if view.kind == 'INDEX' else 'MATERIALIZED VIEW'} {view.name}")


def write(db: Database, changes: list[Change]) -> vk.Token | None:
    """The changes, one transaction each; the last one's token."""
    table, token = db.table(NAME), None
    for change in changes:
        match change.kind:
            case "put":
                token = table.put(*change.key, dict(change.columns))
            case "clear":
                token = table.delete(*change.key, columns=[name for name, _ in change.columns])
            case _:
                token = table.delete(*change.key)
    return token


def rounds(seed: int, count: int, *, shape: Shape = TEXT, histories: int = 3, steps: int = 12) -> list[list[Change]]:
    """Changes for `count` epochs, in which the same rows change again and again."""
    changes = HistoryMaker(shape, seed).interleaved(0, histories, steps * count)
    size = -(-len(changes) // count)
    return [changes[at : at + size] for at in range(0, len(changes), size)]


def wrong_views(
    db: Database, changes: list[Change], *, names: tuple[str, ...] | None = None, shape: Shape = TEXT
) -> list[str]:
    """Which views (all by default) do not equal the recomputation over the state after `changes`."""
    oracle = Oracle(shape)
    oracle.load(state_after(changes))
    cases = {case.name: case for case in CASES}
    wanted = names or tuple(view.name for view in db.catalog().views)
    with db.snapshot() as snapshot:
        found = {name: bag_of(row.values() for row in snapshot.view(name).scan()) for name in wanted}
    return [name for name, bag in found.items() if bag != oracle.bag(cases[name])]
