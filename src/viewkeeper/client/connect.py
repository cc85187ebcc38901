"""Connect: a database by URL, of an existing store or of one made from a backup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from viewkeeper.client.arguments import take_path, take_text
from viewkeeper.client.database import Database
from viewkeeper.stores.open import open_store, restore_store


def connect(url: str, *, read_only: bool = False) -> Database:
    """Open the store at `url`, as in `embedded:./shop`; it is made when it does not exist, unless `read_only`."""
    take_text("the URL of a store", url, "as in embedded:./shop")
    return Database(open_store(url, create=not read_only, read_only=read_only), read_only=read_only)


def restore(backup: str | Path, url: str, *, progress: Callable[[int, int], None] | None = None) -> Database:
    """Make a new store at `url` from what `db.backup` wrote, and open it; tokens of the old store do not fit it."""
    restore_store(take_path("the backup", backup), take_text("the URL of a store", url), progress)
    return connect(url)
