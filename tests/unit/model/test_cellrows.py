"""Cells merge to what the base shows, whatever the order, the grouping and the repetition of writes."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from viewkeeper.model.foreign_rows import CELLS_SCHEMA, HIDE, NEVER, PUT, READ, READ_NONE, CellRows, merge_by_key

COLUMNS = 3
SCHEMA = CELLS_SCHEMA.remove(0)
Write = tuple[bytes, int, int, int, int, bytes | None]  # key, column, kind, stamp, order, value


def drawn_writes(draw: random.Random, count: int) -> list[Write]:
    """Few keys and stamps, so that stamps tie; the order of a write is its own."""
    kinds = [draw.choice((PUT, PUT, HIDE)) for _ in range(count)]
    return [
        (
            draw.choice((b"a", b"b", b"", b"long" * 40)),
            draw.randrange(COLUMNS),
            kind,
            draw.randrange(6),
            order,
            bytes([order % 256]) * draw.randrange(3) if kind == PUT else None,
        )
        for order, kind in enumerate(kinds)
    ]


def read(writes: list[Write]) -> dict[bytes, list[bytes | None]]:
    """What a reader of the base sees: plainly, one cell after the other."""
    found = {}
    for key in {write[0] for write in writes}:
        row: list[bytes | None] = []
        for column in range(COLUMNS):
            mine = [write for write in writes if write[:2] == (key, column)]
            hidden = max((write[3] for write in mine if write[2] == HIDE), default=-1)
            shown = [write for write in mine if write[2] == PUT and write[3] > hidden]
            row.append(max(shown, key=lambda write: write[3:5])[5] if shown else None)
        found[key] = row
    return found


def rows_of(writes: list[Write]) -> tuple[pa.Array, CellRows]:
    names = ("key", "column", "kind", "stamp", "order", "value")
    batch = pa.RecordBatch.from_pylist([dict(zip(names, write, strict=True)) for write in writes], SCHEMA)
    return batch["key"], CellRows.of_writes(COLUMNS, batch)


def together(parts: list[tuple[pa.Array, CellRows]]) -> tuple[pa.Array, CellRows]:
    """All rows, one after the other."""
    keys, rows = zip(*parts, strict=True)
    return pa.concat_arrays(keys), CellRows.decode(COLUMNS, pa.concat_arrays([part.encode() for part in rows]))


def merged(keys: pa.Array, rows: CellRows) -> tuple[pa.Array, CellRows]:
    chosen, whole = merge_by_key(keys, rows, np.zeros(len(keys), np.int64))
    return keys.take(pa.array(chosen)), whole


def shown(keys: pa.Array, rows: CellRows) -> dict[bytes, list[bytes | None]]:
    return dict(
        zip(keys.to_pylist(), map(list, zip(*(column.to_pylist() for column in rows.seen), strict=True)), strict=True)
    )


@pytest.mark.parametrize("seed", range(40))
def test_writes_in_any_order_grouping_and_number_show_what_a_reader_of_the_base_sees(seed: int) -> None:
    draw = random.Random(seed)
    writes = drawn_writes(draw, draw.randint(1, 60))
    told = writes + draw.choices(writes, k=draw.randint(0, 20))  # some twice
    draw.shuffle(told)
    borders = sorted({0, len(told), *(draw.randrange(len(told)) for _ in range(draw.randint(0, 5)))})
    parts = [merged(*rows_of(told[low:high])) for low, high in pairwise(borders)]
    keys, rows = merged(*together(parts))

    assert shown(keys, rows) == read(writes)
    assert keys.to_pylist() == sorted(read(writes))
    again = CellRows.decode(COLUMNS, rows.encode())
    assert again.encode() == rows.encode()
    assert shown(keys, again) == read(writes)
    assert merged(*rows_of(sorted(writes, key=str)))[1].encode() == rows.encode()  # one state, whatever the way to it


def test_of_a_row_that_is_too_large_the_largest_values_are_not_kept_until_others_replace_them() -> None:
    megabytes = [(6, 3, 5), (1, 2, 3), (11, 1, 1)]
    values = tuple(pa.array([b"x" * (row[column] << 20) for row in megabytes], pa.binary()) for column in range(3))
    stamps, never = np.full((3, 3), 5), np.full((3, 3), NEVER)
    kept = CellRows(values, stamps, stamps, never, never).kept()

    assert kept.too_large.T.tolist() == [[True, False, False], [False] * 3, [True, False, False]]
    assert [value.is_null().to_pylist() for value in kept.values] == [[True, False, True], [False] * 3, [False] * 3]
    again = CellRows.decode(3, kept.encode())
    assert again.too_large.tolist() == kept.too_large.tolist()
    new, nothing = pa.array([b"y", None, None], pa.binary()), pa.nulls(3, pa.binary())
    first, last = np.where([1, 0, 0], 6, never), np.where([0, 0, 1], 5, never)
    newer, hidden = (
        CellRows((new,) * 3, first, first, never, never),
        CellRows((nothing,) * 3, never, never, last, never),
    )
    assert again.merged_with(newer).too_large.T.tolist() == [[False] * 3, [False] * 3, [True, False, False]]
    assert again.merged_with(hidden).too_large.T.tolist() == [[True, False, False], [False] * 3, [False] * 3]
    older = CellRows(values, stamps - 1, stamps - 1, never, never)
    assert again.merged_with(older).too_large.tolist() == kept.too_large.tolist(), "an older value does not come back"


def test_what_nothing_is_known_of_shows_nothing() -> None:
    rows = CellRows.decode(COLUMNS, pa.nulls(2, pa.binary()))
    assert [column.to_pylist() for column in rows.seen] == [[None, None]] * COLUMNS
    both = together([rows_of([(b"k", 0, PUT, 5, 1, b"v")]), (pa.array([b"k", b"l"]), rows)])
    assert shown(*merged(*both)) == {
        b"k": [b"v", None, None],
        b"l": [None] * COLUMNS,
    }


@pytest.mark.parametrize("seed", range(20))
def test_two_states_of_the_same_rows_are_merged_like_their_writes(seed: int) -> None:
    draw = random.Random(seed)
    writes = [(b"k", *write[1:]) for write in drawn_writes(draw, 30)]
    cut = draw.randint(1, 29)
    (_, first), (_, second), (_, whole) = (merged(*rows_of(some)) for some in (writes[:cut], writes[cut:], writes))
    assert first.merged_with(second).encode() == whole.encode() == second.merged_with(first).encode()


@pytest.mark.parametrize("seed", range(20))
def test_what_was_written_before_a_cell_was_read_does_not_count_whenever_it_arrives(seed: int) -> None:
    """A cell is read once; writes from before are told with it or late, but not together with those from after it."""
    draw = random.Random(seed)
    writes = [write for write in drawn_writes(draw, 40) if write[2] == PUT]
    at = draw.randrange(len(writes))
    key, column, *_ = writes[at]
    value = draw.choice((b"read", None))
    found: Write = (key, column, READ if value else READ_NONE, draw.randrange(6), at * 100 + 1, value)
    numbered = [(*write[:4], number * 100, write[5]) for number, write in enumerate(writes)]
    before, after = numbered[: at + 1], numbered[at + 1 :]
    late = [write for write in before if draw.random() < 0.4]
    first = [write for write in before if write not in late] + [found]
    parts = [part for part in (first, late, after) if part]
    for part in parts:
        draw.shuffle(part)
    draw.shuffle(parts)
    keys, rows = merged(*together([merged(*rows_of(part)) for part in parts]))

    counted = [write for write in numbered if write[:2] != (key, column) or write[4] > found[4]]
    as_put = [(key, column, PUT, found[3], found[4], value)] if value else []
    expected = {other: [None] * COLUMNS for other in {write[0] for write in numbered}} | read(counted + as_put)
    assert shown(keys, rows) == expected
