"""Upkeep: backup, restore, compact, keep and scale.

In: a store's URL and a directory. Out: a backup, a store or smaller files, and a line about it. Always: a bar on stderr
while it takes long, if that is a terminal; only the result goes to stdout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from viewkeeper.cli.jsonlines import print_json
from viewkeeper.cli.opening import open_database
from viewkeeper.cli.options import JsonObject, Url, read_bounds
from viewkeeper.cli.output import bar, print_text, size_text


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
    from viewkeeper.client.connect import restore as restore_backup

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
        wait = "1 change waits" if found.lag_changes == 1 else f"{found.lag_changes:,} changes wait"
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
