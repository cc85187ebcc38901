"""Wording: counts in messages.

In: a number and a noun. Out: text for people. Always: one change is no changes.
"""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """As in `1 change` and `1,200 changes`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
