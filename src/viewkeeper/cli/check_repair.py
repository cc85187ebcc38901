"""Check and repair: check, repair, rebuild and set-aside.

In: a store's URL and names of views. Out: a verdict; views whose records are right, and what was done; the rows that a
view lacks, tried again or dropped if asked. Always: `check` changes nothing but the verdict that it stores; a pipeline
that runs does the work of a repair, and without one this process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from viewkeeper.cli.display import quiet_java, working
from viewkeeper.cli.exit_codes import CHECK_FAILED
from viewkeeper.cli.formats import read_json, record_text, to_json_text
from viewkeeper.cli.options import Json, JsonObject, Url, Views, open_database
from viewkeeper.cli.terminal import print_json, print_text
from viewkeeper.errors import InputError
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.check.report import CheckReport, RepairReport, ViewOutcome
    from viewkeeper.client.database import Database

_FINDINGS_SHOWN_MAX = 20


Progress = Callable[[int, int], None]
Report = TypeVar("Report", "CheckReport", "RepairReport")


def check(
    url: Url,
    views: Views = None,
    since: Annotated[
        Literal["last"] | None,
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
        report = _with_spark(lambda progress: database.check(views or None, progress=progress, since=since))
    _print_verdict(report, print_report, json=json)


def repair(
    url: Url,
    views: Views = None,
    json: JsonObject = False,
) -> None:
    """Put wrong, missing and extra records right, in one epoch. Exit code 1 when a view is still wrong. Needs Java 17.

    Views are checked, filled anew beside themselves, compared with that record by record, auxiliary tables too, and checked
    again; only records that differ are written. Views that share records are repaired together. Writers, readers and the
    pipeline go on; a pipeline that runs does the work. A view with records that cannot be read is rebuilt. Every view is
    listed with what was done; one that is stopped needs `rebuild`.
    """
    with open_database(url) as database:
        report = _with_spark(lambda progress: database.repair(views or None, progress=progress))
    _print_verdict(report, _print_repair, json=json)


def rebuild(
    url: Url,
    views: Annotated[list[str], typer.Argument(metavar="VIEW", help="Views.", show_default=False)],
    json: JsonObject = False,
) -> None:
    """Fill views anew beside themselves, and let the new records take the place of the old ones.

    The way out for a view that is stopped, or whose records cannot be read. Views that share records with those named are
    rebuilt too. What can be read is read as it was until the new records are complete; a pipeline that runs does the work.
    Where the log lost changes that no epoch has applied, these are given up, and all views are filled anew from their tables.
    """
    with open_database(url) as database, quiet_java(), working("filling the views anew …"):
        rebuilt = database.rebuild(*views)
        epoch = database.epoch
    if json:
        print_json({"views": rebuilt, "epoch": epoch})
    else:
        print_text(f"rebuilt at epoch {epoch}: {', '.join(rebuilt)}", style="green")


def set_aside(
    url: Url,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="A view.", show_default=False)],
    retry: Annotated[bool, typer.Option("--retry", help="Compute the rows again now, in one epoch.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Take the rows off the list until they change.")] = False,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="JSON", help="Only this row, by its key as it is listed.", show_default=False),
    ] = None,
    dropped: Annotated[bool, typer.Option("--dropped", help="Print rows that were dropped too.")] = False,
    json: Json = False,
) -> None:
    """Print each row that a view sets aside because its SQL fails on it, with the reason; or retry or drop these rows.

    A row is tried again whenever it changes: correct or delete it in its table. `--retry` is for rows on which a newer
    version no longer fails. A row that is dropped stays out of the view; list and `status` count it again when it changes.
    """
    if retry and drop:
        raise InputError("rows are tried again or dropped, not both", "leave one of them out")
    if keys and not (retry or drop):
        raise InputError("a key is for --retry or --drop", "add one of them")
    if retry or drop:
        _retry_or_drop(url, view, keys, is_retry=retry, json=json)
        return
    from viewkeeper.cli.render import print_rows

    with open_database(url, read_only=True) as database:
        found = database.set_aside(view, dropped=dropped)
        if json:
            for row in found:
                print_json(asdict(row))
            return
        rows = ((to_json_text(row.key), (row.reason or "not known") + "; dropped" * row.dropped) for row in found)
        print_rows(("row set aside", "reason"), rows)


def _retry_or_drop(url: str, view: str, texts: list[str] | None, *, is_retry: bool, json: bool) -> None:
    with open_database(url) as database, quiet_java(), working("an epoch for rows set aside …"):
        keys = None if texts is None else [_listed_key(database, view, text) for text in texts]
        change = database.retry_set_aside if is_retry else database.drop_set_aside
        count, epoch = change(view, keys), database.epoch
    if json:
        print_json({"view": view, "rows": count, "epoch": epoch})
        return
    what = "that no longer fail" if is_retry else "dropped"
    print_text(f"rows of {view} {what}, epoch {epoch}: {count:,}", style="green")


def _listed_key(database: Database, view: str, text: str) -> tuple[object, ...]:
    """The key of a row set aside, which a user has copied from the list."""
    given = read_json(text, "a key", '["o1"]')
    parts = given if isinstance(given, list) else [given]
    for row in database.set_aside(view, dropped=True):
        if read_json(to_json_text(row.key), "a key") == parts:
            return row.key
    raise InputError(f"view {view} has set no row {text} aside", "give the key as it is listed")


def _with_spark(work: Callable[[Progress | None], Report]) -> Report:
    """Do what Spark computes, with a spinner that counts the views; Ctrl-C ends it."""
    from viewkeeper.client.interruptible import interruptibly
    from viewkeeper.engine.spark_session import cancel_jobs

    with quiet_java(), working("Spark starts …") as shown:
        update = getattr(shown, "update", None)  # there is none without a spinner
        progress = update and (lambda done, total: update(f"recomputing the views with Spark: {done:,} of {total:,} …"))
        return interruptibly(lambda: work(progress), cancel_jobs)


def _print_verdict(report: Report, print_text_of: Callable[[Report], None], *, json: bool) -> None:
    """Print a report; the exit code says whether it is a good one."""
    if json:
        print_json(asdict(report))
    else:
        print_text_of(report)
    if not report.ok:
        raise typer.Exit(CHECK_FAILED)


def print_report(report: CheckReport) -> None:
    names = ", ".join(report.views) or "no views"
    compared = f"{names} as recomputed, {report.records:,} records at epoch {report.epoch}"
    for note in report.notes:
        print_text(f"note: {note}", style="yellow")
    for epoch in sorted(set(report.since.values())):
        names_since = ", ".join(name for name, since in report.since.items() if since == epoch)
        print_text(f"only what changed after epoch {epoch}: {names_since}")
    if not report.findings:
        if not report.views:
            why = "the notes above say why" if report.notes else "there is no view that is filled"
            print_text(f"no view was compared: {why}", style="yellow")
        elif report.ok:
            print_text(f"ok: {compared}", style="green")
        else:
            print_text(f"incomplete: {compared}; the notes above name the views that were not compared", style="red")
        return
    wrong = counted(len(report.findings), "record") + (" is" if len(report.findings) == 1 else " are")
    print_text(f"not ok: {wrong} wrong at epoch {report.epoch}", style="red")
    from viewkeeper.cli.render import print_rows

    rows = []
    for one in report.findings[:_FINDINGS_SHOWN_MAX]:
        found = "; ".join(text for text in (record_text(one.found), one.why) if text is not None) or None
        rows.append((one.view, to_json_text(one.key), one.kind, record_text(one.expected), found))
    print_rows(("view", "key", "kind", "expected", "found"), rows)
    if len(report.findings) > len(rows):
        print_text(f"and {len(report.findings) - len(rows):,} more; --json lists all", style="dim")


def _print_repair(report: RepairReport) -> None:
    rows = [(one.view, _done(one), one.way_out or "") for one in report.outcomes]
    if rows:
        from viewkeeper.cli.render import print_rows

        print_text(f"views at epoch {report.epoch}:")
        print_rows(("view", "done", "way out"), rows)
    print_report(report.after)


def _done(one: ViewOutcome) -> str:
    match one.state:
        case "repaired":
            return f"{counted(one.records, 'record')} and {counted(one.auxiliary, 'auxiliary record')} put right"
        case "rebuilt":
            return "filled anew: an epoch could not put it right"
        case "wrong":
            return f"still wrong: {counted(one.records, 'record')}"
        case "not done":
            return f"nothing: {one.why}"
    return "nothing: it was right"
