"""The shell: a prompt for SQL.

In: lines. Out: whole statements for the runner, and commands, which begin with a backslash. Always: a statement ends
with a semicolon outside quotes and comments; after an error is printed the prompt returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from viewkeeper.cli.answers import Form
from viewkeeper.cli.failures import print_failure, print_interrupted
from viewkeeper.cli.lineediting import Names, line_editing
from viewkeeper.cli.output import print_text
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


class Runner(Protocol):
    """What the shell needs in order to run statements."""

    form: Form
    is_paged: bool

    def run(self, text: str) -> float:
        """Run statements and print their results; returns the seconds that they took, without the printing."""

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
        """Run a statement or a command."""
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

    def _help(self, word: str | None) -> None:
        print_text(HELP)

    def _describe(self, name: str | None) -> None:
        self._run_sql(f"DESCRIBE {name}" if name else "SHOW TABLES; SHOW VIEWS")

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
        "\\help": _help,
        "\\d": _describe,
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
    from viewkeeper.sql.tokens import tokenize

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
