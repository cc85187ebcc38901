"""Base rows in HBase: reads of users' mapped tables.

In: keys, or a range of them. Out: rows. Always: rows are as they are when HBase is asked: each row is of one moment, a
scan is not. A row whose key or whose cell does not decode is left out. Where HBase orders rows otherwise (numbers as
text), a scan reads and sorts all of them in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import InputError
from viewkeeper.model.foreign_rows import decode_row_keys, encode_row_keys, foreign_of, rows_of_cells
from viewkeeper.model.keys import after_prefix
from viewkeeper.model.positions import SplitPoints
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.stored_rows import Image
from viewkeeper.ports.base_rows import Mapped
from viewkeeper.stores.hbase.mapping import ask_user_table, map_table, row_spans, warnings_of
from viewkeeper.stores.hbase.records import RecordsPart
from viewkeeper.stores.hbase.table_requests import KEYS_ONLY, walk, walk_back
from viewkeeper.stores.hbase.thrift_cells import BATCH_RECORDS, in_batches, thrift
from viewkeeper.stores.split_points import find_split_points

ROW_KEY_BYTES_MAX = (1 << 15) - 1
_COUNTED = 50_000
Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows as HBase has them: their cells, by value column and row, and their images; None: there is none."""

    cells: list[list[Any]]
    images: list[Image]

    @staticmethod
    def of(schema: TableSchema, results: Sequence[Any]) -> FoundRows:
        indexes = {
            (cell.family.encode(), cell.qualifier.encode()): i for i, cell in enumerate(foreign_of(schema).cells)
        }
        cells: list[list[Any]] = [[None] * len(results) for _ in indexes]
        for at, result in enumerate(results):
            for cell in result.columnValues:
                cells[indexes[cell.family, cell.qualifier]][at] = cell
        values = [pa.array([cell and cell.value for cell in column], pa.binary()) for column in cells]
        return FoundRows(cells, rows_of_cells(schema, values, len(results)).to_pylist())


class BaseRows(RecordsPart):
    """The reads of the port `BaseTables`."""

    def __init__(self) -> None:
        super().__init__()
        self._mapped: dict[int, TableSchema] = {}  # a mapped table never changes, and ids are not reused

    def map_table(self, schema: TableSchema, using: str | None, options: Mapping[str, str]) -> Mapped:
        return map_table(self._site.connections, self._site.address.namespace, schema, using, options)

    def _warnings(self) -> tuple[str, ...]:
        """Why views cannot follow some of the mapped tables now."""
        tables = Catalog.from_json(self.read_catalog()).tables
        mapped = [table.foreign for table in tables if table.foreign is not None]
        found = [warning for foreign in mapped for warning in warnings_of(self._site.connections, foreign)]
        return tuple(dict.fromkeys(found))

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        schema = self._schema(table)
        return [None] * len(keys) if schema is None else self._read(schema, encode_row_keys(schema, keys)).images

    def hold_rows(self) -> RowsNow:
        return RowsNow(self)

    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        """One piece where HBase orders rows otherwise, without reading more than `rows_max`."""
        schema = self._schema(table)
        first = after + b"\x00" if after else after
        if schema is not None and row_spans(schema, first, None) is None:
            rows = (row for page in self._pages(schema, (b"", None)) for _, row in page)
            sizes = list(map(len, itertools.islice(rows, rows_max)))
            return SplitPoints((after, None), len(sizes), sum(sizes))
        lists = self._lists(table, first, None)
        return find_split_points(lists, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def parts(self, table: int) -> dict[int, int]:
        """One part. Its rows are counted up to some ten thousand; beyond that, DELTA's records tell, if they are more."""
        schema, counted = self._schema(table), 0
        if schema is None or schema.delta is None:
            return {0: 0}
        for page in walk(lambda scan: self._results(schema, scan, keys_only=True), (b"", None), first=5_000):
            counted += len(page)
            if counted >= _COUNTED:
                return {0: max(counted, self.read_epoch_record().size(schema.delta).records)}
        return {0: counted}

    def _schema(self, table: int) -> TableSchema | None:
        """The mapped table with an id, if there is one."""
        if table not in self._mapped:
            tables = Catalog.from_json(self.read_catalog()).tables
            self._mapped |= {one.id: one for one in tables if one.foreign is not None}
        return self._mapped.get(table)

    def _read(self, schema: TableSchema, row_keys: Sequence[bytes]) -> FoundRows:
        """The rows under row keys; HBase is not asked for an empty one, or one that is too long."""
        columns, name = _columns(schema), foreign_of(schema).table
        results: list[Any] = [thrift().TResult(columnValues=[]) for _ in row_keys]
        asked = [at for at, row in enumerate(row_keys) if 0 < len(row) <= ROW_KEY_BYTES_MAX]
        for batch in in_batches(asked, BATCH_RECORDS):
            gets = [thrift().TGet(row=row_keys[at], columns=columns) for at in batch]
            found = ask_user_table(self._site.connections, name, "getMultiple", gets)
            for at, result in zip(batch, found, strict=True):
                results[at] = result
        return FoundRows.of(schema, results)

    def _lists(self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Pairs]:
        """Pairs with start <= key < stop in key order, list by list."""
        schema = self._schema(table)
        if schema is None:
            return
        spans = row_spans(schema, start, stop)
        if spans is None:
            yield self._sorted(schema, start, stop, reverse=reverse)
            return
        for span in reversed(spans) if reverse else spans:
            for page in self._pages(schema, span, reverse=reverse):
                yield [pair for pair in page if start <= pair[0] and (stop is None or pair[0] < stop)]

    def _sorted(self, schema: TableSchema, start: bytes, stop: bytes | None, *, reverse: bool) -> Pairs:
        (column,) = schema.key_columns
        if len(start) == 1 + (column.type.width or 0) and stop == after_prefix(start):  # one key
            row = self.get_many(schema.id, [start])[0]
            return [] if row is None else [(start, row)]
        pages = self._pages(schema, (b"", None))
        found = [pair for page in pages for pair in page if start <= pair[0] and (stop is None or pair[0] < stop)]
        return sorted(found, reverse=reverse)

    def _pages(
        self, schema: TableSchema, span: tuple[bytes, bytes | None], *, reverse: bool = False
    ) -> Iterator[Pairs]:
        """Pairs of a span of row keys, in HBase's order."""
        for page in (walk_back if reverse else walk)(lambda scan: self._results(schema, scan), span):
            keys, _ = decode_row_keys(schema, pa.array([result.row for result in page], pa.binary()))
            pairs = zip(keys.to_pylist(), FoundRows.of(schema, page).images, strict=True)
            yield [(key, row) for key, row in pairs if key is not None and row is not None]

    def _results(self, schema: TableSchema, scan: Any, *, keys_only: bool = False) -> list:
        scan.columns, scan.filterString = _columns(schema), KEYS_ONLY if keys_only else None
        name = foreign_of(schema).table
        return ask_user_table(self._site.connections, name, "getScannerResults", scan, scan.limit)


class RowsNow:
    """The port `HeldRows`: HBase holds nothing, so rows are as they are when they are scanned."""

    def __init__(self, rows: BaseRows) -> None:
        self._rows = rows
        self._is_closed = False

    def scan_all(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if self._is_closed:
            raise InputError("the rows of the snapshot were released", "open a new snapshot")
        return itertools.chain.from_iterable(self._rows._lists(table, start, stop, reverse=reverse))

    def close(self) -> None:
        self._is_closed = True


def _columns(schema: TableSchema) -> list[Any]:
    return [thrift().TColumn(cell.family.encode(), cell.qualifier.encode()) for cell in foreign_of(schema).cells]
