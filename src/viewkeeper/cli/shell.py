"""The shell: a prompt for SQL.

In: lines. Out: whole statements, handed on. Always: a statement ends with a semicolon outside of quotes and comments;
an error is told and the prompt comes back; what was typed is remembered for the next time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkeeper.cli.failures import print_failure, print_interrupted
from viewkeeper.errors import SqlError, UnsupportedSql, ViewKeeperError

PROMPT = "viewkeeper> "
MORE = "       ...> "
HELP = r"""A statement ends with ; and may span lines. Ctrl-C forgets what was typed, \q or Ctrl-D ends.
  SHOW TABLES;  SHOW VIEWS;  DESCRIBE name;  EXPLAIN name;  SELECT …;
  CREATE TABLE …;  CREATE MATERIALIZED VIEW name AS SELECT …;  CREATE INDEX name ON table (column);
  INSERT INTO …;  UPDATE … WHERE key = …;  DELETE FROM … WHERE key = …;  DROP …;"""
_HISTORY_LINES = 1_000


def run_shell(run: Callable[[str], None], url: str, read: Callable[[str], str] = input) -> None:
    """Ask for statements with `read` and hand each to `run`, until the end of the input."""
    print(rf"ViewKeeper on {url}. \h for help, \q to quit.")
    with _history():
        for text in statements(read):
            try:
                run(text)
            except ViewKeeperError as error:
                print_failure(error)
            except KeyboardInterrupt as error:
                print_interrupted(error)


def statements(read: Callable[[str], str]) -> Iterator[str]:
    """The texts that the user ends with a semicolon."""
    typed = ""
    while True:
        try:
            line = read(MORE if typed else PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            typed = ""
            continue
        command = "" if typed else line.strip().lower().rstrip(";")
        if command in ("\\q", "quit", "exit"):
            return
        if command in ("\\h", "\\?", "help"):
            print(HELP)
            continue
        typed = (typed + "\n" + line) if typed else line
        if not typed.strip():
            typed = ""
        elif is_whole(typed):
            yield typed
            typed = ""


def is_whole(text: str) -> bool:
    """Whether `text` ends with a semicolon that is not inside a string, a name or a comment."""
    from viewkeeper.sql.tokens import tokenize

    try:
        _, tokens = tokenize(text)
    except UnsupportedSql:
        return True  # whoever runs it will say what is wrong
    except SqlError:
        return False
    return bool(tokens) and tokens[-1].token_type.name == "SEMICOLON"


@contextmanager
def _history() -> Iterator[None]:
    """Line editing and the lines of earlier days, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = _history_file()
    try:
        readline.read_history_file(file)
    except OSError:
        pass  # the first time, or not readable: begin anew
    readline.set_history_length(_HISTORY_LINES)
    try:
        yield
    finally:
        _write_history(readline.write_history_file, file)


def _write_history(write: Callable[[Path], None], file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)  # statements may hold what is nobody else's business
        write(file)
    except OSError:
        pass  # a home that cannot be written to is no reason to fail


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "viewkeeper" / "history"
