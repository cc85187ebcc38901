"""The benchmarks' command line: `python -m benchmarks [QUESTION …] [options]` and `python -m benchmarks compare`.

In: names of questions, or nothing for all of them, and sizes. Out: lines for a person, JSON and a picture for each
question. Always: each question runs in a process of its own, so that none warms up another; a quick run's figures never
take the place of a full run's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.results import FOLDER, QUICK_FOLDER, write_result
from benchmarks.views import VIEW_SETS
from benchmarks.workload import DISTRIBUTIONS

# Each question is a module with `measure(options) -> figures` and `tell(figures) -> lines`.
QUESTIONS = {
    "first_speed": "how much faster is an epoch than the papers' per-operation algorithm (V1, uniform)?",
    "single_table": "the same for V1, V2 and twenty views, uniform and zipf, with before-images and without",
    "join": "the same for V3, a join of which both tables change",
    "join_growth": "does a change of a join's tables cost more when the tables are larger?",
    "join_memory": "peak memory when a row changes that matches 1,000,000 others",
    "flights": "everyday work over flights and eighteen views: first fill, check, one change, SELECT, scan",
    "tpch": "ten queries of TPC-H, refreshed ten times, against a recomputation by Spark",
    "refresh": "a refresh after every 10,000 changes against a recomputation by Spark",
    "reads": "view.get and table.get against a bare LMDB get",
    "put_latency": "put, p50 and p99, with the pipeline running and stopped",
    "memory": "peak memory for a backlog of 1,000,000 and of 5,000,000 changes",
    "epoch_steps": "where does the time of an epoch go, in one process and on Spark?",
    "chain": "what does one more view over a view cost?",
    "dashboards": "what do 1, 10, 100 and 300 views over one table or join cost, optimized and not?",
    "cost_ranking": "of several plans for the same views, does the optimizer choose the cheaper one?",
    "visibility": "how long until a single put is seen in a view?",
    "planted_errors": "does a check find 1,000 planted errors, and a repair put them right, while writes go on?",
    "manager_kills": "throughput while one of four view managers is killed every ten seconds, against none killed",
    "manager_scaling": "throughput with 1, 2, 4 and 2 view managers in turn, and is each state that a reader sees right?",
    "manager_skew": "how uneven is the work of managers when most changes are under one first key part?",
    "node_changes": "a node added and removed under load: writes, lag, and is any row lost or out of order?",
    "idle_cost": "what does a pipeline use that has nothing to do?",
    "hbase_speed": "over HBase: how much faster is an epoch than the papers' per-operation algorithm?",
    "hbase_views": "over HBase: changes per second by view and view managers (paper 1, figures 6 to 8)",
    "hbase_reads": "over HBase: a count by scan and from a view, by the table's size (figure 9)",
    "hbase_scale": "over HBase: region servers, skew and many views (figures 10, 11 and 13)",
    "hbase_writes": "over HBase: base writes with maintenance and without (figure 12)",
    "hbase_crash": "over HBase: a region server, and the pipeline, killed under load (figure 14)",
    "hbase_costs": "over HBase: CPU, requests and bytes for a change; what nothing costs; how fast logs are read",
}


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["compare"]:
        from benchmarks import compare

        return compare.main(arguments[1:])
    parser = _parser()
    given = parser.parse_args(arguments)
    unknown = [name for name in given.questions if name not in QUESTIONS]
    if unknown:
        parser.error(f"no such question: {', '.join(unknown)} (known: {', '.join(QUESTIONS)})")
    if len(given.questions) == 1:
        _ask(given.questions[0], _options(given), given.results)
        return 0
    options = [word for word in arguments if word not in QUESTIONS]
    asked = given.questions or list(QUESTIONS)
    commands = [[sys.executable, "-m", "benchmarks", question, *options] for question in asked]
    return max(subprocess.run(command, check=False).returncode for command in commands)


def _ask(question: str, options: Options, folder: Path | None) -> None:
    module = import_module(f"benchmarks.{question}")
    figures = {"quick": True, **module.measure(options)} if options.quick else module.measure(options)
    file = write_result(question, figures, folder or (QUICK_FOLDER if options.quick else FOLDER))
    print(f"{question}: {QUESTIONS[question]}")
    for line in module.tell(figures):
        print(f"  {line}")
    print(f"  {file}")
    from benchmarks import plots

    print(f"  {plots.draw(file) or 'no picture: matplotlib is not installed, or none is drawn for this question'}")


def _options(given: argparse.Namespace) -> Options:
    named: dict[str, Any] = {field.name: getattr(given, field.name) for field in fields(Options)}
    options = Options(**{name: _frozen(value) for name, value in named.items()})
    return options.quickly() if options.quick else options


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _parser() -> argparse.ArgumentParser:
    told = "\n".join(f"  {name:16} {question}" for name, question in QUESTIONS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Questions about ViewKeeper's speed; all of them when none is named.\n\n" + told,
        epilog="python -m benchmarks compare [OLD] NEW   old / new of every figure, and what got worse",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    full = Options()
    add = parser.add_argument
    add("questions", nargs="*", metavar="QUESTION")
    add("--quick", action="store_true", help="tiny sizes: says whether it works, not how fast it is")
    add("--results", type=Path, help="folder for JSON and pictures (benchmarks/results; a quick run: .bench/quick)")
    sizes = parser.add_argument_group("sizes")
    for name, text in _SIZES.items():
        default = getattr(full, name)
        sizes.add_argument(
            f"--{name.replace('_', '-')}",
            type=int if default is None else type(default),
            default=default,
            metavar="N",
            help=f"{text} ({'its own' if default is None else f'{default:,}'})",
        )
    sizes.add_argument("--backlogs", type=int, nargs=2, default=full.backlogs, metavar="N", help="of memory")
    sizes.add_argument("--sizes", type=int, nargs="+", default=full.sizes, metavar="N", help="of join_growth, in rows")
    sizes.add_argument("--matches", type=int, nargs="+", default=full.matches, metavar="N", help="of join_memory")
    sizes.add_argument("--hbase-counts", type=int, nargs="+", default=full.hbase_counts, metavar="N", help="of views")
    sizes.add_argument(
        "--hbase-sizes", type=int, nargs="+", default=full.hbase_sizes, metavar="N", help="of hbase_reads"
    )
    sizes.add_argument(
        "--counts", type=int, nargs="+", default=full.counts, metavar="N", help="of views, in dashboards"
    )
    cases = parser.add_argument_group("cases of single_table, first_speed and epoch_steps")
    cases.add_argument("--distributions", nargs="+", choices=DISTRIBUTIONS, default=full.distributions)
    cases.add_argument("--views", nargs="+", choices=list(VIEW_SETS), default=full.views)
    cases.add_argument(
        "--pipeline-alone", action="store_true", help="without the papers' algorithm, which takes longest"
    )
    return parser


_SIZES = {
    "rows": "rows loaded before the views are filled",
    "changes": "changes that are measured",
    "seed": "of rows and changes",
    "runs": "measured runs of each system, after one that warms up",
    "view_managers": "of the pipeline",
    "changes_per_epoch": "of the pipeline",
    "refreshes": "of refresh and tpch",
    "changes_per_refresh": "of refresh",
    "changes_per_size": "of join_growth, at each size, and of dashboards over a table",
    "join_rows": "of dashboards over a join",
    "join_changes": "of dashboards over a join",
    "ratio_changes": "of dashboards, many views against one",
    "scale": "of tpch",
    "puts": "of visibility and dashboards",
    "gets": "of reads, in each round",
    "rounds": "of reads",
    "live_rows": "of manager_kills, manager_scaling, manager_skew and node_changes",
    "hot_share": "of the changes of manager_skew",
    "part_seconds": "of each part of manager_kills, manager_scaling and node_changes",
    "kill_seconds": "from kill to kill, in manager_kills",
    "rate": "changes that node_changes writes in a second, at most",
    "seconds": "of idle_cost, and of each part of put_latency",
    "hbase_rows": "of the base table in HBase",
    "hbase_changes": "of each turn over HBase",
    "hbase_gets": "of hbase_reads",
    "hbase_write_seconds": "of each turn of hbase_writes",
    "hbase_turns": "of hbase_writes, with and without",
    "hbase_rate": "rows that hbase_crash writes in a second",
    "hbase_crash_seconds": "of each part of hbase_crash",
    "hbase_operations": "of the papers' algorithm, in each turn",
}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
