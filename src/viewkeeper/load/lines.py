"""Lines of a text file: what is in the first, and which one holds a record.

In: a CSV file, JSON lines, or a JSON array of objects. Out: column names, line numbers, faults. Always: a line's number
is the one an editor shows, counted from 1 with the header, blank lines and line breaks inside quotes; only the line of
the first fault is looked up, by reading the file once more.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TextIO, cast

from viewkeeper.errors import InputError
from viewkeeper.load.json_texts import end_of_value, read_structure

_DELIMITERS = (",", ";", "\t", "|")
_FOREIGN = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as `surrogateescape` spells them
_BLANK = re.compile(r"[ \t\r\n]*")
_ARRAY = "an array of objects is [{…}, {…}]"
_NOT_UTF8 = ("not UTF-8 text", "convert it: iconv -f ITS_ENCODING -t UTF-8")
csv.field_size_limit(1 << 30)


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file under the name that its user gave."""

    label: str
    path: Path
    format: str
    is_gzip: bool = False
    delimiter: str = ","
    is_array: bool = False  # JSON: one array of all objects, not an object on each line

    def open(self) -> TextIO:
        opened = gzip.open if self.is_gzip else open
        return cast(TextIO, opened(self.path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline=""))

    def with_delimiter(self, given: str | None) -> TextFile:
        """With the delimiter given; else the tab for TSV, or the one most frequent in the first line."""
        if given is not None or self.format == "tsv":
            return replace(self, delimiter=given or "\t")
        with self.open() as stream:
            first = stream.readline()
        return replace(self, delimiter=max(_DELIMITERS, key=first.count))  # of equals the first: the comma

    def with_array(self) -> TextFile:
        """JSON, by its first character that is not blank."""
        with self.open() as stream:
            while (piece := stream.read(4096)) and not piece.strip():
                pass
        return replace(self, is_array=piece.lstrip().startswith("["))

    def header(self) -> tuple[str, ...]:
        _, fields = next(self.records(), (1, []))
        names = tuple(name.strip() for name in fields)
        hint = "the first line of CSV names the columns"
        if not any(names):
            raise InputError(f"{self.label} has no column names", hint)
        if not all(names):
            raise self.fault(1, f"column {names.index('') + 1} has no name", hint)
        if any(map(_FOREIGN.search, names)):
            raise self.fault(1, *_NOT_UTF8)
        return names

    def in_order(self, names: Collection[str | None]) -> tuple[str, ...]:
        """The names of JSON: first those of the first object, in its order, then the others alphabetically."""
        if None in names:
            self.require_sound()
        if not names:
            raise InputError(f"{self.label} has no names in it", 'JSON has objects in it, as in {"id": 1}')
        line, (first,) = next(self.records())
        return tuple(dict.fromkeys([*self._object(line, first), *sorted(name for name in names if name is not None)]))

    def records(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """First line and fields of each record, also of CSV's header; for JSON its text is the only field."""
        with self.open() as stream:
            if self.is_array:
                yield from self._elements(stream.read())
                return
            if self.format == "jsonl":
                yield from ((number, [line]) for number, line in enumerate(stream, 1) if line.strip())
                return
            reader, line = csv.reader(stream, delimiter=self.delimiter, strict=strict), 1
            try:
                for fields in reader:
                    yield line, fields
                    line = reader.line_num + 1
            except csv.Error as error:
                is_open = "end of data" in str(error)
                reason = "a quote that does not end" if is_open else "a quote where none may be"
                raise self.fault(line, reason, 'a quote inside of quotes is written twice: ""') from None

    def _elements(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """First line and text of each element of a JSON array, which is the whole of `text`."""
        line, seen, offset = 1, 0, text.index("[") + 1
        while True:
            offset = _BLANK.match(text, offset).end()  # type: ignore[union-attr]
            line, seen = line + text.count("\n", seen, offset), offset
            try:
                end = end_of_value(text, offset)
            except ValueError as error:
                raise self.fault(line, f"not JSON: {error}", _ARRAY) from None
            yield line, [text[offset:end]]
            offset = _BLANK.match(text, end).end() + 1  # type: ignore[union-attr]
            following = text[offset - 1 : offset]
            if following == "]" and not text[offset:].strip():
                return
            if following != ",":
                found = text[offset - 1 :][:20]
                fact = f"what follows the object that begins here is not a comma but {found!r}"
                raise self.fault(line, fact, _ARRAY)

    def line_of(self, record: int) -> int | None:
        """The line on which a record begins; the first record after the header is 0."""
        records = self.records()
        width = 0 if self.format == "jsonl" else len(next(records)[1])
        lines = (line for line, fields in records if fields or width == 1)
        return next(islice(lines, record, None), None)

    def require_sound(self) -> None:
        width = 0
        for line, fields in self.records(strict=True):
            if any(map(_FOREIGN.search, fields)):
                raise self.fault(line, *_NOT_UTF8)
            if self.format == "jsonl":
                self._object(line, fields[0])
            width = width or len(fields)
            if fields and len(fields) != width:
                fact = f"{len(fields)} values for {width} columns"
                raise self.fault(line, fact, "quote values that hold the delimiter")

    def _object(self, line: int, text: str) -> dict[str, object]:
        try:
            value = read_structure(text)
        except ValueError as error:
            raise self.fault(line, f"not JSON: {error}", "one object on each line, or one array of all") from None
        if not isinstance(value, dict):
            raise self.fault(line, "not a JSON object", 'as in {"id": 1}')
        return value

    def fault(self, line: int, reason: str, hint: str) -> InputError:
        return InputError(f"{self.label}, line {line}: {reason}", hint)
