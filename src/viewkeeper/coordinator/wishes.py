"""Wishes: how many view managers an operator asks a running pipeline for, from any process.

In: bounds. Out: a note in the store, which the coordinator reads between two epochs. Always: a wish is for the pipeline that
owns the store when it is made, and for a standby that takes over from it; one that is started later has its own number.
"""

from __future__ import annotations

from viewkeeper.model.managers import ManagerBounds
from viewkeeper.ports.meta import Meta

_NOTE = "managers"


def ask_for_managers(store: Meta, bounds: ManagerBounds) -> None:
    """Ask the pipeline that owns the store for so many, from its next epoch on."""
    generation = store.read_epoch_record().generation
    store.keep_note(_NOTE, {"generation": generation, "least": bounds.least, "most": bounds.most})


def asked_managers(store: Meta, generation: int) -> ManagerBounds | None:
    """What the pipeline of that generation was last asked for."""
    note = store.read_note(_NOTE)
    return ManagerBounds(note["least"], note["most"]) if note.get("generation") == generation else None
