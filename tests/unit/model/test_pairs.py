"""Pairs of a scan come in pieces of bounded size, all of them and in order."""

from __future__ import annotations

import pytest

from viewkeeper.model import stored_rows
from viewkeeper.model.stored_rows import pieces


@pytest.mark.parametrize(("bytes_max", "sizes"), [(39, [4, 4, 2]), (40, [4, 4, 2]), (41, [5, 5]), (101, [6, 4])])
def test_a_piece_ends_with_the_pair_that_fills_it(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(stored_rows, "_BYTES_MAX", bytes_max)
    monkeypatch.setattr(stored_rows, "_FIRST_PAIRS", 6)
    given = [(b"%d" % number, b"x" * 10) for number in range(10)]
    found = list(pieces(given))

    assert [pair for piece in found for pair in piece] == given
    assert [len(piece) for piece in found] == sizes


def test_a_pair_larger_than_a_piece_is_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "_BYTES_MAX", 5)
    given = [(b"a", b"x" * 100), (b"b", b""), (b"c", b"x" * 4)]

    assert list(pieces(given)) == [given[:1], given[1:]]
