"""The function reference: writes the tables of functions in docs/sql.md.

In: the page and the table of functions. Out: the page with its tables written again: `python -m
viewkeeper.sql.function_reference docs/sql.md`. Always: only text between the markers changes; a style test compares both.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from viewkeeper.sql.function_rows import Function, Gives, Rewrite, Together
from viewkeeper.sql.function_table import SECTIONS

_MARKED = re.compile(r"(?<=<!-- functions: )(.*?) -->.*?(?=<!-- end -->)", re.DOTALL)


def written_again(page: str) -> str:
    """The page with a table for each section that it marks."""
    return _MARKED.sub(lambda found: f"{found[1]} -->\n\n{_table(found[1])}\n", page)


def _table(section: str) -> str:
    rows = [["function", "arguments", "type", "notes"], ["---"] * 4, *map(_cells, SECTIONS[section])]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)


def _cells(row: Function | Rewrite) -> list[str]:
    names = [row.syntax or f"{row.name.upper()}({row.arguments})", *row.also.upper().split()]
    gives = row.gives.shown if isinstance(row.gives, Gives) else str(row.gives)
    notes = [f"fails {row.fails}"] if row.fails else []
    if isinstance(row, Function):
        if row.parts and not row.syntax:
            names.append(f"EXTRACT({row.parts.split()[0].upper()} FROM {row.arguments})")
        if row.default is not None:
            notes.append(f"{row.arguments.split()[-1].rstrip(']')} is {row.default.text} if left out")
        notes.append(row.nulls.shown)
    cited = ", ".join(f"`{name}`" for name in names)
    return [cited, _arguments(row), gives, "; ".join(filter(None, [*notes, row.notes]))]


def _arguments(row: Function | Rewrite) -> str:
    """What they must be; once, if it is the same for all."""
    if isinstance(row.takes, str):
        return row.takes
    kinds = [row.takes.shown] if isinstance(row.takes, Together) else [kind.shown for kind in row.takes]
    return "; ".join(kinds if len(set(kinds)) > 1 else kinds[:1])


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written_again(path.read_text(encoding="utf-8")), encoding="utf-8")
