"""Cost ranking: of two plans for the same views, does the cost model name the cheaper one?

In: a seed and a number of pairs. Out: for each pair, views drawn at random with one rule on and off: the CPU time of an
epoch as predicted and as measured, and how often the prediction was right. Always: in one process without Spark; both
plans have the same rows and the same changes, and take turns; pairs that differ by less than a tenth are not judged.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.workload import fill_here
from viewkeeper.client.database import Database
from viewkeeper.client.explaining import read_statistics
from viewkeeper.plan.cost.cost_model import plan_cost, planned_nodes
from viewkeeper.plan.cost.costs import Weights

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


@dataclass(frozen=True, slots=True)
class Side:
    """One of two plans: CPU seconds of an epoch, as predicted and as measured."""

    predicted: float
    measured: float


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


def prepare(path: Path, views: list[str], rule: str, seed: int, *, is_on: bool) -> Database:
    """A database whose views are filled, with the rule on or off."""
    db = vk.connect(f"embedded:{path}?sync=off")
    off = () if is_on else (rule,)
    db.change_catalog(lambda catalog: replace(catalog, version=catalog.version + 1, rules_off=off))
    db.execute(TABLES)
    for number, text in enumerate(views):
        db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {text}")
    if is_on and rule == "share_groupings":
        db.execute("OPTIMIZE VIEWS")
    for table, rows in ROWS.items():
        db.table(table).put_many(drawn_rows(random.Random(seed), table, list(range(rows))))
    fill_here(db)
    return db


def change(db: Database, seed: int, changes: int) -> None:
    """Updates of rows drawn at random: one in ten of a shop or a part."""
    choose = random.Random(seed)
    for table, share in (("orders", 0.9), ("shops", 0.02), ("parts", 0.08)):
        keys = [choose.randrange(ROWS[table]) for _ in range(max(1, int(changes * share)))]
        db.table(table).put_many(drawn_rows(choose, table, keys))


def epoch_seconds(db: Database) -> float:
    began = time.process_time()
    fill_here(db)
    return time.process_time() - began


def predicted(db: Database) -> float:
    """From the numbers of rows and records, and how often each table changes; weights are the defaults."""
    catalog = db.catalog()
    statistics = read_statistics(db.store, catalog, catalog.views)
    cost = plan_cost(catalog.tables, planned_nodes(catalog), statistics)
    return Weights().of_plan(cost)


def compare_plans(folder: Path, number: int, seed: int, changes: int) -> dict[str, Any]:
    rule = RULES[number % len(RULES)]
    views = drawn_views(random.Random(seed), rule)
    taken: dict[bool, list[float]] = {True: [], False: []}
    databases = {on: prepare(folder / f"{number}-{on}", views, rule, seed, is_on=on) for on in (True, False)}
    try:
        for turn in range(TURNS + 1):
            for on, db in databases.items():
                change(db, seed + turn, changes)
                taken[on].append(epoch_seconds(db))
        sides = {on: Side(predicted(db), min(taken[on][1:])) for on, db in databases.items()}
    finally:
        for db in databases.values():
            db.close()
    ratios = {name: getattr(sides[False], name) / getattr(sides[True], name) for name in ("predicted", "measured")}
    is_judged = not 1 / JUDGED < ratios["measured"] < JUDGED
    return {
        "rule": rule,
        "views": len(views),
        "off_over_on": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "milliseconds": {name: round(1000 * getattr(sides[True], name), 2) for name in ("predicted", "measured")},
        "judged": is_judged,
        "right": is_judged and (ratios["predicted"] > 1) == (ratios["measured"] > 1),
    }


def measure(options: Options) -> dict[str, object]:
    changes = options.changes_per_refresh // 5
    count = 2 * len(RULES) if options.quick else PAIRS
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        found = [compare_plans(Path(folder), number, options.seed + number, changes) for number in range(count)]
    return {
        "pairs": count,
        "changes": changes,
        "judged": sum(bool(one["judged"]) for one in found),
        "right": sum(bool(one["right"]) for one in found),
        "cheaper_with_rule": sum(one["judged"] and one["off_over_on"]["measured"] > 1 for one in found),
        "plans": found,
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['pairs']} pairs of plans, epochs of {figures['changes']:,} changes"
    for one in figures["plans"]:
        ratio, verdict = one["off_over_on"], "right" if one["right"] else "wrong" if one["judged"] else "too close"
        yield (
            f"  without {one['rule']:17} {one['views']:2} views: predicted {ratio['predicted']:5.2f} times, "
            f"measured {ratio['measured']:5.2f}: {verdict}"
        )
    yield (
        f"right in {figures['right']} of the {figures['judged']} that differ by more than a tenth; "
        f"the plan with the rule is the cheaper one in {figures['cheaper_with_rule']}"
    )
