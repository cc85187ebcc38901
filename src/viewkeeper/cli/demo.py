"""The demo: a shop from an empty store to fresh views, explained step by step.

In: perhaps a new directory. Out: a store, and text about it. Always: without Java it ends before anything is written,
and its store is removed afterwards unless it is to be kept.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewkeeper.cli.check_repair import print_report
from viewkeeper.cli.display import quiet_java, working
from viewkeeper.cli.options import open_database, shown_columns
from viewkeeper.cli.terminal import print_text
from viewkeeper.errors import InputError, InvariantBroken
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.client.pipeline import Pipeline

_MANY = 30_000

_TABLE = """CREATE TABLE orders (
    id STRING PRIMARY KEY, customer STRING, region STRING, amount DECIMAL(10,2), day DATE
)"""

_FEW_ROWS = """INSERT INTO orders VALUES
    ('o1', 'ada',  'eu',      120.00, DATE '2026-01-05'),
    ('o2', 'bo',   'eu',       35.50, DATE '2026-01-06'),
    ('o3', 'chen', 'us',      250.00, DATE '2026-01-06'),
    ('o4', 'ada',  'us',       80.25, DATE '2026-01-07'),
    ('o5', 'dara', 'oceania',  99.99, DATE '2026-01-08')"""

_VIEWS = (
    """CREATE MATERIALIZED VIEW revenue AS
    SELECT region, COUNT(*) AS n, SUM(amount) AS total, AVG(amount) AS mean FROM orders GROUP BY region""",
    """CREATE MATERIALIZED VIEW big AS
    SELECT id, customer, amount FROM orders WHERE amount >= 100""",
    "CREATE INDEX by_customer ON orders (customer)",
    """CREATE MATERIALIZED VIEW everything AS
    SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders""",
)

_CHANGES = (
    ("an order becomes big", "UPDATE orders SET amount = 180.50 WHERE id = 'o2'"),
    ("an order moves from us to eu", "UPDATE orders SET region = 'eu' WHERE id = 'o4'"),
    ("the only order from oceania is deleted", "DELETE FROM orders WHERE id = 'o5'"),
    ("ada orders again", "INSERT INTO orders VALUES ('o6', 'ada', 'us', 15.00, DATE '2026-01-09')"),
)

# What is shown of each view: its name, and a prefix of its key.
_SHOWN: dict[str, tuple[str, ...]] = {"revenue": (), "big": (), "by_customer": ("ada",), "everything": ()}


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Make the store in this new directory and leave it there.")
    ] = None,
) -> None:
    """Show tables, views, and changes flowing from one to the other. Needs Java 17."""
    from viewkeeper.client.interruptible import interruptibly
    from viewkeeper.engine.spark_session import cancel_jobs, require_spark

    require_spark()
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InputError(f"{keep} exists already", "name a new directory")
    kept = nullcontext(keep) if keep else tempfile.TemporaryDirectory(prefix="viewkeeper-demo-")
    with kept as directory, quiet_java():
        interruptibly(lambda: _tell(f"embedded:{directory}" if keep else f"embedded:{directory}/shop"), cancel_jobs)
    _tell_what_next(str(keep or "./shop"), kept=keep is not None)


def _tell(url: str) -> None:
    with open_database(url, create=True) as database:
        _heading("1. A table in a key-value store, and its rows")
        _run(database, _TABLE, _FEW_ROWS)
        print_text(f"-- and {_MANY:,} small orders, in one bulk write", style="dim")
        first_day = dt.date(2026, 1, 1)
        rows = (
            {
                "id": f"s{number:05}",
                "customer": f"c{number % 1_000:03}",
                "region": ("asia", "eu", "us")[number % 3],
                "amount": Decimal(number * 7_919 % 9_900) / 100,
                "day": first_day + dt.timedelta(days=number % 90),
            }
            for number in range(_MANY)
        )
        database.table("orders").put_many(rows)
        print_text(f"   {_MANY:,} rows put", style="green")
        _heading("2. Questions, written once, as views")
        _run(database, *_VIEWS)
        with database.pipeline() as pipeline:
            _heading("3. The pipeline fills the views (Spark starts, which takes some seconds)")
            _keep_fresh(pipeline)
            _show_views(database)
            _heading("4. Rows change; a write waits for no view")
            for what, statement in _CHANGES:
                print_text(f"-- {what}", style="dim")
                _run(database, statement)
            _heading("5. The pipeline reads these changes from the log, and nothing else")
            _keep_fresh(pipeline)
            _show_views(database)
        _heading("6. Is it right? Spark SQL recomputes every view from scratch, and the records are compared")
        with working("recomputing …"):
            report = database.check()
        print_report(report)
        if not report.ok:
            raise InvariantBroken("the demo's views are not what they should be", "this is a bug: please report it")
        _heading("7. How it is done: the plan that keeps all views together")
        print_text(database.explain())


def _heading(text: str) -> None:
    print_text("")
    print_text(text, style="cyan")


def _run(database: Database, *statements: str) -> None:
    for statement in statements:
        print_text(f"{statement};")
        print_text(f"   {database.execute(statement).message}", style="green")


def _keep_fresh(pipeline: Pipeline) -> None:
    with working("working …"):
        done = pipeline.run_available()
    for epoch in done:
        words = f"   epoch {epoch.epoch} committed: {counted(epoch.changes, 'change')} in {epoch.seconds:.2f} s"
        print_text(words, style="green")


def _show_views(database: Database) -> None:
    """All views as of one epoch."""
    from viewkeeper.cli.render import print_rows

    with database.snapshot() as snapshot:
        for name, prefix in _SHOWN.items():
            view = snapshot.view(name)
            print_text("")
            print_text(f"{name}, the keys that begin with {', '.join(prefix)}" if prefix else name, style="bold")
            print_rows(shown_columns(view), [tuple(row.values()) for row in view.scan(*prefix)])


def _tell_what_next(directory: str, *, kept: bool) -> None:
    _heading("What next")
    url = f"embedded:{directory}"
    lines = [] if kept else [(f"viewkeeper demo --keep {directory}", "the same, but the store stays; then")]
    lines += [
        (f"viewkeeper sql {url}", "a prompt for SQL"),
        (f"viewkeeper run {url}", "keep the views fresh, until Ctrl-C; meanwhile, elsewhere"),
        (f"viewkeeper put {url} orders o7 customer=eve region=eu amount=42.00", "write"),
        (f"viewkeeper get {url} revenue eu", "read"),
    ]
    width = max(len(command) for command, _ in lines)
    for command, what in lines:
        print_text(f"  {command:{width}}  # {what}")
