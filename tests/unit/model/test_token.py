"""Tokens: they add up, go to text and back, and belong to one incarnation of one store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.errors import ForeignToken, InputError
from viewkeeper.model.positions import Token, covers

STREAMS = st.sampled_from(["0", "1", "12", "rs1,16021,1794810270429", "node/6ed0=é", "a:b%"])
POSITIONS = st.dictionaries(STREAMS, st.integers(0, 9), max_size=4)


@given(POSITIONS)
def test_a_token_goes_to_text_and_back(positions: dict) -> None:
    token = Token("abc", positions)

    assert Token.parse(str(token)) == token
    assert Token.parse(f" {token}\n") == token
    assert hash(Token.parse(str(token))) == hash(token)


@given(POSITIONS, POSITIONS, POSITIONS)
def test_two_tokens_together_are_covered_when_both_are(left: dict, right: dict, committed: dict) -> None:
    both = Token("abc", left) | Token("abc", right)
    expected = covers(committed, left) and covers(committed, right)

    assert both.is_covered_by("abc", committed) == expected
    assert both == Token("abc", right) | Token("abc", left)
    assert both.is_covered_by("abc", both.positions)


@pytest.mark.parametrize(
    "text", ["", "abc", "vk1:abc", "vk1:abc:0", "vk1:abc:0=x", "vk2:abc:0=1", "a:b:c:d", "vk1:abc:0=1=2", "vk1:abc:=1"]
)
def test_what_is_not_a_token_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a token"):
        Token.parse(text)


def test_a_token_of_another_store_is_refused() -> None:
    with pytest.raises(ForeignToken):
        Token("abc", {"0": 1}).is_covered_by("xyz", {"0": 9})
    with pytest.raises(ForeignToken):
        Token("abc") | Token("xyz")


@given(POSITIONS, POSITIONS)
def test_later_positions_cover_earlier_ones_and_not_the_other_way(left: dict, right: dict) -> None:
    later = {stream: left.get(stream, 0) + position for stream, position in right.items()}
    assert covers(left | later, left)
    assert covers(left, left | later) == (not any(right.values()))
    assert covers(left, {})
    assert covers(left, left)


def test_a_token_of_numbered_streams_reads_as_it_always_did() -> None:
    assert str(Token("abc", {"0": 5, "1": 7})) == "vk1:abc:0=5,1=7"
