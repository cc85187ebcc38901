"""Lines of a text file: what is in the first, and which one holds a record.

In: a CSV or JSON lines file. Out: column names, line numbers, faults. Always: a line's number is the one an editor
shows, counted from 1 with the header, blank lines and line breaks inside quotes; only the line of the first fault is
ever looked up, by reading the file once more.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, cast

from viewkeeper.errors import InputError

_DELIMITERS = (",", ";", "\t", "|")
_FOREIGN = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as `surrogateescape` spells them
_NOT_UTF8 = ("not UTF-8 text", "convert it: iconv -f ITS_ENCODING -t UTF-8")
csv.field_size_limit(1 << 30)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a line."""

    line: int
    reason: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file under the name that its user gave."""

    label: str
    path: Path
    format: str
    is_gzip: bool
    delimiter: str = ","

    def open(self) -> TextIO:
        opened = gzip.open if self.is_gzip else open
        return cast(TextIO, opened(self.path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline=""))

    def with_delimiter(self, given: str | None) -> TextFile:
        """With the delimiter given; else the tab for TSV, or the one most frequent in the first line."""
        if given is not None or self.format == "tsv":
            return replace(self, delimiter=given or "\t")
        first = self._first_line()
        return replace(self, delimiter=max(_DELIMITERS, key=first.count))  # of equals the first: the comma

    def header(self) -> tuple[str, ...]:
        """The column names of CSV."""
        self._first_line()
        with self.open() as stream:
            names = [name.strip() for name in next(csv.reader(stream, delimiter=self.delimiter), [])]
        hint = "the first line of CSV names the columns"
        if not any(names):
            raise InputError(f"{self.label} has no column names", hint)
        if not all(names):
            raise InputError(f"{self.label}, line 1: column {names.index('') + 1} has no name", hint)
        if any(_FOREIGN.search(name) for name in names):
            raise InputError(f"{self.label}, line 1: {_NOT_UTF8[0]}", _NOT_UTF8[1])
        self._require_distinct(names)
        return tuple(names)

    def in_order(self, names: Collection[str | None]) -> tuple[str, ...]:
        """The names of JSON lines: first those of the first line, in its order, then the others alphabetically."""
        if None in names:
            fault = find_fault(self) or Fault(1, "not a JSON object")
            raise InputError(f"{self.label}, line {fault.line}: {fault.reason}", fault.hint)
        known = [name for name in names if name is not None]
        if not known:
            raise InputError(f"{self.label} has no names in it", 'each line is a JSON object, as in {"id": 1}')
        self._require_distinct(known)
        with self.open() as stream:
            first = list(json.loads(next(line for line in stream if line.strip())))
        return tuple(dict.fromkeys([*first, *sorted(known)]))

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and fields of each record after the header; for JSON lines the line is the only field."""
        with self.open() as stream:
            if self.format == "jsonl":
                yield from ((number, [line]) for number, line in enumerate(stream, 1) if line.strip())
                return
            reader = csv.reader(stream, delimiter=self.delimiter)
            width, end = len(next(reader, [])), reader.line_num
            for fields in reader:
                if fields or width == 1:
                    yield end + 1, fields
                end = reader.line_num

    def line_of(self, record: int) -> int | None:
        """The line on which a record begins; the first record after the header is 0."""
        return next((line for number, (line, _) in enumerate(self.records()) if number == record), None)

    def _first_line(self) -> str:
        try:
            with self.open() as stream:
                return stream.readline()
        except (gzip.BadGzipFile, EOFError):
            raise InputError(f"{self.label} is not compressed by gzip", "is the suffix right?") from None

    def _require_distinct(self, names: list[str]) -> None:
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                raise InputError(f"{self.label} has two columns {name}", "names are the same in any case; rename one")
            seen.add(name.lower())


def find_fault(file: TextFile) -> Fault | None:
    """The first line that does not fit its format."""
    if file.format == "parquet":
        return None
    try:
        return _json_fault(file) if file.format == "jsonl" else _csv_fault(file)
    except (gzip.BadGzipFile, EOFError, OSError):
        return None


def _json_fault(file: TextFile) -> Fault | None:
    for line, (text,) in file.records():
        if line == 1 and text.lstrip().startswith("["):
            return Fault(line, "a JSON array, not JSON lines", "one object on each line: jq -c '.[]'")
        if _FOREIGN.search(text):
            return Fault(line, *_NOT_UTF8)
        try:
            value = json.loads(text)
        except ValueError as error:
            return Fault(line, f"not JSON: {error}", "one object on each line")
        if not isinstance(value, dict):
            return Fault(line, "not a JSON object", 'as in {"id": 1}')
    return None


def _csv_fault(file: TextFile) -> Fault | None:
    with file.open() as stream:
        reader = csv.reader(stream, delimiter=file.delimiter, strict=True)
        width, line = 0, 1
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                is_open = "end of data" in str(error)
                reason = "a quote that does not end" if is_open else "a quote where none may be"
                return Fault(line, reason, 'a quote inside of quotes is written twice: ""')
            if fields is None:
                return None
            if any(_FOREIGN.search(field) for field in fields):
                return Fault(line, *_NOT_UTF8)
            width = width or len(fields)
            if fields and len(fields) != width:
                return Fault(line, f"{len(fields)} values for {width} columns", "quote values that hold the delimiter")
            line = reader.line_num + 1
