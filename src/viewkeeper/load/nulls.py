"""Guessing NULL: which text a CSV file uses for a missing value.

In: a CSV file, read with only empty text as NULL. Out: the same file, read with the guess. Always: a text is NULL where
it occurs in a column that would be of numbers, dates or the like without it, and then it is NULL in every column of the
file; in a file of texts only, NA is a text.
"""

from __future__ import annotations

from dataclasses import replace

import duckdb

from viewkeeper.load.files import SourceFile, csv_file
from viewkeeper.load.inference import infer_types
from viewkeeper.model.types import STRING

NULL_TEXTS = ("NA", "NULL", "\\N")


def guess_null(connection: duckdb.DuckDBPyConnection, file: SourceFile) -> SourceFile:
    """The file with the texts that are NULL in it; other formats than CSV mark NULL themselves."""
    if file.text.format not in ("csv", "tsv"):
        return file
    types = infer_types(connection, csv_file(file.text, ("", *NULL_TEXTS)))
    typed = [f"v{place}" for place, kind in enumerate(types) if kind not in (None, STRING)]
    if not typed:
        return file
    tests = [" OR ".join(f"{value} = '{text}'" for value in typed) for text in NULL_TEXTS]
    found = file.aggregate(connection, [f"coalesce(bool_or({test}), false)" for test in tests])
    nulls = tuple(text for text, is_there in zip(NULL_TEXTS, found, strict=True) if is_there)
    return replace(csv_file(file.text, ("", *nulls)), nulls=nulls)
