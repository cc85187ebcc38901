"""The benchmarks' command line: `python -m benchmarks [QUESTION] [options]`.

In: a question's name, or nothing for all of them, and sizes. Out: lines for a person, JSON under `results/`. Always:
each question runs in a process of its own, so that none warms up another.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.workload import Workload

QUESTIONS = ("first_speed", "epoch_steps", "visibility", "idle_cost")


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.question is None:
        commands = [[sys.executable, "-m", "benchmarks", question, *arguments] for question in QUESTIONS]
        return max(subprocess.run(command, check=False).returncode for command in commands)
    _run(options)
    return 0


def _run(options: argparse.Namespace) -> None:
    workload = Workload(options.rows, options.changes, options.seed)
    match options.question:
        case "first_speed":
            from benchmarks import first_speed

            first_speed.main(
                workload,
                runs=options.runs,
                view_managers=options.view_managers,
                changes_per_epoch=options.changes_per_epoch,
            )
        case "epoch_steps":
            from benchmarks import epoch_steps

            size = options.changes_per_epoch or options.changes
            epoch_steps.main(workload, runs=options.runs, changes_per_epoch=size)
        case "visibility":
            from benchmarks import visibility

            visibility.main(puts=options.puts)
        case "idle_cost":
            from benchmarks import idle_cost

            idle_cost.main(seconds=options.seconds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Questions about ViewKeeper's speed.")
    parser.add_argument("question", nargs="?", choices=QUESTIONS, help="one question; all of them when left out")
    parser.add_argument("--rows", type=int, default=Workload().rows, help="rows loaded before the view is filled")
    parser.add_argument("--changes", type=int, default=Workload().changes, help="changes that are measured")
    parser.add_argument("--seed", type=int, default=Workload().seed)
    parser.add_argument("--runs", type=int, default=3, help="measured runs of each system, after one that warms up")
    parser.add_argument("--view-managers", type=int, default=2)
    parser.add_argument("--changes-per-epoch", type=int, default=None, help="the pipeline's own size when left out")
    parser.add_argument("--puts", type=int, default=50, help="of the visibility question")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the idle question")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
