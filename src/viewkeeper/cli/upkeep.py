"""Upkeep: backup, restore, compact and keep.

In: a store's URL and a directory. Out: a backup, a store or smaller files, and a line about it. Always: a bar on stderr
while it takes long, if that is a terminal; only the result goes to stdout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkeeper.cli.jsonlines import print_json
from viewkeeper.cli.opening import open_database
from viewkeeper.cli.output import console, print_text, size_text


def backup(url: str, destination: Path, *, as_json: bool) -> None:
    """Write a backup of the store to a new directory."""
    with open_database(url, read_only=True) as database, _bar("copying") as progress:
        done = database.backup(destination, progress=progress)
    if as_json:
        print_json({"path": str(done.path), "epoch": done.epoch, "inflight": done.inflight, "bytes": done.bytes})
        return
    inflight = f" ({done.inflight} under way)" if done.inflight else ""
    print_text(f"backed up at epoch {done.epoch}{inflight}: {size_text(done.bytes)} in {destination}")


def restore(source: Path, url: str, *, as_json: bool) -> None:
    """Create a new store from a backup."""
    from viewkeeper.client.connect import restore as restore_backup

    with _bar("copying") as progress:
        database = restore_backup(source, url, progress=progress)
    with database:
        found = database.status()
    if as_json:
        print_json({"url": found.url, "epoch": found.epoch, "inflight": found.inflight, "bytes": found.bytes_used})
        return
    print_text(f"restored at epoch {found.epoch}: {size_text(found.bytes_used)} in {url}")
    print_text("Tokens from before the restore do not fit this store.", style="dim")
    if found.lag_changes:
        wait = "1 change waits" if found.lag_changes == 1 else f"{found.lag_changes:,} changes wait"
        print_text(f"{wait} for the pipeline: viewkeeper run {url}", style="dim")


def compact(url: str, *, as_json: bool) -> None:
    """Return the free space in the store's files to the disk."""
    with open_database(url) as database, _bar("compacting") as progress:
        done = database.compact(progress=progress)
    before, after = done.bytes_before, done.bytes_after
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after, "log_entries": done.log_entries})
        return
    print_text(f"compacted: {size_text(before)} before, {size_text(after)} after ({before:,} and {after:,} bytes)")
    print_text(f"log entries that nobody needed any more: {done.log_entries:,}", style="dim")


def keep(url: str, epochs: int, seconds: float) -> None:
    """Set for how long changes are kept."""
    with open_database(url) as database:
        database.keep_changes(epochs=epochs, seconds=seconds)
    asked = [f"of the last {epochs:,} epochs"] * bool(epochs) + [f"of the last {seconds:,g} seconds"] * bool(seconds)
    print_text(f"from the next epoch on the changes {' and '.join(asked) or 'of the last two epochs'} are kept")


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr that moves with the bytes done, if that is a terminal."""
    target = console(stderr=True)
    if not target.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=target, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, expected: bar.update(task, completed=done, total=expected)
