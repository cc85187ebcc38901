"""Exit codes: what a command that fails prints, and the code with which it ends.

In: arguments, and whatever exception a command raises. Out: one line `error: …` and perhaps one line `hint: …` on stderr,
and an exit code. Always: errors that ViewKeeper raises on purpose, and mistakes in the command line, are printed without
a traceback, in one place for all commands; an unforeseen one keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import re
import select

import typer
from typer.core import TyperCommand, TyperGroup

from viewkeeper.cli.terminal import print_label
from viewkeeper.errors import InputError, ProtocolError, ReadError, StoreError, ViewKeeperError

CHECK_FAILED = 1
USAGE = 2
NO_ROW = 3
STORE = 4
READ = 5
PROTOCOL = 6
INTERRUPTED = 130
UNREAD = 141

_NOTHING_CHANGED = "nothing was changed"
_REQUESTED = "the request stays in the store, and a pipeline that runs goes on with it; the same command starts anew"
_INTERRUPTED = {
    "repair": _REQUESTED,
    "rebuild": _REQUESTED,
    "put": "the row is written or it is not; the command can be run again",
    "delete": "the row is gone or it is not; the command can be run again",
    "run": "no change is lost; viewkeeper run URL goes on from here",
    "check": "nothing was changed; viewkeeper check URL VIEW looks at one view alone",
    "backup": "there is no backup; the command can be run again",
    "restore": "there is a whole store or none; viewkeeper status URL tells",
    "compact": "the store is whole; the command can be run again",
    "keep": "it is set or it is not; the command can be run again",
    "demo": "a store that was not to be kept is gone; viewkeeper demo begins anew",
}

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "done; also when `run` was ended by Ctrl-C or SIGTERM"),
    (CHECK_FAILED, "`check` found a view that is wrong, or that it cannot judge; also an error nobody foresaw"),
    (
        USAGE,
        "the command line, statement, row or key is wrong and was not written; statements before it are done, and rows only "
        "where the message says how many",
    ),
    (NO_ROW, "`get` found no row"),
    (STORE, "the store, its disk, or Java"),
    (READ, "the read cannot be answered now: a view is not filled, or not fresh enough in time, or it was cancelled"),
    (PROTOCOL, "the pipeline stopped itself before harm was done"),
    (INTERRUPTED, "interrupted by Ctrl-C"),
    (UNREAD, "nobody reads the output any more, as in `scan … | head`; nothing is printed about it"),
)

_CODES: tuple[tuple[type[ViewKeeperError], int], ...] = (
    (InputError, USAGE),
    (StoreError, STORE),
    (ReadError, READ),
    (ProtocolError, PROTOCOL),
)

_NEGATIVE_NUMBER = re.compile(r"-\.?\d")
# Hints address Python programmers; here the reader has a command line.
_IN_OUR_WORDS = {
    "pass take_over=True": "use --take-over",
    "leave out engine=": "leave out --engine",
    "db.write() makes an atomic group of writes": "in Python, db.write() makes an atomic group of writes",
    "to test other columns use table.put_if": "in Python, table.put_if also tests other columns",
    "connect again": "run the command again",
    "connect without read_only to make one": 'viewkeeper sql URL "CREATE TABLE …" makes one',
    "connect with read_only=True to read it": "get, scan, changes, explain, status, check and backup can read it",
    "vk.restore(backup, url) makes": "viewkeeper restore BACKUP URL makes",
    "viewkeeper run, or pipeline.run_available()": "viewkeeper run URL",
    "ignore_unknown=True leaves": "--ignore-unknown leaves",
    "leave ignore_unknown out": "leave --ignore-unknown out",
    "create=True, with a key, makes": "--create, with --key, makes",
    "create=True makes": "--create makes",
    "leave create out": "leave --create out",
    "last_wins=True keeps": "--last-wins keeps",
    'null="': '--null "',
    "guess_null=True": "--guess-null",
    "Pass a longer timeout, or read a snapshot": "Use a longer --timeout",
}


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a text on what was done so far and how to go on."""


def print_interrupted(error: KeyboardInterrupt, command: str | None = None) -> None:
    """One line: what a command had done when it was interrupted."""
    words = str(error) if isinstance(error, Interrupted) else _INTERRUPTED.get(command or "", _NOTHING_CHANGED)
    print_label("interrupted", "yellow", words)


def exit_code_of(error: ViewKeeperError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), CHECK_FAILED)


def is_from_spark(error: BaseException) -> bool:
    """Whether Spark, or the bridge to its JVM, raised the error."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def print_failure(error: ViewKeeperError) -> None:
    print_error(error.fact, in_our_words(error.hint))


def in_our_words(hint: str | None) -> str | None:
    """The hint as a user of the command line needs it."""
    for words, ours in _IN_OUR_WORDS.items():
        hint = hint and hint.replace(words, ours)
    return hint


def print_error(fact: str, hint: str | None = None) -> None:
    print_label("error", "red", fact)
    if hint:
        print_label("hint", "cyan", hint)


class Command(TyperCommand):
    """A command whose arguments may be negative numbers: `get URL readings -5`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if any(_NEGATIVE_NUMBER.match(argument) for argument in args):
            ctx.ignore_unknown_options = True
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """All commands; prints the errors of any of them."""

    def make_context(self, *arguments: object, **options: object) -> typer.Context:  # type: ignore[override]
        try:
            return super().make_context(*arguments, **options)  # type: ignore[arg-type, return-value]
        except KeyboardInterrupt as error:
            print_interrupted(error)
            raise typer.Exit(INTERRUPTED) from None

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            print_interrupted(error, ctx.invoked_subcommand)
            raise typer.Exit(INTERRUPTED) from None
        except ViewKeeperError as error:
            print_failure(error)
            raise typer.Exit(exit_code_of(error)) from None
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("pyspark", "py4j", "pandas"):
                raise
            print_error(f"Spark's Python package {error.name} is not installed", "pip install 'viewkeeper[spark]'")
            raise typer.Exit(STORE) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError) and _is_unread():
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # buffered output has no reader
                raise typer.Exit(UNREAD) from None
            hint = "raise the limit: ulimit -n 1024" if error.errno == errno.EMFILE else None
            print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error), hint)
            raise typer.Exit(STORE) from None
        except Exception as error:
            if is_from_spark(error):
                fact = str(error).strip().partition("\n")[0]
                print_error(f"Spark failed: {fact}", "no change is lost: run the command again")
                raise typer.Exit(STORE) from None
            if not hasattr(error, "format_message"):
                raise
            # a usage error is click's; typer may bring its own copy, so it is recognized by its attributes
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "viewkeeper"
            print_error(error.format_message().rstrip("."), f"{command} --help")
            raise typer.Exit(USAGE) from None


def _is_unread() -> bool:
    """Whether stdout is a pipe without a reader: a broken pipe to Spark's JVM is an error instead."""
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(0))
