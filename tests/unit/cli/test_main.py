"""The command line as a whole: help, exit codes, error lines, start-up, and the page in docs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

import viewkeeper as vk
from viewkeeper.cli.exit_codes import EXIT_CODES, exit_code_of, in_our_words, print_failure
from viewkeeper.cli.shell import HELP
from viewkeeper.settings import EpochLimits

Run = Callable[..., Result]

ROOT = Path(__file__).parents[3]
COMMANDS = ("sql", "put", "delete", "load", "get", "scan", "changes", "run", "status", "explain", "check")
COMMANDS += ("backup", "restore", "compact", "demo")
HEAVY = ("pyspark", "py4j", "pandas", "duckdb", "sqlglot")


def test_help_lists_the_commands_and_the_exit_codes(run: Run) -> None:
    told = run("--help")

    assert told.exit_code == 0
    assert [command for command in COMMANDS if not re.search(rf"^\W*{command} ", told.stdout, re.MULTILINE)] == []
    assert "Exit codes" in told.stdout and "130" in told.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    told = run(command, "--help")

    assert told.exit_code == 0
    assert run(command, "-h").stdout == told.stdout


def test_the_version_is_the_package_s(run: Run) -> None:
    assert run("--version").stdout == f"viewkeeper {vk.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("gte",), ["error: No such command 'gte'. Did you mean 'get'?", "hint: viewkeeper --help"]),
        (("get",), ["error: Missing argument 'URL'", "hint: viewkeeper get --help"]),
        (("scan", "embedded:x", "t", "--limit", "many"), [None, "hint: viewkeeper scan --help"]),
        (("get", "embedded:x", "t", "--jsn"), [None, "hint: viewkeeper get --help"]),
        (("get", "nowhere:x", "t"), ["error: no store is reached by 'nowhere:x'", None]),
    ],
)
def test_a_mistake_in_the_command_line_is_two_lines(
    run: Run, arguments: tuple[str, ...], lines: list[str | None]
) -> None:
    told = run(*arguments)

    assert (told.exit_code, told.stdout) == (2, "")
    found = told.stderr.splitlines()
    assert len(found) == 2
    assert [line for line, wanted in zip(found, lines, strict=True) if wanted not in (None, line)] == []


def test_a_negative_number_is_no_option(run: Run, url: str) -> None:
    run("sql", url, "CREATE TABLE t (a DECIMAL(9,2) PRIMARY KEY, b BIGINT)")

    assert run("put", url, "t", "-5.5", "b=-1").exit_code == 0
    assert run("get", url, "t", "-5.5", "--json").stdout == '{"a": "-5.50", "b": -1}\n'


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (vk.BadRow("x"), 2),
        (vk.UnsupportedSql("x"), 2),
        (vk.JavaMissing("x"), 4),
        (vk.PipelineRunning("x"), 4),
        (vk.NotReady("x"), 5),
        (vk.Fenced("x"), 6),
    ],
)
def test_the_exit_code_says_who_can_put_it_right(error: vk.ViewKeeperError, code: int) -> None:
    assert exit_code_of(error) == code


def test_an_error_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_failure(vk.InputError("a\nb\x1b[31m", "c"))

    assert capsys.readouterr().err == "error: a b\\x1b[31m\nhint: c\n"


def test_hints_speak_of_options_not_of_python() -> None:
    from viewkeeper.ports import meta

    source = Path(meta.__file__).read_text(encoding="utf-8")
    assert "pass take_over=True to fence it off" in source  # else the words below have to follow
    assert (
        in_our_words("stop it, or pass take_over=True to fence it off") == "stop it, or use --take-over to fence it off"
    )
    assert in_our_words(None) is None


def test_a_directory_that_is_no_store_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    told = run("sql", f"embedded:{tmp_path}", "CREATE TABLE t (a INT PRIMARY KEY)")

    assert told.exit_code == 4
    assert "is not a ViewKeeper store" in told.stderr


@pytest.mark.parametrize(
    "arguments", ["'--help'", "'put', url, 'orders', 'o9', 'amount=1'", "'get', url, 'orders', 'o1'"]
)
def test_nothing_heavy_is_loaded_for_help_put_and_get(shop: str, arguments: str) -> None:
    heavy = HEAVY if "--help" in arguments else (*HEAVY, "rich")  # typer shows help with rich
    code = f"""
import sys
url, heavy = {shop!r}, {heavy!r}
sys.argv = ["viewkeeper", {arguments}]
from viewkeeper.cli.start import main
try:
    main()
finally:
    print("loaded:", [name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize("json", ["", "--json"])
def test_a_reader_who_has_seen_enough_is_no_error(shop: str, json: str) -> None:
    vk.connect(shop).table("orders").put_many([{"id": f"{number:09}" * 20} for number in range(2_000)])
    command = f"({sys.executable} -m viewkeeper scan {shop} orders {json}; echo $? >&2) | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)

    assert len(done.stdout.splitlines()) == 1
    assert (done.returncode, done.stderr) == (0, "141\n")


def test_the_page_of_commands_in_docs_is_current() -> None:
    make = ["-m", "typer", "viewkeeper.cli.main", "utils", "docs", "--name", "viewkeeper"]
    made = subprocess.run([sys.executable, *make], capture_output=True, text=True, check=True, timeout=60)

    hint = f"run: python {' '.join(make)} --output docs/commands.md"
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").strip() == made.stdout.strip(), hint


def test_the_page_of_commands_has_every_command_exit_code_and_the_true_default() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")

    assert [command for command in COMMANDS if f"\n## `viewkeeper {command}`\n" not in page] == []
    assert [line for code, meaning in EXIT_CODES if (line := f"\n- {code}: {meaning}\n") not in page] == []
    assert f"[default: ({EpochLimits().changes})]" in page


def test_the_page_in_docs_shows_the_help_of_the_prompt() -> None:
    assert f"```\n{HELP}\n```\n" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_command_of_the_readme_can_be_parsed(run: Run) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^viewkeeper +(\w+) +embedded:", readme, flags=re.MULTILINE)

    assert commands
    assert set(commands) <= set(COMMANDS)
