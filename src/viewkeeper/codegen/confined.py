"""DuckDB connections that reach nothing: no file, network, extension, environment, variable of Python, or setting.

In: settings, and the files that a connection is for, if any. Out: a connection to a database in memory. Always: every
connection of ViewKeeper is confined here before it runs SQL that was made from a text or from a file's names. It spills
only to a folder that it was given: DuckDB's own default is `.tmp` in the working directory, which others may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb

_SETTINGS = {
    "enable_progress_bar": "false",  # it would go to the caller's standard output
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "GLOBAL python_enable_replacements": "false",  # of cursors too
}


def connect_confined(settings: Mapping[str, str] | None = None, *, optimizes: bool = True) -> duckdb.DuckDBPyConnection:
    """A confined connection for one thread; `settings` map names to values as SQL."""
    connection = duckdb.connect()
    if not optimizes:
        connection.execute("SET GLOBAL enable_optimizer = false")
    for name, value in (settings or {}).items():
        connection.execute(f"SET {name} = {value}")
    confine(connection)
    return connection


def confine(connection: duckdb.DuckDBPyConnection, *, files: Iterable[Path] = (), folder: Path | None = None) -> None:
    """From here on the connection reads these files and those of `folder`, spills into that, and has no other way out."""
    connection.execute(f"SET temp_directory = {literal(str(folder or ''))}")
    for setting, paths in (("allowed_paths", files), ("allowed_directories", [folder] if folder else [])):
        listed = ", ".join(literal(str(path)) for path in paths)
        connection.execute(f"SET {setting} = [{listed}]")
    for name, value in _SETTINGS.items():
        connection.execute(f"SET {name} = {value}")
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")


def literal(text: str) -> str:
    """The text as a string of SQL."""
    return "'" + text.replace("'", "''") + "'"
