"""Texts as they are stored: UTF-8, or damage; and the error that tells a reader of damage.

In: bytes of a text, or columns that are about to leave the store. Out: the text, or nothing. Always: what is no UTF-8 was
written by nobody, and is told before a caller stumbles over it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from viewkeeper.errors import CorruptStore, InvariantBroken

if TYPE_CHECKING:
    import pyarrow as pa


DAMAGE = (struct.error, LookupError, ValueError, OverflowError, InvariantBroken)  # of decoding what nobody encoded


def record_damaged(view: str | None = None) -> CorruptStore:
    """The error of who reads a record that cannot be decoded."""
    what = "a record" if view is None else f"a record of view {view}"
    return CorruptStore(f"{what} is damaged", "viewkeeper check names it, viewkeeper repair puts it right")


def text_of(stored: bytes) -> str:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        _refuse()


def require_texts(arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """The same columns, unless one of them has a text that is none."""
    import pyarrow as pa

    for array in arrays:
        if pa.types.is_string(array.type):
            try:
                array.validate(full=True)
            except pa.ArrowInvalid:
                _refuse()
    return arrays


def _refuse() -> NoReturn:
    raise CorruptStore(
        "a text in the store is no UTF-8", "viewkeeper rebuild fills a view anew; a table comes back from a backup"
    ) from None
