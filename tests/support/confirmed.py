"""Answers that Spark confirmed, as digests in `tests/golden/spark`: a run without a JVM sees whether one has changed.

In: a question and our answer. Out: lines `digest group: name`, in files that people can compare. Always: a digest holds the
question, the answer and PySpark's version; only a test in which Spark gave the same answer writes one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import version

from tests.support.random_plans import RandomOracle, WorldPlan
from tests.support.source_tree import ROOT
from tests.support.spark_match import Sample

FOLDER = ROOT / "tests" / "golden" / "spark"
ASK_SPARK = 'GOLDEN=write make test-deep ARGS="-k match_spark"'
# A WITH inside a branch of EXCEPT: Spark 4.3 stops with an internal error.
LOST_BY_SPARK = {(54, "v15")}


def digest(*parts: object) -> str:
    told = "\n".join([version("pyspark"), *map(repr, parts)])
    return hashlib.blake2b(told.encode(), digest_size=6).hexdigest()


def of_expressions(sample: Sample, texts: Iterable[str]) -> dict[str, str]:
    """Of each expression over the sample's rows: its type, its values, which rows fail, and how it is printed again."""
    delta, rows = sample.delta(), digest(sample.columns, sample.values)
    return {
        text: digest(
            rows, text, sample.printed(text), sample.bound(text).type.spark, sorted(sample.ours(text, delta).items())
        )
        for text in texts
    }


def of_world(plan: WorldPlan, oracle: RandomOracle) -> dict[str, str]:
    """Of each random view of a world: what it holds over the last rows. The oracle has the plan's views."""
    tables = plan.final_tables()
    oracle.load(tables)
    rows = digest(tables.rows)
    return {
        view.name: digest(rows, view.sql.spark, sorted(map(repr, oracle.bag(view).items())))
        for view in plan.views
        if (plan.seed, view.name) not in LOST_BY_SPARK
    }


def not_confirmed(kind: str, group: str, digests: Mapping[str, str]) -> list[str]:
    """The names whose answer is not the one that Spark confirmed, or of which Spark was never asked."""
    confirmed = _read(kind).get(group, {})
    return [name for name in digests.keys() | confirmed.keys() if digests.get(name) != confirmed.get(name)]


def confirm(kind: str, group: str, digests: Mapping[str, str]) -> None:
    """Spark has answered all of the group; record it when that is asked for."""
    if os.environ.get("GOLDEN") != "write":
        return
    groups = _read(kind) | {group: digests}
    lines = [f"{found} {one}: {name}\n" for one, part in groups.items() for name, found in part.items()]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{kind}.txt").write_text("".join(lines), encoding="utf-8")


def _read(kind: str) -> dict[str, dict[str, str]]:
    """Group → name → digest."""
    file = FOLDER / f"{kind}.txt"
    groups: dict[str, dict[str, str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        found, title = line.split(" ", 1)
        group, name = title.split(": ", 1)
        groups.setdefault(group, {})[name] = found
    return groups
