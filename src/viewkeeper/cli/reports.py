"""Reports: status, explain and check.

In: a store's URL. Out: the state of the store, for people or as JSON. Always: nothing in the store is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.cli.answers import print_rows
from viewkeeper.cli.jsonlines import print_json, to_json_text
from viewkeeper.cli.opening import open_database
from viewkeeper.cli.output import print_facts, print_text, size_text, working
from viewkeeper.cli.quiet import quiet_java
from viewkeeper.client.interrupting import interruptibly
from viewkeeper.engine.session import cancel_jobs
from viewkeeper.errors import InputError

if TYPE_CHECKING:
    from viewkeeper.check.report import CheckReport
    from viewkeeper.client.status import Status, ViewStatus

_FINDINGS_SHOWN_MAX = 20


def status(url: str, *, as_json: bool) -> None:
    """Print the state of the pipeline."""
    with open_database(url, read_only=True) as database:
        found = database.status()
    if as_json:
        print_json(asdict(found))
    else:
        _print_status(found)


def explain(url: str, view: str | None, *, mermaid: bool, picture: Path | None) -> None:
    """Print the plan of a view, or of all, or write it as a picture."""
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


def check(url: str, views: Sequence[str], *, as_json: bool) -> bool:
    """Compare views with their recomputation and print the findings; returns whether all is well."""
    with open_database(url, read_only=True) as database:
        with quiet_java(), working("Spark starts …") as shown:
            progress = _counted(shown)
            report = interruptibly(lambda: database.check(list(views) or None, progress=progress), cancel_jobs)
    if as_json:
        print_json(asdict(report))
    else:
        print_report(report)
    return report.ok


def _counted(shown: object) -> Callable[[int, int], None] | None:
    """Shows on the spinner how many views are judged; None without a spinner."""
    update = getattr(shown, "update", None)
    return update and (lambda done, total: update(f"recomputing the views with Spark: {done:,} of {total:,} …"))


def print_report(report: CheckReport) -> None:
    """The verdict, and the first findings."""
    names = ", ".join(report.views) or "no views"
    for note in report.notes:
        print_text(f"note: {note}", style="yellow")
    if not report.ok and not report.findings:
        print_text(f"not whole: {names} as recomputed, {report.records:,} records at epoch {report.epoch}", style="red")
        return
    if report.ok:
        print_text(f"ok: {names} as recomputed, {report.records:,} records at epoch {report.epoch}", style="green")
        return
    print_text(f"not ok: {len(report.findings):,} records are wrong at epoch {report.epoch}", style="red")
    shown = report.findings[:_FINDINGS_SHOWN_MAX]
    rows = [
        (found.view, to_json_text(found.key), found.kind, _record(found.expected), _record(found.found))
        for found in shown
    ]
    print_rows(("view", "key", "kind", "expected", "found"), rows)
    if len(report.findings) > len(shown):
        print_text(f"and {len(report.findings) - len(shown):,} more; --json lists all", style="dim")


def _record(record: dict[str, object] | None) -> str | None:
    return None if record is None else to_json_text(record)


def _print_status(found: Status) -> None:
    running = f"running, pid {found.pipeline_pid}" if found.pipeline_pid else "not running"
    lag = f"{found.lag_changes:,} changes, {found.lag_seconds:.1f} s" if found.lag_changes else "none"
    facts = {
        "store": found.url,
        "pipeline": running,
        "epoch": f"{found.epoch}" + (f" ({found.inflight} under way)" if found.inflight else ""),
        "lag": lag,
        "log": f"{found.log_entries:,} entries",
        "size": size_text(found.bytes_used),
        "tables": ", ".join(found.tables) or "none",
        "views": "none" if not found.views else f"{len(found.views)}",
    }
    print_facts(facts)
    if found.views:
        print_rows(("view", "kind", "state"), [(view.name, view.kind, state_of(view)) for view in found.views])
    aside = [row for view in found.views for row in _aside_rows(view)]
    if aside:
        print_rows(("view", "row set aside", "reason"), aside)
    for warning in found.warnings:
        print_text(f"warning: {warning}", style="yellow")


def _aside_rows(view: ViewStatus) -> list[tuple[str, str, str]]:
    """The first rows that a view sets aside, with the key as it is in the source."""
    listed = zip(view.set_aside.keys, view.set_aside.reasons, strict=True)
    return [(view.name, to_json_text(key), reason or "not known") for key, reason in listed]


def state_of(view: ViewStatus) -> str:
    """A view's state in a few words."""
    if view.stopped is not None:
        return "stopped"
    if view.filling is not None:
        rows, total = view.filling
        return f"filling, {rows:,} of about {total:,} rows"
    state = "to be filled" if view.ready is None else "degraded" if view.degraded.count else "ready"
    return state if view.replacement is None else f"{state}; being replaced, {view.replacement}"
