"""Cost ranking: of several plans for the same views, does the optimizer choose the one that costs least?

In: a seed and a number of pairs. Out: for each pair, views drawn at random with all rules on, with one rule off, and as
the optimizer itself planned them: the CPU time and the bytes written of an epoch; and how often its own plan was the
cheaper one. Further, sharings that it declines, beside what they would have cost. Always: in one process without Spark;
all plans have the same rows and the same changes, and take turns; pairs that differ by less than a tenth are not judged.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.workload import HereRunner
from viewkeeper.client.database import Database
from viewkeeper.client.explaining import read_statistics
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.plan.cost.cost_model import PlanModel
from viewkeeper.plan.replacements import optimize_views

PAIRS = 36
TURNS = 3
ROWS = {"orders": 20_000, "shops": 1_000, "parts": 4_000}
TABLES = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, region INT, shop BIGINT, amount INT);
CREATE TABLE shops (id BIGINT PRIMARY KEY, region INT, name STRING);
CREATE TABLE parts (id BIGINT PRIMARY KEY, shop BIGINT, price INT)
"""
RULES = ("push_conditions", "imply_conditions", "join_on_one_key", "share_groupings")
JUDGED = 1.1  # the dearer plan takes at least so many times as long
ON, OFF, OWN = "all rules", "one rule off", "own choice"
_FINE = "SELECT shop, amount, COUNT(*) AS n FROM orders GROUP BY shop, amount"  # nearly as many groups as rows
_BY_REGION = "SELECT shop, amount, COUNT(*) AS n, SUM(id) AS s FROM orders WHERE region = {} GROUP BY shop, amount"
# What would be computed together if all were that can be; of how many changes epochs are, for each in the ranking; and how
# many bytes the store moves for one that is written.
DECLINED: dict[str, tuple[Sequence[str], int, float]] = {
    "MIN and MAX of few groups, from many": (
        (_FINE, "SELECT amount, MIN(region) AS lo, MAX(region) AS hi FROM orders GROUP BY amount"),
        1,
        1.0,
    ),
    "SUM of few groups, from many": ((_FINE, "SELECT amount, SUM(region) AS s FROM orders GROUP BY amount"), 1, 1.0),
    "groupings of unlike rows, as over HBase": (tuple(_BY_REGION.format(region) for region in range(10)), 10, 40.0),
}


@dataclass(frozen=True, slots=True)
class Epoch:
    seconds: float  # of CPU
    written: int  # bytes


def drawn_views(choose: random.Random, rule: str) -> list[str]:
    """Texts on whose plan the rule has an effect."""
    least = choose.choice((10, 30, 50, 70, 90))
    some = ", ".join(map(str, sorted(choose.sample(range(10), choose.randint(1, 5)))))
    joined = "FROM orders o JOIN shops s ON o.shop = s.id"
    match rule:
        case "share_groupings":
            by = choose.choice(("region", "shop", "amount"))
            values = ("COUNT(*)", "SUM(amount)", "SUM(shop)", "COUNT(*)")
            wheres = choose.sample([f"amount > {m}" for m in range(5, 95, 5)], choose.randint(2, 10))
            return [f"SELECT {by}, {choose.choice(values)} AS v FROM orders WHERE {w} GROUP BY {by}" for w in wheres]
        case "join_on_one_key":
            rest = "JOIN parts p ON p.shop = s.id"
            return [
                f"SELECT o.id AS o, p.id AS p, s.name {joined} {rest} WHERE o.amount > {least}",
                f"SELECT s.region, COUNT(*) AS n {joined} {rest} WHERE s.region IN ({some}) GROUP BY s.region",
            ][: choose.randint(1, 2)]
        case "imply_conditions":
            either = f"(o.amount > {least} AND s.region = 3) OR (o.amount > {least} AND s.region = 4)"
            return [f"SELECT o.id, s.name {joined} WHERE {either}"]
    return [
        f"SELECT o.id, s.name {joined} WHERE o.amount > {least}",
        f"SELECT s.region, SUM(o.amount) AS t {joined} WHERE o.amount > {least} AND s.region IN ({some}) GROUP BY s.region",
    ][: choose.randint(1, 2)]


def drawn_rows(choose: random.Random, table: str, keys: list[int]) -> pa.Table:
    def number(most: int) -> pa.Array:
        return pa.array([choose.randrange(most) for _ in keys])

    columns: dict[str, pa.Array] = {"id": pa.array(keys, pa.int64())}
    match table:
        case "orders":
            columns |= {
                "region": number(10).cast(pa.int32()),
                "shop": number(1_000),
                "amount": number(100).cast(pa.int32()),
            }
        case "shops":
            columns |= {"region": number(10).cast(pa.int32()), "name": pa.array([f"shop {key}" for key in keys])}
        case _:
            columns |= {"shop": number(1_000), "price": number(100).cast(pa.int32())}
    return pa.table(columns)


def prepare(path: Path, views: Sequence[str], seed: int, rules_off: tuple[str, ...] = ()) -> Database:
    """A database whose views are filled, each by itself where no sharing is there: nothing is known when they are made."""
    db = vk.connect(f"embedded:{path}?sync=off")
    db.change_catalog(lambda catalog: replace(catalog, version=catalog.version + 1, rules_off=rules_off))
    db.execute(TABLES)
    for number, text in enumerate(views):
        db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {text}")
    for table, rows in ROWS.items():
        db.table(table).put_many(drawn_rows(random.Random(seed), table, list(range(rows))))
    run_epochs(db)
    return db


def plan_again(db: Database, rules_off: tuple[str, ...] = (), model: PlanModel | None = None) -> None:
    """OPTIMIZE VIEWS, by the model; without one, all is computed together that can be."""
    record, catalog = db.store.read_epoch_record(), db.catalog()
    statistics = read_statistics(db.store, catalog, catalog.views)
    sizes = {**statistics.rows, **statistics.records}
    known = {"without": rules_off, "filled": record.filled, "sizes": sizes, "model": model}
    db.change_catalog(lambda now: optimize_views(now, record.committed, **known))
    run_epochs(db)


def model_of(db: Database, *, bytes_moved: float = 1.0) -> PlanModel:
    catalog = db.catalog()
    return PlanModel(catalog, read_statistics(db.store, catalog, catalog.views), bytes_moved=bytes_moved)


def change(db: Database, seed: int, changes: int) -> None:
    """Updates of rows drawn at random: one in ten of a shop or a part."""
    choose = random.Random(seed)
    for table, share in (("orders", 0.9), ("shops", 0.02), ("parts", 0.08)):
        keys = [choose.randrange(ROWS[table]) for _ in range(max(1, int(changes * share)))]
        db.table(table).put_many(drawn_rows(choose, table, keys))


def run_epochs(db: Database) -> Epoch:
    began = time.process_time()
    coordinator = Coordinator(db.store, HereRunner(db.store))
    done = coordinator.catch_up()
    coordinator.close()
    seconds = time.process_time() - began
    return Epoch(seconds, sum(work.bytes for epoch in done for work in epoch.counts.tables.values()))


def plan_texts(db: Database) -> list[str]:
    return sorted(node.text for node in db.catalog().nodes)


def take_turns(databases: Mapping[str, Database], seed: int, changes: int) -> dict[str, Epoch]:
    """The least of each database, over the same changes."""
    taken: dict[str, list[Epoch]] = {name: [] for name in databases}
    for turn in range(1, TURNS + 1):
        for name, db in databases.items():
            change(db, seed + turn, changes)
            taken[name].append(run_epochs(db))
    return {
        name: Epoch(min(one.seconds for one in epochs), max(one.written for one in epochs))
        for name, epochs in taken.items()
    }


def compare_plans(folder: Path, number: int, seed: int, changes: int) -> dict[str, Any]:
    rule = RULES[number % len(RULES)]
    views = drawn_views(random.Random(seed), rule)
    off = {ON: (), OFF: (rule,), OWN: ()}
    databases = {name: prepare(folder / f"{number}-{name}", views, seed, rules) for name, rules in off.items()}
    try:
        for name, db in databases.items():
            change(db, seed, changes)
            run_epochs(db)
            plan_again(db, off[name], model_of(db) if name == OWN else None)
            change(db, seed + TURNS + 1, changes)
            run_epochs(db)
        found = take_turns(databases, seed, changes)
        texts = {name: plan_texts(db) for name, db in databases.items()}
    finally:
        for db in databases.values():
            db.close()
    cheaper, dearer = sorted((ON, OFF), key=lambda name: found[name].seconds)
    chosen = next((name for name in (cheaper, dearer) if texts[OWN] == texts[name]), OWN)
    is_judged = found[dearer].seconds >= JUDGED * found[cheaper].seconds
    is_near = found[OWN].seconds <= JUDGED * found[cheaper].seconds
    return {
        "rule": rule,
        "views": len(views),
        "milliseconds": {name: round(1000 * one.seconds, 2) for name, one in found.items()},
        "cheaper": cheaper,
        "chosen": chosen,
        "judged": is_judged,
        "right": is_judged and (chosen == cheaper or (chosen == OWN and is_near)),
    }


def decline(folder: Path, name: str, seed: int, changes: int) -> dict[str, Any]:
    """Views by themselves, as the optimizer leaves them, beside the same computed together all the same."""
    views, times, bytes_moved = DECLINED[name]
    changes *= times
    databases = {how: prepare(folder / f"{name}-{how}", views, seed) for how in (OWN, ON)}
    try:
        for how, db in databases.items():
            change(db, seed, changes)
            run_epochs(db)
            plan_again(db, model=model_of(db, bytes_moved=bytes_moved) if how == OWN else None)
            change(db, seed + TURNS + 1, changes)
            run_epochs(db)
        found = take_turns(databases, seed, changes)
        shared = {how: sum(view.sharing is not None for view in db.catalog().views) for how, db in databases.items()}
    finally:
        for db in databases.values():
            db.close()
    return {
        "views": len(views),
        "changes": changes,
        "bytes_moved": bytes_moved,
        "views_that_share": {"declined": shared[OWN], "shared": shared[ON]},
        "milliseconds": {"declined": 1000 * found[OWN].seconds, "shared": 1000 * found[ON].seconds},
        "bytes": {"declined": found[OWN].written, "shared": found[ON].written},
    }


def measure(options: Options) -> dict[str, object]:
    changes = options.changes_per_refresh // 5
    count = 2 * len(RULES) if options.quick else PAIRS
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        found = [compare_plans(Path(folder), number, options.seed + number, changes) for number in range(count)]
        declined = {name: decline(Path(folder), name, options.seed, changes) for name in DECLINED}
    return {
        "pairs": count,
        "changes": changes,
        "judged": sum(bool(one["judged"]) for one in found),
        "right": sum(bool(one["right"]) for one in found),
        "cheaper_with_rule": sum(one["judged"] and one["cheaper"] == ON for one in found),
        "plans": found,
        "declined": declined,
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['pairs']} pairs of plans, epochs of {figures['changes']:,} changes"
    for one in figures["plans"]:
        verdict = "right" if one["right"] else "wrong" if one["judged"] else "too close"
        taken = ", ".join(f"{name} {ms:6.2f} ms" for name, ms in one["milliseconds"].items())
        yield f"  {one['rule']:17} {one['views']:2} views: {taken} ({one['chosen']}): {verdict}"
    yield (
        f"the optimizer's own plan is the cheaper one in {figures['right']} of the {figures['judged']} that differ by more "
        f"than a tenth; the plan with all rules is in {figures['cheaper_with_rule']}"
    )
    for name, one in figures["declined"].items():
        taken = ", ".join(
            f"{how} {one['milliseconds'][how]:.2f} ms, {one['bytes'][how]:,} bytes" for how in ("declined", "shared")
        )
        yield f"  {name}, {one['views']} views, {one['changes']:,} changes: {taken}"
