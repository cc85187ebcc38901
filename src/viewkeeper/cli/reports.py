"""Reports: status, explain and check.

In: a store's URL. Out: the state of the store, for people or as JSON. Always: nothing in the store is changed, but for what
the last check of each view found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from viewkeeper.cli.answers import print_rows
from viewkeeper.cli.failures import CHECK_FAILED
from viewkeeper.cli.jsonlines import print_json, record_text, to_json_text
from viewkeeper.cli.opening import open_database
from viewkeeper.cli.options import JsonObject, Url
from viewkeeper.cli.output import print_facts, print_text, size_text, working
from viewkeeper.cli.quiet import quiet_java
from viewkeeper.errors import InputError
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.check.report import CheckReport, Finding, RepairReport
    from viewkeeper.client.status import Status, ViewStatus

_FINDINGS_SHOWN_MAX = 20


class Since(StrEnum):
    """From where on a check compares."""

    LAST = "last"


Progress = Callable[[int, int], None]
Report = TypeVar("Report", "CheckReport", "RepairReport")


def status(url: Url, json: JsonObject = False) -> None:
    """Print the state of the pipeline, how far the views lag, and how much the log holds."""
    with open_database(url, read_only=True) as database:
        found = database.status()
    if json:
        print_json(asdict(found))
    else:
        _print_status(found)


def explain(
    url: Url,
    view: Annotated[
        str | None, typer.Argument(metavar="VIEW", help="A view; all when left out.", show_default=False)
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw the plan to this file, `plan.svg`. Needs Graphviz.", show_default=False
        ),
    ] = None,
) -> None:
    """Print the plan that maintains a view, or the merged plan of all views.

    Each line is a node: a base table, δ, σ, π, γ, ⋈, ∪, top or a view. Comments show the zones, that is, the row keys;
    the tables that a node keeps; and the views that share it.
    """
    if mermaid and picture is not None:
        raise InputError("a plan is printed as Mermaid or written as a picture, not both", "leave one of them out")
    if picture is not None and picture.suffix.lower() != ".svg":
        raise InputError(f"a picture is an SVG file, and {picture} is not called one", "end its name in .svg")
    with open_database(url, read_only=True) as database:
        if picture is None:
            print_text(database.explain(view, form="mermaid" if mermaid else "text"))
            return
        drawn = database.explain(view, form="svg")
    _write(picture, drawn)
    print_text(f"{picture} written")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}", "name a file in a directory of yours") from None


def check(
    url: Url,
    views: Annotated[
        list[str] | None, typer.Argument(metavar="VIEW", help="Views; all when left out.", show_default=False)
    ] = None,
    since: Annotated[
        Since | None,
        typer.Option(
            help="Compare only what changes after each view's last check can have touched.", show_default=False
        ),
    ] = None,
    json: JsonObject = False,
) -> None:
    """Recompute views from scratch with Spark SQL. Exit code 1 when one is wrong or cannot be judged. Needs Java 17.

    Of auxiliary tables only records whose bytes are damaged are found; `repair` compares them all. `status` shows when each
    view was last checked. To put records right, run `repair`. `--since last` sees no damage in records that no change has
    touched; views that it has to check as a whole are named, with the reason.
    """
    with open_database(url, read_only=True) as database:
        report = with_progress(
            lambda progress: database.check(views or None, progress=progress, since="last" if since else None)
        )
    tell_verdict(report, print_report, json=json)


def with_progress(work: Callable[[Progress | None], Report]) -> Report:
    """Do what Spark computes, with a spinner that counts the views; Ctrl-C ends it."""
    from viewkeeper.client.interrupting import interruptibly
    from viewkeeper.engine.session import cancel_jobs

    with quiet_java(), working("Spark starts …") as shown:
        progress = _counted(shown)
        return interruptibly(lambda: work(progress), cancel_jobs)


def tell_verdict(report: Report, tell: Callable[[Report], None], *, json: bool) -> None:
    """Print a report; the exit code says whether it is a good one."""
    if json:
        print_json(asdict(report))
    else:
        tell(report)
    if not report.ok:
        raise typer.Exit(CHECK_FAILED)


def _counted(shown: object) -> Progress | None:
    """Shows on the spinner how many views are judged; None without a spinner."""
    update = getattr(shown, "update", None)
    return update and (lambda done, total: update(f"recomputing the views with Spark: {done:,} of {total:,} …"))


def print_report(report: CheckReport) -> None:
    """The verdict, and the first findings."""
    names = ", ".join(report.views) or "no views"
    for note in report.notes:
        print_text(f"note: {note}", style="yellow")
    for epoch in sorted(set(report.since.values())):
        told = ", ".join(name for name, since in report.since.items() if since == epoch)
        print_text(f"only what changed after epoch {epoch}: {told}")
    if not report.views and not report.findings:
        print_text("nothing to check: there is no view that is filled", style="yellow")
        return
    if not report.ok and not report.findings:
        print_text(f"not whole: {names} as recomputed, {report.records:,} records at epoch {report.epoch}", style="red")
        return
    if report.ok:
        print_text(f"ok: {names} as recomputed, {report.records:,} records at epoch {report.epoch}", style="green")
        return
    wrong = counted(len(report.findings), "record") + (" is" if len(report.findings) == 1 else " are")
    print_text(f"not ok: {wrong} wrong at epoch {report.epoch}", style="red")
    shown = report.findings[:_FINDINGS_SHOWN_MAX]
    rows = [
        (found.view, to_json_text(found.key), found.kind, record_text(found.expected), _found_text(found))
        for found in shown
    ]
    print_rows(("view", "key", "kind", "expected", "found"), rows)
    if len(report.findings) > len(shown):
        print_text(f"and {len(report.findings) - len(shown):,} more; --json lists all", style="dim")


def _found_text(found: Finding) -> str | None:
    """The record that was found, and what else is to be said of it."""
    told = [text for text in (record_text(found.found), found.why) if text is not None]
    return "; ".join(told) or None


def _print_status(found: Status) -> None:
    running = f"running, pid {found.pipeline_pid}" if found.pipeline_pid else "not running"
    lag = f"{counted(found.lag_changes, 'change')}, {found.lag_seconds:.1f} s" if found.lag_changes else "none"
    lag = lag if found.log_lost is None else "not known"
    facts = {
        "store": found.url,
        "pipeline": running,
        "epoch": f"{found.epoch}" + (f" ({found.inflight} under way{_tasks_text(found)})" if found.inflight else ""),
        "lag": lag,
        "log": "1 entry" if found.log_entries == 1 else f"{found.log_entries:,} entries",
        "size": size_text(found.bytes_used),
        "tables": ", ".join(found.tables) or "none",
        "views": "none" if not found.views else f"{len(found.views)}",
    }
    print_facts(facts)
    if found.views:
        columns = ("view", "kind", "state", "size", "last check", "note")
        print_rows(columns, [_view_row(view) for view in found.views])
    if len(found.nodes) > 1:
        print_rows(("node", "slots", "rows", "state"), [(n.number, n.slots, n.rows, n.state) for n in found.nodes])
    aside = [row for view in found.views for row in _aside_rows(view)]
    if aside:
        print_rows(("view", "row set aside", "reason"), aside)
    for warning in found.warnings:
        print_text(f"warning: {warning}", style="yellow")


def _tasks_text(found: Status) -> str:
    return "" if found.inflight_tasks is None else ", {} of {} tasks done".format(*found.inflight_tasks)


def _aside_rows(view: ViewStatus) -> list[tuple[str, str, str]]:
    """The first rows that a view sets aside, with the key as it is in the source."""
    listed = zip(view.set_aside.keys, view.set_aside.reasons, strict=True)
    return [(view.name, to_json_text(key), reason or "not known") for key, reason in listed]


def _view_row(view: ViewStatus) -> tuple[str, ...]:
    return view.name, view.kind, view.state, size_text(view.bytes), _check_text(view), note_of(view)


def _check_text(view: ViewStatus) -> str:
    """When the view was last checked or repaired, and what was found."""
    told = []
    if view.checked is not None:
        found = f"{view.checked.findings:,} wrong" if view.checked.findings else "right"
        whole = view.checked.whole
        part = f", as a whole at epoch {whole}" if whole and whole != view.checked.epoch else ""
        told.append(f"{found} at epoch {view.checked.epoch}, {time_text(view.checked.stamp)}{part}")
    if view.repaired is not None:
        done = view.repaired.records + view.repaired.auxiliary
        told.append(f"{counted(done, 'record')} repaired by epoch {view.repaired.epoch}")
    return "; ".join(told) or "never"


def time_text(stamp: int) -> str:
    """An instant of the store's clock, in UTC."""
    return datetime.fromtimestamp(stamp / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def note_of(view: ViewStatus) -> str:
    """What a view's state means, in a few words."""
    if view.state == "lagging":
        return (
            f"{counted(view.lag_changes, 'change')}, {view.lag_seconds:.1f} s"
            if view.lag_changes
            else "changes are lost"
        )
    if view.filling is not None:
        rows, total = view.filling
        return f"{rows:,} of about {total:,} rows"
    if view.state == "filling":
        return "to be filled"
    counts = ((view.set_aside.count, "row", "set aside"), (view.degraded.count, "group", "degraded"))
    told = [f"{counted(count, what)} {state}" for count, what, state in counts if count]
    told += [] if view.replacement is None else [view.replacement]
    return "; ".join(told)
