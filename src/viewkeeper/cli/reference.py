"""The reference: docs/cli.md, generated from the commands themselves.

In: the typer app. Out: a page on stdout: `python -m viewkeeper.cli.reference > docs/cli.md`. Always: the same app
yields the same page; a unit test compares it with the one in docs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Protocol, cast

import typer

from viewkeeper.cli.failures import EXIT_CODES
from viewkeeper.cli.main import app
from viewkeeper.cli.shell import HELP

_HEAD = """# Command line

Made by `python -m viewkeeper.cli.reference`; edit the commands, not this page.

```
viewkeeper COMMAND URL …
```

The store comes first, as in `embedded:./shop`. Only `sql` makes a store, with the first `CREATE TABLE`, `load` with
`--create`, and `restore` from a backup; every other command wants it to be there. `viewkeeper --help` lists the commands,
`viewkeeper --version` prints the version.
"""

_PROMPT = f"""## The prompt

`viewkeeper sql URL` on a terminal. What it says on `\\help`:

```
{HELP}
```

Statements are remembered in `~/.local/state/viewkeeper/history`, readable by their owner alone.
"""

_VALUES = """## Values

A key value or `col=value` is read by the column's type:

| type | as typed | in JSON |
|---|---|---|
| BOOLEAN | `true`, `t`, `yes`, `y`, `1`; `false`, `f`, `no`, `n`, `0`; in any case | `true`, `false` |
| INT, BIGINT | `30`, `-30` | number |
| DOUBLE | `1.5`, `1e300`, `NaN`, `Infinity` | number; `"NaN"`, `"Infinity"`, `"-Infinity"` |
| DECIMAL | `12.50` | string, so that no digit is lost; a number is taken as well |
| STRING | any text, also none: `name=` is the empty string | string |
| BINARY | `00ff`: two hexadecimal digits for each byte | string of the same digits |
| DATE | `2026-01-31` | string |
| TIMESTAMP | `2026-01-31T12:30:00`, UTC unless it says `+02:00` | string, in UTC |

- `col:=JSON` gives the value as JSON, so `col:=null` is NULL. A key value alone is `:=JSON`: `get URL revenue :=null`
  is the group whose region is NULL.
- `put` takes the key first, by position, and then columns by name. If the first argument names a key column (`id=o1`),
  the whole key is given by name; one JSON object holds key and columns. What `get --json` and `scan --json` print,
  `put` takes back.
- An argument that begins with `-` and is not a number comes after `--`: `get URL words -- -x`.
"""

_ERRORS = """## Errors and exit codes

What goes wrong is one line on stderr, `error: …`, and often a second one, `hint: …`, with the way out.

| code | when |
|---|---|
"""


class Parameter(Protocol):
    """What we need of typer's arguments and options."""

    name: str
    param_type_name: str
    opts: list[str]
    metavar: str | None
    help: str | None
    default: object
    show_default: object
    required: bool
    nargs: int


class Described(Protocol):
    """What we need of typer's commands."""

    name: str
    help: str
    params: list[Parameter]


def page() -> str:
    """The whole page."""
    commands = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    sections = [_section(cast(Described, command)) for command in commands]
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES)
    return "\n".join([_HEAD, *sections, _PROMPT, _VALUES, _ERRORS + codes])


def _section(command: Described) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.name != "help"]
    usage = " ".join(["viewkeeper", command.name, *map(_usage, arguments), *(["[OPTIONS]"] if options else [])])
    rows = [f"| `{_label(param)}` | {_describe(param)} |" for param in arguments]
    rows += [f"| `{_spelled(param)}` | {_describe(param)} |" for param in options]
    lines = [f"## {command.name}", "", "```", usage, "```", "", *_paragraphs(command.help), "| | |", "|---|---|"]
    return "\n".join([*lines, *rows, ""])


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield from (paragraph, "")


def _label(param: Parameter) -> str:
    return str(param.metavar).replace("|", "… ")


def _usage(param: Parameter) -> str:
    many = "…" if param.nargs != 1 else ""
    return f"{_label(param)}{many}" if param.required else f"[{_label(param)}{many}]"


def _spelled(param: Parameter) -> str:
    return param.opts[0] if param.default is False else f"{param.opts[0]} {param.metavar or 'MODE'}"


def _describe(param: Parameter) -> str:
    text = re.sub(r"\s+", " ", param.help or "")
    shown = param.show_default if isinstance(param.show_default, str) else param.default
    if shown is None or isinstance(shown, bool) or param.param_type_name == "argument":
        return text
    return f"{text} Default: {shown}."


if __name__ == "__main__":
    print(page(), end="")
