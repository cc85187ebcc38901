"""Connect: a database by URL."""

from __future__ import annotations

from viewkeeper.client.database import Database
from viewkeeper.stores.open import open_store


def connect(url: str, *, read_only: bool = False) -> Database:
    """Open the store at `url`, as in `embedded:./shop`; it is made when it is not there, unless `read_only`."""
    return Database(open_store(url, create=not read_only), read_only=read_only)
