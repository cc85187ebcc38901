"""Fills: how far a view has come that is filled from rows which were there before it (`epochs.md`, R12).

In: borders between keys. Out: frozen values of the epoch record. Always: a fill goes through each part of its source in key
order; a part is a stream of the base table, or a place of its DELTA where the log has no before-images. What lies at or
below the cursor is in the view and kept up by changes; what lies above it is not in the view yet.
"""

from __future__ import annotations

from dataclasses import dataclass

START = b""  # below every key


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that one epoch brings into views: for each part that is not done, borders low < … <= high.

    `tables` are the views. A high of None is the end of the part. `rows` counts the chunk's rows, `total` about all of the
    source.
    """

    source: int
    tables: tuple[int, ...]
    borders: dict[int, tuple[bytes | None, ...]]
    rows: int
    total: int
    opens: bool  # the first of its source

    def to_json(self) -> dict:
        borders = {str(part): [_to_text(key) for key in keys] for part, keys in sorted(self.borders.items())}
        numbers = {"source": self.source, "tables": list(self.tables), "rows": self.rows, "total": self.total}
        return numbers | {"borders": borders, "opens": self.opens}

    @staticmethod
    def from_json(value: dict) -> Chunk:
        borders = {int(part): tuple(_to_key(key) for key in keys) for part, keys in value["borders"].items()}
        return Chunk(value["source"], tuple(value["tables"]), borders, value["rows"], value["total"], value["opens"])


@dataclass(frozen=True, slots=True)
class Filling:
    """A view that is being filled: for each source the cursors of the parts that are not done; rows that are in, of about.

    All sources are there from the first chunk on, so a view is filled when none has a cursor left.
    """

    cursors: dict[int, dict[int, bytes]]
    rows: int
    total: int

    @property
    def is_done(self) -> bool:
        return not any(self.cursors.values())

    def to_json(self) -> dict:
        cursors = {
            str(source): {str(part): key.hex() for part, key in sorted(parts.items())}
            for source, parts in sorted(self.cursors.items())
        }
        return {"cursors": cursors, "rows": self.rows, "total": self.total}

    @staticmethod
    def from_json(value: dict) -> Filling:
        cursors = {
            int(source): {int(part): bytes.fromhex(key) for part, key in parts.items()}
            for source, parts in value["cursors"].items()
        }
        return Filling(cursors, value["rows"], value["total"])


def advance(before: Filling | None, chunk: Chunk) -> Filling:
    """A fill behind a chunk that is committed."""
    was = before or Filling({}, 0, 0)
    cursors = {part: keys[-1] for part, keys in chunk.borders.items() if keys[-1] is not None}
    total = was.total + (chunk.total if chunk.opens else 0)
    rows = was.rows + chunk.rows
    return Filling(was.cursors | {chunk.source: cursors}, rows, max(total, rows))


def _to_text(key: bytes | None) -> str | None:
    return None if key is None else key.hex()


def _to_key(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
