"""The start of the command line.

In: the process's arguments. Out: its exit code. Always: Ctrl-C prints one line from the start, also while the commands
are being loaded; so nothing is imported here before it is needed.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the `viewkeeper` script."""
    try:
        from viewkeeper.cli.main import app

        app(prog_name="viewkeeper")
    except KeyboardInterrupt:
        print("interrupted: nothing was changed", file=sys.stderr)
        sys.exit(130)
