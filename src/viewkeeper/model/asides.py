"""Asides: what an operator asks for rows that a view has set aside.

In: keys of rows, and what is to become of them. Out: a frozen request of the catalog. Always: the pipeline does each once, in
an epoch that does nothing else; `DROPPED` is the row of a list's record whose row nobody wants to hear of until it changes.
"""

from __future__ import annotations

from dataclasses import dataclass

DROPPED = b"dropped"


@dataclass(frozen=True, slots=True)
class AsideRequest:
    """The rows that `table` lists under `keys`, or all of them but those dropped: compute them again, or drop them."""

    id: int
    table: int
    ending: str  # "retry" or "drop"
    keys: tuple[bytes, ...] = ()
