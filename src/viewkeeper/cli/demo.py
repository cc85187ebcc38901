"""The demo: a shop from an empty store to fresh views, told step by step.

In: perhaps a new directory. Out: a store, and words about it. Always: without Java it ends before anything is written, and
what it made is gone afterwards unless it was to be kept.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.cli import shop
from viewkeeper.cli.opening import open_database, shown_columns
from viewkeeper.cli.output import console, print_rows, print_text
from viewkeeper.cli.reports import print_report
from viewkeeper.errors import CorruptStore, InputError

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.client.pipeline import Pipeline


def demo(keep: Path | None) -> None:
    """Show what ViewKeeper does, in a directory that is kept or not."""
    from viewkeeper.engine.session import require_java

    require_java()
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise InputError(f"{keep} exists already", "name a new directory")
        _tell(f"embedded:{keep}")
        _tell_what_next(f"embedded:{keep}", kept=True)
        return
    with tempfile.TemporaryDirectory(prefix="viewkeeper-demo-") as directory:
        _tell(f"embedded:{directory}/shop")
    _tell_what_next("embedded:./shop", kept=False)


def _tell(url: str) -> None:
    with open_database(url, create=True) as database:
        _heading("1. A table in a key-value store, and some rows")
        _run(database, *shop.TABLES, *shop.FIRST_ROWS)
        _heading("2. Questions, written once as views")
        _run(database, *shop.VIEWS)
        with database.pipeline() as pipeline:
            _heading("3. The pipeline fills the views (Spark starts, which takes some seconds)")
            _keep_fresh(pipeline)
            _show_views(database)
            _heading("4. Rows change; writes do not wait for views")
            for what, statement in shop.CHANGES:
                print_text(f"-- {what}", style="dim")
                _run(database, statement)
            _heading("5. The pipeline reads these changes from the log, and only them")
            _keep_fresh(pipeline)
            _show_views(database)
        _heading("6. Is it right? Every view is recomputed from scratch by Spark SQL and compared")
        report = database.check()
        print_report(report)
        if not report.ok:
            raise CorruptStore("the demo's views are not what they should be", "this is a bug: please report it")
        _heading("7. How it is done: the plan that keeps all views")
        print_text(database.explain())


def _heading(text: str) -> None:
    print_text("")
    print_text(text, style="bold cyan")


def _run(database: Database, *statements: str) -> None:
    for statement in statements:
        print_text(f"{statement};")
        print_text(f"   {database.execute(statement).message}", style="green")


def _keep_fresh(pipeline: Pipeline) -> None:
    target = console(stderr=True)
    if target.is_terminal:
        with target.status("working …"):
            done = pipeline.run_available()
    else:
        done = pipeline.run_available()
    for epoch in done:
        words = f"   epoch {epoch.epoch} committed: {epoch.changes} changes in {epoch.seconds:.2f} s"
        print_text(words, style="green")


def _show_views(database: Database) -> None:
    """All views as of one epoch."""
    with database.snapshot() as snapshot:
        for name in shop.NAMES:
            view = snapshot.view(name)
            print_text("")
            print_text(name, style="bold")
            print_rows(shown_columns(view), [tuple(row.values()) for row in view.scan()])


def _tell_what_next(url: str, *, kept: bool) -> None:
    _heading("What next")
    lines = [] if kept else ["viewkeeper demo --keep ./shop       # the same, and the store stays; then:"]
    lines += [
        f"viewkeeper sql {url}       # a prompt for SQL",
        f"viewkeeper put {url} orders o7 customer=eve region=eu amount=42.00",
        f"viewkeeper run {url}       # keep the views fresh until Ctrl-C",
        f"viewkeeper get {url} revenue eu",
    ]
    for line in lines:
        print_text(f"  {line}")
