"""Keys: composite typed keys as bytes whose order is the values' order.

In: stored values of the key columns. Out: bytes; each part is a tag (0 = NULL, 1 = value) and a self-delimiting body.
Always: bytes are in the order of the values, part by part (NULL first, NaN last, text by UTF-8 bytes); a key starts with
the encoding of each of its prefixes; −0.0 and 0.0 are one key, and every NaN. `keybatches` does the same for Arrow arrays.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from viewkeeper.model.schema import Column
from viewkeeper.model.stored_values import Stored, text_of

ABSENT, PRESENT = b"\x00", b"\x01"
TERMINATOR = b"\x00\x00"  # below the escape, so that a text sorts before its extensions
ESCAPE = b"\x00\xff"
_DOUBLE = struct.Struct(">d")
_BITS = struct.Struct(">Q")
_SIGN = 1 << 63
NAN_BITS = 0x7FF8 << 48

# Placement: the key's first part as a little-endian number modulo a prime below 2^32, then spread over 32 bits. The
# modulus keeps the sum of byte · 256^i inside 64 bits, so `keybatches` computes the same hash over whole columns.
PRIME = 4_294_967_291
SPREAD = 0x9E3779B97F4A7C15


def encode_key(columns: Sequence[Column], values: Sequence[Stored]) -> bytes:
    """Bytes of a key, or of a prefix of one when `values` is shorter than `columns`."""
    return b"".join(_encode_part(column.type.kind, value) for column, value in zip(columns, values, strict=False))


def decode_key(columns: Sequence[Column], key: bytes) -> list[Stored]:
    """Stored values of a whole key."""
    values, at = list[Stored](), 0
    for column in columns:
        value, at = _decode_part(column.type.kind, key, at)
        values.append(value)
    return values


def part_end(column: Column, key: bytes, start: int = 0) -> int:
    """Where the part that starts at `start` ends."""
    return _decode_part(column.type.kind, key, start)[1]


def placement_hash(part: bytes) -> int:
    """The stable 32-bit hash that decides where a key lives."""
    number = int.from_bytes(part, "little") % PRIME
    return ((number * SPREAD) & 0xFFFFFFFFFFFFFFFF) >> 32


def partition_of(first_part: bytes, partitions: int) -> int:
    """The partition, of so many, of the records whose keys begin with these bytes of their first part."""
    return placement_hash(first_part) % partitions


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key that does not start with `prefix`; None when there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def _encode_part(kind: str, value: Stored) -> bytes:
    if value is None:
        return ABSENT
    if kind == "STRING":
        return PRESENT + value.encode().replace(b"\x00", ESCAPE) + TERMINATOR
    if kind == "BINARY":
        return PRESENT + value.replace(b"\x00", ESCAPE) + TERMINATOR
    if kind == "DOUBLE":
        return PRESENT + _encode_double(value)
    if kind == "BOOLEAN":
        return PRESENT + bytes([value])
    width = INTEGER_WIDTHS[kind]
    return PRESENT + (value + (1 << (8 * width - 1))).to_bytes(width, "big")


INTEGER_WIDTHS = {"INT": 4, "DATE": 4, "BIGINT": 8, "TIMESTAMP": 8, "DECIMAL": 16}


def _encode_double(value: float) -> bytes:
    bits = NAN_BITS if math.isnan(value) else _BITS.unpack(_DOUBLE.pack(value + 0.0))[0]
    return _BITS.pack(bits ^ 0xFFFFFFFFFFFFFFFF if bits & _SIGN else bits | _SIGN)


def _decode_part(kind: str, key: bytes, at: int) -> tuple[Stored, int]:
    if key[at : at + 1] == ABSENT:
        return None, at + 1
    at += 1
    if kind in ("STRING", "BINARY"):
        end = find_terminator(key, at)
        body = key[at:end].replace(ESCAPE, b"\x00")
        return text_of(body) if kind == "STRING" else body, end + 2
    if kind == "DOUBLE":
        (bits,) = _BITS.unpack_from(key, at)
        bits = bits & ~_SIGN if bits & _SIGN else bits ^ 0xFFFFFFFFFFFFFFFF
        return _DOUBLE.unpack(_BITS.pack(bits))[0], at + 8
    if kind == "BOOLEAN":
        return key[at] == 1, at + 1
    width = INTEGER_WIDTHS[kind]
    return int.from_bytes(key[at : at + width], "big") - (1 << (8 * width - 1)), at + width


def find_terminator(key: bytes, at: int) -> int:
    while True:
        at = key.index(b"\x00", at)
        if key[at + 1] == 0:
            return at
        at += 2
