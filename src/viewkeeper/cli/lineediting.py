"""Line editing: a history of whole statements, and completion, where Python has readline.

In: statements as they are entered, and the existing names. Out: what the arrow keys and Tab offer. Always: a statement
is saved as a whole, line breaks included, and at once, so that several prompts may be open and a killed one loses
nothing; only its owner can read the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.sql.aggregates import FUNCTIONS

_KEYWORDS = """ALL ALTER TABLE ADD COLUMN AND AS ASC BETWEEN BIGINT BINARY BOOLEAN BY CASE CAST COALESCE CREATE DATE DECIMAL
DELETE DESC DESCRIBE DISTINCT DOUBLE DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FILTER FROM FULL GROUP HAVING IF IN INDEX
INNER INSERT INTERSECT INTO IS JOIN KEY LEFT LIKE LIMIT MATERIALIZED NOT NULL ON OR ORDER OUTER PRIMARY RENAME REPLACE
RIGHT SELECT SET SHOW STRING TABLES THEN TIMESTAMP TO TRUE UNION UPDATE USING VALUES VIEW VIEWS WHEN WHERE WITH""".split()
_KEYWORDS += [name.upper() for name in FUNCTIONS]
_BEFORE_RELATIONS = re.compile(r"(^\\d|\b(from|join|into|update|describe|explain|table|view|on))\s+$", re.IGNORECASE)
_DELIMITERS = " \t\n,;()=<>+-*/%'\"`."
_ENTRIES_MAX = 1_000
_LINE_BREAK = "\x01"  # of a statement, in the file: as in psql


@dataclass(frozen=True, slots=True)
class Names:
    """What can be named: tables, views and indexes, and the columns of all of them."""

    relations: Sequence[str] = ()
    columns: Sequence[str] = ()


@contextmanager
def line_editing(commands: Sequence[str], names: Callable[[], Names]) -> Iterator[Callable[[str], None]]:
    """Within the block lines are edited; yields the function that saves a statement."""
    try:
        import readline
    except ImportError:
        yield lambda text: None
        return
    file = _history_file()
    for entry in _read_history(file):
        readline.add_history(entry)
    readline.set_auto_history(False)
    readline.set_completer_delims(_DELIMITERS)
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            found[:] = completions(readline.get_line_buffer()[: readline.get_begidx()], text, commands, names())
        return found[state] if state < len(found) else None

    def remember(text: str) -> None:
        readline.add_history(text)
        _append_history(file, text)

    readline.set_completer(complete)
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    try:
        yield remember
    finally:
        readline.set_completer(None)
        readline.set_auto_history(True)


def completions(before: str, text: str, commands: Sequence[str], names: Names) -> list[str]:
    """The completions of `text`, after `before` in the same line."""
    if not before.strip() and text.startswith("\\"):
        return [command for command in commands if command.startswith(text)]
    if _BEFORE_RELATIONS.search(before):
        return _beginning(text, names.relations)
    words = [word.lower() for word in _KEYWORDS] if text.islower() else _KEYWORDS
    return [*_beginning(text, names.relations), *_beginning(text, names.columns), *_beginning(text, words)]


def _beginning(text: str, words: Sequence[str]) -> list[str]:
    return sorted({word for word in words if word.lower().startswith(text.lower())})


def _read_history(file: Path) -> list[str]:
    """The last entries; a file that grew too long is shortened."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []  # the first time, or not readable: start empty
    if len(lines) > 2 * _ENTRIES_MAX:
        lines = lines[-_ENTRIES_MAX:]
        _write(file, "w", "".join(f"{line}\n" for line in lines))
    return [line.replace(_LINE_BREAK, "\n") for line in lines[-_ENTRIES_MAX:]]


def _append_history(file: Path, text: str) -> None:
    _write(file, "a", text.strip().replace("\n", _LINE_BREAK) + "\n")


def _write(file: Path, mode: str, text: str) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)  # statements may hold private data
        with file.open(mode, encoding="utf-8", errors="backslashreplace") as target:
            target.write(text)
    except OSError:
        pass  # an unwritable home is no reason to fail


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "viewkeeper" / "history"
