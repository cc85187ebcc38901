"""The table: the layout of rows on a terminal or in a text.

In: column names, and pages of cells. Out: text. Always: columns are as wide as the first page needs, and nothing waits
for a later one; a longer value further down shifts the rest of its line; no value breaks a line or controls the
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.cli.cells import Cells, lines_of, padded, spelled, width_of
from viewkeeper.cli.jsonlines import speaks_unicode
from viewkeeper.cli.output import spell, styled

_GAP = "  "
_NULL = "NULL"


class Table:
    """Columns with their widths."""

    def __init__(self, names: Sequence[str], first: Sequence[Cells]) -> None:
        self._names = pa.array([spell(name) for name in names], pa.string())
        self._rights = [cells.is_number for cells in first] or [False] * len(names)
        needed = [width_of(spelled(cells.texts.fill_null(_NULL))) for cells in first] or [0] * len(names)
        own = [width_of(self._names[place : place + 1]) for place in range(len(names))]
        self._widths = [max(pair) for pair in zip(own, needed, strict=True)]
        self._names_width = max(own, default=0)
        self._rule = "─" if speaks_unicode() else "-"
        self.width = sum(self._widths) + len(_GAP) * (len(names) - 1)

    def head(self) -> str:
        """The names, and a line below them."""
        cells = [Cells(self._names[place : place + 1], right) for place, right in enumerate(self._rights)]
        return f"{styled(self.lines(cells).rstrip(), 'bold')}\n{self._rule * self.width}\n"

    def lines(self, page: Sequence[Cells]) -> str:
        """A line for each row."""
        columns = []
        for place, (cells, width, right) in enumerate(zip(page, self._widths, self._rights, strict=True)):
            is_last = place == len(page) - 1
            columns.append(_filled(cells.texts, 0 if is_last and not right else width, right=right))
        return lines_of(columns, _GAP)

    def records(self, page: Sequence[Cells], first: int) -> str:
        """A line for each value, under the number of its row, counted from `first`."""
        numbers = pa.array(range(first, first + len(page[0].texts))).cast(pa.string())
        columns = [pc.binary_join_element_wise(f"{self._rule} ", numbers, f" {self._rule * 30}", "")]
        for name, cells in zip(padded(self._names, self._names_width, right=False).to_pylist(), page, strict=True):
            columns.append(pc.binary_join_element_wise(name, _filled(cells.texts, 0, right=False), _GAP))
        return lines_of(columns, "\n")


def _filled(texts: pa.Array, width: int, *, right: bool) -> pa.Array:
    null = _NULL.rjust(width) if right else _NULL.ljust(width)
    return pc.fill_null(padded(spelled(texts), width, right=right), styled(null, "dim"))
