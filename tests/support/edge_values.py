"""Edge values: sizes at both sides of the thresholds of the code, for everything that draws input.

Out: lengths of texts, and numbers of rows. Always: sizes stand on both sides of a
threshold that chooses another way through the code.
"""

from __future__ import annotations

# Of texts, in bytes; their keys are a byte or two longer. 125 to 130 are around the keys that are compared as words, 490 to
# 513 around LMDB's longest key, 2,000 and 5,000 around a page and a block of values.
LENGTHS = (0, 1, *range(125, 131), *range(255, 258), *range(490, 514), 2_000, 5_000)
FEW_LENGTHS = (0, 1, 125, 126, 127, 128, 129, 255, 256, 493, 500, 511, 2_000, 5_000)

# Of delta rows that an epoch inserts or deletes: DuckDB holds chunks of fewer than 64 rows back, and 64 rows at most are
# planned once for all.
DELTA_ROWS = (0, 1, 63, 64, 65, 5_000)


def texts(lengths: tuple[int, ...] = LENGTHS) -> tuple[str, ...]:
    """Texts of these lengths: one is the beginning of the next, and neighbours differ in their last letter alone."""
    return tuple(dict.fromkeys(end for size in lengths for end in ("m" * size, "m" * (size - 1) + "n" if size else "")))
