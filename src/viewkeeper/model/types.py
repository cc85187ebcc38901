"""The SQL types: one value per type, and its name in each engine we use.

In: a type's SQL name. Out: a frozen `SqlType` with its Arrow, DuckDB and Spark types. Always: equal types are equal
values, and a type's `str` parses back to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from viewkeeper.errors import UnsupportedSql

if TYPE_CHECKING:
    import pyarrow as pa

Encoding = Literal["text", "bytes"]  # of a value in a cell of a foreign table: see `encodings`


@dataclass(frozen=True, slots=True)
class SqlType:
    """A SQL type; `precision` and `scale` are 0 except for DECIMAL."""

    kind: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.kind == "DECIMAL" else self.kind

    @property
    def width(self) -> int | None:
        """Bytes of a value in a row, None when it varies."""
        return _WIDTHS[self.kind]

    @property
    def is_integer(self) -> bool:
        return self.kind in ("INT", "BIGINT")

    @property
    def whole_digits(self) -> int:
        return self.precision - self.scale

    @property
    def is_exact(self) -> bool:
        """Integers and DECIMAL: what a view can sum without rounding."""
        return self.kind in ("INT", "BIGINT", "DECIMAL")

    @property
    def is_numeric(self) -> bool:
        return self.is_exact or self.kind == "DOUBLE"

    @property
    def duckdb(self) -> str:
        return _DUCKDB.get(self.kind, str(self))

    @property
    def spark(self) -> str:
        return "DECIMAL(38,0)" if self.kind == "INT128" else str(self)

    @property
    def arrow(self) -> pa.DataType:
        """Arrow type inside ViewKeeper; TIMESTAMP is naive there and means UTC."""
        import pyarrow as pa

        match self.kind:
            case "DECIMAL":
                return pa.decimal128(self.precision, self.scale)
            case "INT128":
                return pa.decimal128(38, 0)
            case "TIMESTAMP":
                return pa.timestamp("us")
        return getattr(pa, _ARROW.get(self.kind, self.kind.lower()))()


_WIDTHS: dict[str, int | None] = {
    "BOOLEAN": 1,
    **dict.fromkeys(("INT", "DATE"), 4),
    **dict.fromkeys(("BIGINT", "DOUBLE", "TIMESTAMP"), 8),
    **dict.fromkeys(("DECIMAL", "INT128"), 16),
    **dict.fromkeys(("STRING", "BINARY")),
}
# where engines have a name of their own
_DUCKDB = {"INT": "INTEGER", "INT128": "HUGEINT", "STRING": "VARCHAR", "BINARY": "BLOB"}
_ARROW = {"BOOLEAN": "bool_", "INT": "int32", "BIGINT": "int64", "DOUBLE": "float64", "DATE": "date32"}

BOOLEAN = SqlType("BOOLEAN")
INT = SqlType("INT")
BIGINT = SqlType("BIGINT")
DOUBLE = SqlType("DOUBLE")
STRING = SqlType("STRING")
BINARY = SqlType("BINARY")
DATE = SqlType("DATE")
TIMESTAMP = SqlType("TIMESTAMP")
INT128 = SqlType("INT128")  # accumulators only: users never declare it

_SYNONYMS = {"INTEGER": "INT", "LONG": "BIGINT", "NUMERIC": "DECIMAL", "DEC": "DECIMAL"}
_KNOWN = "use one of BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p,s), STRING, BINARY, DATE, TIMESTAMP"
# Names from other dialects, or of types that are not stored; Spark's CAST refuses some and truncates others.
_INSTEAD = {
    "BOOL": "write BOOLEAN",
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "CHARACTER", "NVARCHAR"), "write STRING, which has no length"),
    **dict.fromkeys(("BLOB", "BYTES", "BYTEA", "VARBINARY"), "write BINARY"),
    **dict.fromkeys(("FLOAT", "REAL", "FLOAT4", "FLOAT8"), "write DOUBLE"),
    **dict.fromkeys(("TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "DATETIME", "TIMESTAMPTZ"), "write TIMESTAMP, which is in UTC"),
}


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL(precision, scale), refused outside 1..38 digits."""
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        hint = "precision is 1 to 38, scale 0 to precision"
        raise UnsupportedSql(f"DECIMAL({precision},{scale}) is not a type", hint)
    return SqlType("DECIMAL", precision, scale)


@lru_cache(maxsize=256)  # a stored plan names the same few types thousands of times
def parse_type(text: str) -> SqlType:
    """The type that `text` names, as a user or a stored schema writes it."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*", text.upper())
    name = match and _SYNONYMS.get(match[1], match[1])
    if not match or name not in _WIDTHS or (match[2] and name != "DECIMAL"):
        hint = _INSTEAD.get(match[1], _KNOWN) if match else _KNOWN
        raise UnsupportedSql(f"type {text.strip()} is not supported", hint)
    if name == "DECIMAL":
        return decimal(int(match[2] or 10), int(match[3] or 0))
    return SqlType(name)
