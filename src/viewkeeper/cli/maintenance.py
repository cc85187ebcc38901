"""Maintenance: status, explain, backup, restore, compact, keep and scale.

In: a store's URL. Out: the state and the plan of the store, for people or as JSON; a backup, a store, smaller files or a
setting, and a line about it. Always: a bar on stderr while it takes long, if that is a terminal; stdout has only the
result.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewkeeper.cli.display import bar
from viewkeeper.cli.formats import size_text, to_json_text
from viewkeeper.cli.options import JsonObject, Url, open_database, read_bounds
from viewkeeper.cli.terminal import print_facts, print_json, print_text
from viewkeeper.errors import InputError
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.client.status import Status, ViewStatus


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
    try:
        picture.write_text(drawn, encoding="utf-8")
    except OSError as error:
        fact = f"{picture} cannot be written: {error.strerror}"
        raise InputError(fact, "name a file in a directory of yours") from None
    print_text(f"{picture} written")


def backup(
    url: Url,
    destination: Annotated[
        Path, typer.Argument(metavar="DEST", help="A directory that is new, or empty.", show_default=False)
    ],
    json: JsonObject = False,
) -> None:
    """Write a backup of the whole store as of this moment, while writers and the pipeline go on.

    The backup is complete when the command succeeds; an interrupted one leaves no backup. While it runs the store's
    files may grow, because nothing that the backup still has to copy is overwritten.
    """
    with open_database(url, read_only=True) as database, bar("copying") as progress:
        done = database.backup(destination, progress=progress)
    if json:
        print_json({"path": str(done.path), "epoch": done.epoch, "inflight": done.inflight, "bytes": done.bytes})
        return
    inflight = f" ({done.inflight} under way)" if done.inflight else ""
    print_text(f"backed up at epoch {done.epoch}{inflight}: {size_text(done.bytes)} in {destination}")


def restore(
    source: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="What `backup` wrote.", show_default=False, exists=True)
    ],
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The store to make; it must not exist.", show_default=False)
    ],
    json: JsonObject = False,
) -> None:
    """Create a new store from a backup, after verifying every file.

    It holds rows, log, views and epochs as of the backup. The first pipeline repeats an epoch that was in flight. Older
    tokens are not valid: waiting for one is an error.
    """
    from viewkeeper.client.database import restore as restore_backup

    with bar("copying") as progress:
        database = restore_backup(source, url, progress=progress)
    with database:
        found = database.status()
    if json:
        print_json({"url": found.url, "epoch": found.epoch, "inflight": found.inflight, "bytes": found.bytes_used})
        return
    print_text(f"restored at epoch {found.epoch}: {size_text(found.bytes_used)} in {url}")
    print_text("Tokens from before the restore do not fit this store.", style="dim")
    if found.lag_changes:
        wait = f"{counted(found.lag_changes, 'change')} {'waits' if found.lag_changes == 1 else 'wait'}"
        print_text(f"{wait} for the pipeline: viewkeeper run {url}", style="dim")


def compact(url: Url, json: JsonObject = False) -> None:
    """Truncate the log, remove dropped tables and views, and return the space to the disk.

    Nobody else may have the store open, and no pipeline may run: a process that has the old files open would go on
    writing to them. A kill at any moment leaves the store intact.
    """
    with open_database(url) as database, bar("compacting") as progress:
        done = database.compact(progress=progress)
    before, after = done.bytes_before, done.bytes_after
    if json:
        print_json({"bytes_before": before, "bytes_after": after, "log_entries": done.log_entries})
        return
    print_text(f"compacted: {size_text(before)} before, {size_text(after)} after ({before:,} and {after:,} bytes)")
    print_text(f"log entries that nobody needed any more: {done.log_entries:,}", style="dim")


def keep(
    url: Url,
    epochs: Annotated[int, typer.Option(metavar="N", help="At least the last N epochs.")] = 0,
    seconds: Annotated[float, typer.Option(metavar="S", help="At least the epochs of the last S seconds.")] = 0,
) -> None:
    """Keep what `changes` prints for longer than the last two epochs.

    The setting belongs to the store: it holds from the next epoch on until it is changed; without options it returns to
    the default. Records that change often take more room and time, for each version that is kept.
    """
    with open_database(url) as database:
        database.keep_changes(epochs=epochs, seconds=seconds)
    asked = [f"of the last {epochs:,} epochs"] * bool(epochs) + [f"of the last {seconds:,g} seconds"] * bool(seconds)
    print_text(f"from the next epoch on the changes {' and '.join(asked) or 'of the last two epochs'} are kept")


def scale(
    url: Url,
    view_managers: Annotated[str, typer.Argument(metavar="N", help="How many, or `1..4`.", show_default=False)],
) -> None:
    """Tell the pipeline that runs to have so many view managers from its next epoch on.

    It holds for that pipeline, and for a standby that takes over from it. With `1..4` it has as many as the backlog
    calls for: one more while it is seconds behind, one less when it is idle for half of the time.
    """
    least, most = read_bounds(view_managers)
    with open_database(url) as database:
        database.scale(view_managers=(least, most))
    print_text(f"from its next epoch on the pipeline has {view_managers.replace('..', ' to ')} view managers")


def _print_status(found: Status) -> None:
    from viewkeeper.cli.render import print_rows

    lag = f"{counted(found.lag_changes, 'change')}, {found.lag_seconds:.1f} s" if found.lag_changes else "none"
    tasks = "" if found.inflight_tasks is None else ", {} of {} tasks done".format(*found.inflight_tasks)
    facts = {
        "store": found.url,
        "pipeline": f"running, pid {found.pipeline_pid}" if found.pipeline_pid else "not running",
        "epoch": f"{found.epoch}" + (f" ({found.inflight} under way{tasks})" if found.inflight else ""),
        "ran": "nothing yet" if found.where is None else f"{found.where}",
        "lag": lag if found.log_lost is None else "not known",
        "log": "1 entry" if found.log_entries == 1 else f"{found.log_entries:,} entries",
        "size": size_text(found.bytes_used),
        "tables": ", ".join(found.tables) or "none",
        "views": "none" if not found.views else f"{len(found.views)}",
    }
    print_facts(facts)
    rows = [(v.name, v.kind, v.state, size_text(v.bytes), _check_text(v), _note(v)) for v in found.views]
    if rows:
        print_rows(("view", "kind", "state", "size", "last check", "note"), rows)
    if len(found.nodes) > 1:
        print_rows(("node", "slots", "rows", "state"), [(n.number, n.slots, n.rows, n.state) for n in found.nodes])
    aside = [
        (view.name, to_json_text(key), reason or "not known")
        for view in found.views
        for key, reason in zip(view.set_aside.keys, view.set_aside.reasons, strict=True)
    ]
    if aside:
        print_rows(("view", "row set aside", "reason"), aside)
    for warning in found.warnings:
        print_text(f"warning: {warning}", style="yellow")


def _check_text(view: ViewStatus) -> str:
    """When the view was last checked or repaired, and what was found."""
    parts = []
    if view.checked is not None:
        found = f"{view.checked.findings:,} wrong" if view.checked.findings else "right"
        whole = view.checked.whole
        part = f", as a whole at epoch {whole}" if whole and whole != view.checked.epoch else ""
        at = datetime.fromtimestamp(view.checked.stamp / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        parts.append(f"{found} at epoch {view.checked.epoch}, {at}{part}")
    if view.repaired is not None:
        done = view.repaired.records + view.repaired.auxiliary
        parts.append(f"{counted(done, 'record')} repaired by epoch {view.repaired.epoch}")
    return "; ".join(parts) or "never"


def _note(view: ViewStatus) -> str:
    if view.state == "lagging" and not view.lag_changes:
        return "the log lacks changes: see the warning"
    if view.state == "lagging":
        return f"{counted(view.lag_changes, 'change')}, {view.lag_seconds:.1f} s"
    if view.filling is not None:
        return "{:,} of about {:,} rows".format(*view.filling)
    if view.state == "filling":
        return "to be filled"
    counts = ((view.set_aside.count, "row", "set aside"), (view.degraded.count, "group", "degraded"))
    notes = [f"{counted(count, what)} {state}" for count, what, state in counts if count]
    return "; ".join(filter(None, [*notes, view.replacement]))
