"""The shell: a prompt for SQL, with a history of whole statements and completion where Python has readline.

In: lines. Out: whole statements for the runner, and commands, which begin with a backslash. Always: a statement ends
with a semicolon outside quotes and comments; after an error the prompt returns. A statement is saved at once and as a
whole, so several prompts may be open and a killed one loses nothing; only its owner can read the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from viewkeeper.algebra.aggregates import AGGREGATE_NAMES
from viewkeeper.cli.exit_codes import print_failure, print_interrupted
from viewkeeper.cli.options import Form
from viewkeeper.cli.terminal import print_text
from viewkeeper.errors import InputError, SqlError, UnsupportedSql, ViewKeeperError
from viewkeeper.stores.open import shown

PROMPT = "viewkeeper> "
MORE = "       ...> "
HELP = r"""A statement ends with ; and may span lines. Tab completes, the arrow keys bring earlier statements.
Ctrl-C stops a statement, or forgets what was typed; \q or Ctrl-D ends.
  SHOW TABLES;  SHOW VIEWS;  DESCRIBE name;  EXPLAIN name;  SELECT …;
  CREATE TABLE …;  CREATE MATERIALIZED VIEW name AS SELECT …;  CREATE INDEX name ON table (column);
  INSERT INTO …;  UPDATE … WHERE key = …;  DELETE FROM … WHERE key = …;  DROP …;

  \d [NAME]           tables and views, or the columns of one
  \x [on|off|auto]    a line for each value: always, never, or where rows are too wide
  \timing [on|off]    tell how long a statement took
  \pager [on|off]     show long answers page by page, in $PAGER or less
  \help               this; also \h and \?
  \q                  end; also \quit"""
_FORMS = {"on": Form.EXPANDED, "off": Form.TABLE, "auto": Form.TEXT}
_WORDS = {"help": "\\help", "\\h": "\\help", "\\?": "\\help", "quit": "\\q", "exit": "\\q", "\\quit": "\\q"}
_KEYWORDS = """ALL ALTER TABLE ADD COLUMN AND AS ASC BETWEEN BIGINT BINARY BOOLEAN BY CASE CAST COALESCE CREATE DATE DECIMAL
DELETE DESC DESCRIBE DISTINCT DOUBLE DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FILTER FROM FULL GROUP HAVING IF IN INDEX
INNER INSERT INTERSECT INTO IS JOIN KEY LEFT LIKE LIMIT MATERIALIZED NOT NULL ON OR ORDER OUTER PRIMARY RENAME REPLACE
RIGHT SELECT SET SHOW STRING TABLES THEN TIMESTAMP TO TRUE UNION UPDATE USING VALUES VIEW VIEWS WHEN WHERE WITH""".split()
_KEYWORDS += [name.upper() for name in AGGREGATE_NAMES]
_BEFORE_RELATIONS = re.compile(r"(^\\d|\b(from|join|into|update|describe|explain|table|view|on))\s+$", re.IGNORECASE)
_DELIMITERS = " \t\n,;()=<>+-*/%'\"`."
_ENTRIES_MAX = 1_000
_LINE_BREAK = "\x01"  # of a statement, in the file: as in psql


@dataclass(frozen=True, slots=True)
class Names:
    """What can be named: tables, views and indexes, and the columns of all of them."""

    relations: Sequence[str] = ()
    columns: Sequence[str] = ()


class Runner(Protocol):
    """What the shell needs in order to run statements."""

    form: Form
    is_paged: bool

    def run(self, text: str) -> float:
        """Run statements and print their results; returns the seconds they took, without the printing."""

    def names(self) -> Names:
        """What can be named in a statement."""


def run_shell(runner: Runner, url: str, read: Callable[[str], str] = input) -> None:
    """Read statements with `read` and pass each to `runner`, until the end of the input."""
    print(rf"ViewKeeper on {shown(url)}. \help for help, \q to quit.")
    shell = Shell(runner)
    with line_editing(sorted(Shell.COMMANDS), runner.names) as remember:
        for text in statements(read):
            remember(text)
            try:
                shell.run(text)
            except ViewKeeperError as error:
                print_failure(error)
            except KeyboardInterrupt as error:
                print_interrupted(error)


class Shell:
    """Runs statements and commands, with the options that earlier commands set."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._is_timed = False
        runner.is_paged = True

    def run(self, text: str) -> None:
        if not text.startswith("\\"):
            self._run_sql(text)
            return
        name, *arguments = text.split()
        command = self.COMMANDS.get(name)
        if command is None:
            raise InputError(f"there is no command {name}", r"\help lists them")
        if len(arguments) > 1:
            raise InputError(f"{name} takes one word, not {len(arguments)}", r"\help tells which")
        command(self, arguments[0] if arguments else None)

    def _run_sql(self, text: str) -> None:
        seconds = self._runner.run(text)
        if self._is_timed:
            print_text(f"{seconds * 1000:,.1f} ms", "dim")

    def _expand(self, word: str | None) -> None:
        chosen = word or ("auto" if self._runner.form is Form.EXPANDED else "on")
        if chosen not in _FORMS:
            raise InputError(f"\\x is on, off or auto, not {chosen}")
        self._runner.form = _FORMS[chosen]
        print_text(f"expanded: {chosen}")

    def _time(self, word: str | None) -> None:
        self._is_timed = _switched("timing", self._is_timed, word)

    def _page(self, word: str | None) -> None:
        self._runner.is_paged = _switched("pager", self._runner.is_paged, word)

    COMMANDS: dict[str, Callable[[Shell, str | None], None]] = {
        "\\help": lambda shell, word: print_text(HELP),
        "\\d": lambda shell, name: shell._run_sql(f"DESCRIBE {name}" if name else "SHOW TABLES; SHOW VIEWS"),
        "\\x": _expand,
        "\\timing": _time,
        "\\pager": _page,
        "\\q": lambda shell, word: None,  # the input has ended with it
    }


def statements(read: Callable[[str], str]) -> Iterator[str]:
    """The texts that the user ends with a semicolon, and the commands."""
    typed = ""
    while True:
        try:
            line = read(MORE if typed else PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("" if typed else "\n\\q or Ctrl-D ends, \\help helps")
            typed = ""
            continue
        command = _command(line, typed)
        if command == "\\q":
            return
        if command:
            yield command
            continue
        typed = (typed + "\n" + line) if typed else line
        if not typed.strip():
            typed = ""
        elif is_whole(typed):
            yield typed
            typed = ""


def is_whole(text: str) -> bool:
    """Whether `text` ends with a semicolon that is not inside a string, a name or a comment."""
    from viewkeeper.sql.query_parser import tokenize

    try:
        _, tokens = tokenize(text)
    except UnsupportedSql:
        return True  # running it will report what is wrong
    except SqlError:
        return False
    return bool(tokens) and tokens[-1].token_type.name == "SEMICOLON"


def _command(line: str, typed: str) -> str:
    """The command in a line, given the statement typed so far; empty if the line belongs to the statement."""
    text = line.strip().rstrip(";").rstrip()
    text = _WORDS.get(text.lower(), text) if not typed or text.startswith("\\") else text
    # inside an open quote the text would not be whole even with a semicolon
    return text if text.startswith("\\") and (not typed or is_whole(f"{typed}\n;")) else ""


def _switched(what: str, is_on: bool, word: str | None) -> bool:
    if word not in (None, "on", "off"):
        raise InputError(f"\\{what} is on or off, not {word}")
    chosen = not is_on if word is None else word == "on"
    print_text(f"{what}: {'on' if chosen else 'off'}")
    return chosen


@contextmanager
def line_editing(commands: Sequence[str], names: Callable[[], Names]) -> Iterator[Callable[[str], None]]:
    """Within the block lines are edited; yields the function that saves a statement."""
    try:
        import readline
    except ImportError:
        yield lambda text: None
        return
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state, "viewkeeper", "history")
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
    return [word for some in (names.relations, names.columns, words) for word in _beginning(text, some)]


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
    with suppress(OSError):  # an unwritable home is no reason to fail
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)  # statements may hold private data
        with file.open(mode, encoding="utf-8", errors="backslashreplace") as target:
            target.write(text)
