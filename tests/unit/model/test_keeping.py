"""Keeping: by epochs and by seconds at least what was asked for, by few marks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.model.json_codec import from_json_value, to_json_value
from viewkeeper.model.read_frontier import RetentionPolicy

SECOND = 1_000_000_000


@given(st.integers(0, 50), st.integers(0, 100), st.lists(st.integers(1, 30), min_size=1, max_size=200))
def test_at_least_what_was_asked_for_is_kept_and_not_much_more(epochs: int, seconds: int, gaps: list[int]) -> None:
    keeping, stamps, floor = RetentionPolicy(epochs, seconds), [0], 0
    for epoch, gap in enumerate(gaps, 1):
        stamp = stamps[-1] + gap * SECOND
        floor = max(floor, keeping.floor(epoch - 1, stamp, floor))
        if epochs:
            assert floor <= max(0, epoch - 1 - epochs)
        if seconds:
            older = [number for number, then in enumerate(stamps) if then <= stamp - seconds * SECOND]
            assert floor <= (older[-1] if older else 0)  # what happened in those seconds is behind it
        if not keeping:
            assert floor == epoch - 1
        keeping = keeping.committed(epoch, stamp)
        assert len(keeping.marks) <= 35
        assert from_json_value(RetentionPolicy, to_json_value(keeping)) == keeping
        stamps.append(stamp)
    quiet = stamps[-1] + (2 * seconds + 60) * SECOND
    by_epochs, by_seconds = len(gaps) - epochs, keeping.marks[-1][0] if seconds else len(gaps)
    assert keeping.floor(len(gaps), quiet, floor) >= min(by_epochs, by_seconds)


def test_epochs_are_indexed_from_when_it_was_asked_for_until_it_is_not() -> None:
    assert RetentionPolicy().begun(5).indexed_from is None
    asked = RetentionPolicy(epochs=3).begun(5)
    assert asked.begun(6).indexed_from == 5
    assert RetentionPolicy(0, 0, (), 5).begun(7).indexed_from is None
