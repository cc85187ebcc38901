"""The prompt: statements, commands, history, completion and the pager."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from viewkeeper.cli.options import Form
from viewkeeper.cli.shell import MORE, PROMPT, Names, Shell, completions, line_editing, run_shell, statements
from viewkeeper.cli.sql import SqlRunner
from viewkeeper.cli.terminal import paged
from viewkeeper.errors import InputError, SqlError

NAMES = Names(["orders", "order_totals", "people"], ["id", "amount", "origin"])


class Recorded:
    """A runner that remembers what it was asked to run."""

    form = Form.TEXT
    is_paged = False

    def __init__(self, *failures: BaseException | None) -> None:
        self.ran: list[str] = []
        self._failures = iter(failures)

    def run(self, text: str) -> float:
        self.ran.append(text)
        failure = next(self._failures, None)
        if failure:
            raise failure
        return 0.25

    def names(self) -> Names:
        return NAMES


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the history is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "viewkeeper" / "history"


def typed(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """A `read` for the shell that gives these lines, and then the end of the input."""
    rest: Iterator[str | type[BaseException]] = iter(lines)

    def read(prompt: str) -> str:
        line = next(rest, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


def test_the_prompt_collects_lines_until_a_statement_is_whole() -> None:
    prompts: list[str] = []
    lines = iter(["", "SELECT", "  1;", "\\h", "SELECT 2;", "\\q", "SELECT 3;"])

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return next(lines)

    assert list(statements(read)) == ["SELECT\n  1;", "\\help", "SELECT 2;"]
    assert prompts == [PROMPT, PROMPT, MORE, PROMPT, PROMPT, PROMPT]


def test_control_c_forgets_what_was_typed_and_control_d_ends() -> None:
    assert list(statements(typed("SELECT 1", KeyboardInterrupt, "SELECT 2;"))) == ["SELECT 2;"]


@pytest.mark.parametrize("word", ["\\q", "quit", "exit;", "EXIT"])
def test_several_words_end_the_prompt(word: str) -> None:
    assert list(statements(typed(word, "SELECT 1;"))) == []


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (("SELECT 1", "\\x on", ";"), ["\\x on", "SELECT 1\n;"]),
        (("SELECT 'a", "\\x on", "';"), ["SELECT 'a\n\\x on\n';"]),
        (("SELECT 1", "help", ";"), ["SELECT 1\nhelp\n;"]),
        (("\\d orders;",), ["\\d orders"]),
    ],
)
def test_a_command_may_stand_between_lines_but_not_within_quotes(lines: tuple[str, ...], texts: list[str]) -> None:
    assert list(statements(typed(*lines))) == texts


def test_control_c_at_an_empty_prompt_says_how_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(statements(typed(KeyboardInterrupt, "SELECT", KeyboardInterrupt))) == []
    assert capsys.readouterr().out == "\n\\q or Ctrl-D ends, \\help helps\n\n\n"


def test_errors_do_not_end_the_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    runner = Recorded(SqlError("it is wrong", "put it right"), KeyboardInterrupt())
    run_shell(runner, "embedded:./shop", typed("SELECT 1;", "SELECT 2;", "\\nothing", "SELECT 3;"))

    assert runner.ran == ["SELECT 1;", "SELECT 2;", "SELECT 3;"]
    told = capsys.readouterr().err
    assert told.startswith("error: it is wrong\nhint: put it right\ninterrupted: ")
    assert told.endswith("error: there is no command \\nothing\nhint: \\help lists them\n")


def test_commands_describe_switch_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    runner = Recorded()
    shell = Shell(runner)
    for text in ("\\d", "\\d orders", "\\help", "\\timing", "SELECT 1;", "\\timing off", "SELECT 2;", "\\pager"):
        shell.run(text)

    assert runner.ran == ["SHOW TABLES; SHOW VIEWS", "DESCRIBE orders", "SELECT 1;", "SELECT 2;"]
    told = capsys.readouterr().out
    assert told.endswith("timing: on\n250.0 ms\ntiming: off\npager: off\n")
    assert all(command in told for command in Shell.COMMANDS)


def test_rows_are_expanded_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    runner = Recorded()
    shell, forms = Shell(runner), []
    for text in ("\\x", "\\x", "\\x off", "\\x on", "\\x auto"):
        shell.run(text)
        forms.append(runner.form)

    assert forms == [Form.EXPANDED, Form.TEXT, Form.TABLE, Form.EXPANDED, Form.TEXT]


@pytest.mark.parametrize("text", ["\\x maybe", "\\timing 1", "\\d a b", "\\help me now"])
def test_a_command_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Shell(Recorded()).run(text)


@pytest.mark.parametrize(
    ("before", "text", "found"),
    [
        ("", "\\t", ["\\timing"]),
        ("SELECT ", "ord", ["order_totals", "orders", "order"]),
        ("SELECT ", "ORI", ["origin"]),
        ("SELECT * FROM ", "o", ["order_totals", "orders"]),
        ("\\d ", "", ["order_totals", "orders", "people"]),
        ("", "SEL", ["SELECT"]),
        ("", "sel", ["select"]),
        ("", "zzz", []),
        ("SELECT ", "STDDEV_", ["STDDEV_POP", "STDDEV_SAMP"]),
        ("SELECT ", "bool_", ["bool_and", "bool_or"]),
    ],
)
def test_names_and_keywords_are_completed(before: str, text: str, found: list[str]) -> None:
    assert completions(before, text, sorted(Shell.COMMANDS), NAMES) == found


def test_names_are_those_of_the_store(shop: str, url: str) -> None:
    names = SqlRunner(shop, Form.TEXT).names()

    assert names.relations == ["orders", "revenue"]
    assert {"id", "region", "amount", "total"} <= set(names.columns)
    assert SqlRunner(url + "/nowhere", Form.TEXT).names() == Names()


def test_whole_statements_are_remembered_at_once_and_for_their_owner_alone(home: Path) -> None:
    import readline

    readline.clear_history()
    with line_editing([], lambda: NAMES) as remember:
        remember("SELECT 1,\n  2;")
        assert home.read_text(encoding="utf-8").count("\n") == 1
        assert home.stat().st_mode & 0o777 == 0o600
    readline.clear_history()
    with line_editing([], lambda: NAMES) as remember:
        assert readline.get_history_item(1) == "SELECT 1,\n  2;"
    readline.clear_history()


def test_a_long_history_is_cut(home: Path) -> None:
    import readline

    home.parent.mkdir(parents=True)
    home.write_text("".join(f"SELECT {number};\n" for number in range(5_000)), encoding="utf-8")
    readline.clear_history()
    with line_editing([], lambda: NAMES):
        assert readline.get_history_item(readline.get_current_history_length()) == "SELECT 4999;"
    readline.clear_history()

    assert home.read_text(encoding="utf-8").splitlines()[0] == "SELECT 4000;"


class Terminal(io.StringIO):
    """A screen of five lines."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    monkeypatch.setenv("LINES", "5")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PAGER", f"sh -c 'cat > {tmp_path}/read'")
    return Terminal()


def test_what_fits_the_screen_is_not_paged(screen: Terminal, tmp_path: Path) -> None:
    with redirect_stdout(screen), paged():
        print("1\n2")

    assert screen.getvalue() == "1\n2\n"
    assert not (tmp_path / "read").exists()


def test_what_is_longer_than_the_screen_goes_to_the_pager(screen: Terminal, tmp_path: Path) -> None:
    with redirect_stdout(screen), paged():
        for number in range(100):
            print(number)

    assert screen.getvalue() == ""
    assert (tmp_path / "read").read_text(encoding="utf-8").splitlines() == [str(number) for number in range(100)]


def test_whoever_quits_the_pager_has_seen_enough(screen: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "sh -c 'read line'")
    written = 0
    with redirect_stdout(screen):
        with paged():
            while written < 10_000:
                print("x" * 1_000)
                written += 1
        assert sys.stdout is screen

    assert written < 10_000


@pytest.mark.parametrize("nobody", ["", "no-such-pager"])
def test_without_a_pager_all_goes_to_the_screen(screen: Terminal, monkeypatch: pytest.MonkeyPatch, nobody: str) -> None:
    monkeypatch.setenv("PAGER", nobody)
    with redirect_stdout(screen), paged():
        print("x\n" * 10)

    assert screen.getvalue().count("x") == 10
