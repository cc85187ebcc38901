"""New nodes: one more part for a store that is in use.

In: the store's layout and meta. Out: the number of a node that has no slots yet. Always: its environment is durable
before it is listed, so a node that is listed is there; one that was made and not listed is removed by the next attempt.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from viewkeeper.errors import StoreBusy
from viewkeeper.failpoints import failpoint
from viewkeeper.stores.embedded.heldfile import HeldFile
from viewkeeper.stores.embedded.layout import Layout, raise_format
from viewkeeper.stores.embedded.meta import Meta
from viewkeeper.stores.embedded.newdirectory import os_errors_told, sync_directory, sync_tree
from viewkeeper.stores.embedded.parts import make_part


def make_node(layout: Layout, meta: Meta) -> int:
    """Make and list a node; only within `altering`."""
    number = meta.read_placement().next
    part = layout.part(f"node-{number}")
    folder = layout.path / part.name
    with os_errors_told(folder):
        if folder.exists():
            shutil.rmtree(folder)
        make_part(folder, part)
        sync_tree(folder)
        sync_directory(layout.path)
    failpoint("node.made")
    meta.change_placement(lambda placement, _: placement.with_node())
    failpoint("node.listed")
    return number


@contextmanager
def altering(layout: Layout) -> Iterator[None]:
    """Within the block no other process adds or removes a node; a process that dies leaves no lock."""
    file = HeldFile(layout.path / "alter.lock", os.O_RDWR | os.O_CREAT)
    try:
        if not file.lock(exclusive=True):
            raise StoreBusy(f"{file.holders()} is adding or removing a node", "wait until it has ended")
        raise_format(layout.path)
        yield
    finally:
        file.close()
