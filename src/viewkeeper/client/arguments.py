"""Arguments: what callers pass, checked and as it is stored.

In: values and their names; keys and columns as Python values. Out: the value in the type that a call uses; key bytes,
stored values, and what a put or a delete makes of a row. Always: checked before anything is written; an error names the
table, the column or the argument. Column names are case-insensitive; the stop of a range is exclusive.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path

from viewkeeper.errors import BadRow, InputError, UnknownName
from viewkeeper.model.keys import after_prefix, decode_key, encode_key
from viewkeeper.model.rowcodec import decode_row, encode_row, tail_of
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.stored_values import Stored, are_equal, from_stored, to_stored
from viewkeeper.model.wording import described, shown, suggestion

Merge = Callable[[bytes | None], bytes | None]  # the row after a write, of the row before it


def take_text(name: str, value: object, hint: str | None = None) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} is a text, not {described(value)}", hint)
    return value


def take_path(name: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} is a path, not {described(value)}")
    try:
        Path(value).exists()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(
                f"{name} is not a path: {shown(str(value))}", "it is longer than a file system takes"
            ) from None
    return Path(value)


def take_names(name: str, value: object) -> list[str]:
    """A list of names; a text would be a list of its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} is a list of names, not {described(value)}", 'as in ["a", "b"]')
    return [take_text(f"each of {name}", part) for part in value]


def take_seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InputError(f"{name} is a number of seconds, not {described(value)}", "0 does not wait")
    return value


def take_mapping(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is a dict of columns, not {described(value)}", 'as in {"amount": 30}; {} is any row')
    return value


def take_many(what: str, keys: Iterable[object]) -> Iterable[object]:
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise InputError(f"{what} takes many keys, not one {type(keys).__name__}", "pass a list of keys")
    return keys


def key_bytes(name: str, columns: Sequence[Column], values: Sequence[object], *, whole: bool = True) -> bytes:
    """Bytes of a key, or with `whole=False` of a prefix of one."""
    if len(values) > len(columns) or (whole and len(values) < len(columns)):
        names = ", ".join(column.name for column in columns)
        fact = f"{name} has the key ({names}), not {len(values)} values"
        raise InputError(fact, "pass one value for each key column")
    stored = [to_stored(column, value) for column, value in zip(columns, values, strict=False)]
    for column, value in zip(columns, stored, strict=False):
        if value is None and not column.nullable:
            raise BadRow(f"key column {column.name} of {name} is NULL", "a key has a value in every column")
    return encode_key(columns, stored)


def key_values(columns: Sequence[Column], key: bytes) -> tuple[object, ...]:
    """The values of a key, as a reader gets them."""
    return tuple(from_stored(column, value) for column, value in zip(columns, decode_key(columns, key), strict=True))


def split_put(schema: TableSchema, arguments: Sequence[object]) -> tuple[bytes, dict[str, Stored]]:
    """Key bytes and stored columns of `put(*key, {columns})` or `put({all columns})`."""
    if not arguments or not isinstance(arguments[-1], Mapping):
        raise InputError(f"a put to {schema.name} ends with a dict of columns", 'as in put("o1", {"amount": 30})')
    key, given = list(arguments[:-1]), arguments[-1]
    columns: dict[str, tuple[Column, object]] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InputError(f"column name {name!r} is not a string")
        column = schema.column(name)
        if column.name in columns:
            raise BadRow(f"column {column.name} is given twice in one put", "give it once")
        columns[column.name] = column, value
    inside = {name: columns.pop(name)[1] for name in schema.key if name in columns}
    if key:
        for name, value in zip(schema.key, key, strict=False):
            if name in inside and not are_equal(inside[name], value):
                raise BadRow(f"key column {name} is {value!r} and {inside[name]!r} in one put", "give it once")
    else:
        missing = [name for name in schema.key if name not in inside]
        if missing:
            raise BadRow(f"the key of {schema.name} lacks {', '.join(missing)}", "give every key column")
        key = [inside[name] for name in schema.key]
    stored = {name: to_stored(column, value) for name, (column, value) in columns.items()}
    return key_bytes(f"table {schema.name}", schema.key_columns, key), stored


def merge_row(schema: TableSchema, before: bytes | None, columns: Mapping[str, Stored]) -> bytes:
    """The row after a put: columns left out keep their value, or are NULL in a new row."""
    values = schema.value_columns
    old = [None] * len(values) if before is None else decode_row(values, before)
    tail = tail_of(values, before) if before else b""  # of columns added since this schema was read: they stay
    merged = [columns.get(column.name, was) for column, was in zip(values, old, strict=True)]
    for index in [index for index, value in enumerate(merged) if value is None]:
        if not values[index].nullable:
            raise null_refused(schema, values[index])
    return encode_row(values, merged, tail)


def null_refused(schema: TableSchema, column: Column) -> BadRow:
    return BadRow(f"column {column.name} of {schema.name} is NOT NULL", "give it a value")


def put_step(schema: TableSchema, arguments: Sequence[object]) -> tuple[bytes, Merge]:
    """Key bytes of a put, and what it makes of the row."""
    key, columns = split_put(schema, arguments)
    return key, lambda before: merge_row(schema, before, columns)


def delete_step(schema: TableSchema, key: Sequence[object], columns: Sequence[str] | None) -> tuple[bytes, Merge]:
    """Key bytes of a delete, and what it makes of the row: none, or NULL in some columns of a row that exists."""
    encoded = key_bytes(f"table {schema.name}", schema.key_columns, key)
    if columns is None:
        return encoded, lambda before: None
    names = [schema.column(name).name for name in take_names("columns", columns)]
    for name in names:
        if name in schema.key:
            raise BadRow(f"{name} is a key column of {schema.name}", "delete the row instead")
    return encoded, lambda before: None if before is None else merge_row(schema, before, dict.fromkeys(names))


def pick(columns: Sequence[str] | None, available: Sequence[str]) -> list[str] | None:
    """The wanted columns in their declared spelling; None for all."""
    if columns is None:
        return None
    spelled = {name.lower(): name for name in available}
    columns = take_names("columns", columns)
    for name in columns:
        if name.lower() not in spelled:
            raise UnknownName(f"there is no column {name}", suggestion(name, available, "the columns are"))
    return [spelled[name.lower()] for name in columns]


def byte_range(
    name: str, columns: Sequence[Column], prefix: Sequence[object], start: object, stop: object
) -> tuple[bytes, bytes | None]:
    """The first key of a range, and the first after it: of keys that begin with `prefix`, from `start` to before `stop`.

    A start or stop may give several key columns as a tuple.
    """
    low = key_bytes(name, columns, prefix, whole=False)
    high = after_prefix(low) if low else None
    rest = columns[len(prefix) :]
    if (start is not None or stop is not None) and not rest:
        raise InputError(f"the prefix of {name} is already a whole key", "leave start and stop out")
    first = low if start is None else low + key_bytes(name, rest, _parts(start), whole=False)
    last = high if stop is None else low + key_bytes(name, rest, _parts(stop), whole=False)
    return first, last


def check_limit(limit: int | None) -> None:
    is_count = isinstance(limit, Integral) and not isinstance(limit, bool) and 0 <= limit <= sys.maxsize
    if limit is not None and not is_count:
        raise InputError(f"limit={shown(limit)} is not a number of rows", "use 0 or more")


def _parts(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
