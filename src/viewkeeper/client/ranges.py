"""Key ranges: what the arguments of `scan` mean in bytes.

In: a prefix, and a start and stop that follow it. Out: bytes with start <= key < stop. Always: the stop is exclusive, and
a start or stop may give several key columns as a tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from viewkeeper.client.row_values import key_bytes
from viewkeeper.errors import InputError
from viewkeeper.model.keys import after_prefix
from viewkeeper.model.schema import Column


def byte_range(
    name: str, columns: Sequence[Column], prefix: Sequence[object], start: object, stop: object
) -> tuple[bytes, bytes | None]:
    """Bytes of the first key and of the first key after the range."""
    low = key_bytes(name, columns, prefix, whole=False)
    high = after_prefix(low) if low else None
    rest = columns[len(prefix) :]
    if (start is not None or stop is not None) and not rest:
        raise InputError(f"the prefix of {name} is already a whole key", "leave start and stop out")
    first = low if start is None else low + key_bytes(name, rest, _parts(start), whole=False)
    last = high if stop is None else low + key_bytes(name, rest, _parts(stop), whole=False)
    return first, last


def check_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, Integral) or isinstance(limit, bool) or limit < 0):
        raise InputError(f"limit={limit!r} is not a number of rows", "use 0 or more")


def _parts(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
