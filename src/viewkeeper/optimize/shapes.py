"""Shapes: how much room a vertex takes in a picture.

In: a vertex. Out: its lines of text and its measures in pixels. Always: every line fits into the shape's width, by the
known width of a fixed-width font; what is cut off ends in `…`.
"""

from __future__ import annotations

import textwrap
import unicodedata
from dataclasses import dataclass

from viewkeeper.optimize.vertices import EXPRESSION, Vertex

FONT_PX = 11  # of captions, in a fixed-width font
TITLE_PX = 13
LINE_PX = 14
RADIUS_PX = 18
PADDING_PX = 10
_WIDTH_OF_CHARACTER = 0.62  # of the font size; fixed-width fonts have 0.60
_LINE_CHARACTERS_MAX = 34
_LINES_MAX = 4
_SHARED_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class Shape:
    """`width` in all, of which edges may touch the middle `body`; `up` and `down` from where edges touch it."""

    title: str
    lines: tuple[str, ...]
    shared: tuple[str, ...]
    width: float
    body: float
    up: float
    down: float


def shape_of(vertex: Vertex) -> Shape:
    """A circle with its caption below, or a box around title and caption."""
    lines = wrapped(vertex.caption, _LINES_MAX)
    views = ", ".join(vertex.views)
    shared = wrapped(f"shared by {shortened(views, _SHARED_CHARACTERS_MAX)}", 3) if len(vertex.views) > 1 else ()
    title = shortened(vertex.title, _LINE_CHARACTERS_MAX)
    text_width = max((text_width_px(line, FONT_PX) for line in (*lines, *shared)), default=0.0)
    height = LINE_PX * (len(lines) + len(shared))
    if vertex.kind == EXPRESSION:
        width = max(text_width, 2 * RADIUS_PX)
        return Shape(title, lines, shared, width, 2 * RADIUS_PX, RADIUS_PX, RADIUS_PX + 4 + height)
    width = max(text_width, text_width_px(title, TITLE_PX)) + 2 * PADDING_PX
    half = (height + TITLE_PX + 2 * PADDING_PX) / 2
    return Shape(title, lines, shared, width, width, half, half)


def wrapped(text: str, lines_max: int) -> tuple[str, ...]:
    """At most `lines_max` lines, the last one cut off if there is more."""
    lines = textwrap.wrap(text, _LINE_CHARACTERS_MAX, break_on_hyphens=False)
    if len(lines) > lines_max:
        lines = [*lines[: lines_max - 1], f"{lines[lines_max - 1][: _LINE_CHARACTERS_MAX - 1]}…"]
    return tuple(lines)


def shortened(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def text_width_px(text: str, font_px: float) -> float:
    """The width of a text in a fixed-width font, in which East Asian characters take two places."""
    places = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
    return places * font_px * _WIDTH_OF_CHARACTER
