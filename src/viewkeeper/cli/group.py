"""The group of commands: typer's, with our errors and with negative numbers as values.

In: arguments. Out: a command that ran, or an exit code. Always: every error of ours, and every mistake in the command
line, becomes `error: …` and `hint: …` in one place, however the app was started.
"""

from __future__ import annotations

import errno
import os
import re
import select

import typer
from typer.core import TyperCommand, TyperGroup

from viewkeeper.cli.failures import (
    INTERRUPTED,
    STORE,
    UNREAD,
    USAGE,
    exit_code_of,
    is_from_spark,
    print_error,
    print_failure,
    print_interrupted,
)
from viewkeeper.errors import ViewKeeperError

_NEGATIVE_NUMBER = re.compile(r"-\.?\d")


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
            print_error(error.format_message().rstrip("."), _help_hint(error))
            raise typer.Exit(USAGE) from None


def _is_unread() -> bool:
    """Whether stdout is a pipe without a reader: a broken pipe to Spark's JVM is an error instead."""
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(0))


def _help_hint(error: Exception) -> str:
    # Usage errors are click's; typer may bring its own copy, so they are recognized by their attributes.
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'viewkeeper'} --help"
