"""Options: arguments and options that several commands have.

In: what is typed. Out: typer's declarations, and values that several commands read. Always: the same words mean the
same in every command.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from viewkeeper.errors import InputError


class ReadMode(StrEnum):
    """What a read of a view sees."""

    SNAPSHOT = "snapshot"
    LATEST = "latest"


Url = Annotated[str, typer.Argument(metavar="URL", help="The store, as in `embedded:./shop`.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A table, a view or an index.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one line for each row.")]
Csv = Annotated[
    bool, typer.Option("--csv", help='Print CSV with a first line of names; NULL is nothing, `""` the empty text.')
]
Read = Annotated[
    ReadMode | None,
    typer.Option(help="For views: one committed epoch (`snapshot`), or the newest of each record (`latest`)."),
]
Within = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="For views: wait first until no change older than that is missing."),
]
After = Annotated[
    str | None,
    typer.Option(metavar="TOKEN", help="For views: wait first until they hold the write that printed this token."),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long `--after` and `--within` wait.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A table.", show_default=False)]


def read_bounds(text: str) -> tuple[int, int]:
    """A number of view managers, `2`, or the least and the most of them, `1..4`."""
    least, dots, most = text.partition("..")
    if not (least.isdecimal() and (most.isdecimal() if dots else True)):
        raise InputError(f"{text} is not a number of view managers", "as in 2, or 1..4")
    bounds = int(least), int(most if dots else least)
    if not 1 <= bounds[0] <= bounds[1]:
        raise InputError(f"{text} is not a number of view managers", "1 or more, and the least first, as in 1..4")
    return bounds
