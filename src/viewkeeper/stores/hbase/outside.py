"""Outside: what a store in HBase remembers of what happened to mapped tables beyond their log.

In: the markers of the log, from the pipeline; the folder of HBase's files. Out: for each table, what happened last, and when.
Always: the pipeline alone writes it. What regions had before their table was mapped is taken from the folder, once: the
newest file of each family, because older ones may have been compacted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from viewkeeper.logs.hbase.files import WalFolder
from viewkeeper.logs.hbase.markers import Marker
from viewkeeper.logs.hbase.regions import Beyond, Region, follow
from viewkeeper.stores.hbase.metarow import LOG, OUTSIDE, REGIONS, MetaRows

_RIGHT = "right/"
_Happened = dict[str, dict[str, int]]  # by table: what, and when (ms) it last did


class Outside:
    """The rows of a store's facts that tell of it."""

    def __init__(self, rows: MetaRows, folder: WalFolder) -> None:
        self._rows, self._folder = rows, folder
        self._followed: tuple[Sequence[Marker], Collection[str]] | None = None

    def follow(self, tables: frozenset[str], markers: Sequence[Marker], now_ms: int) -> None:
        """Remember what the markers show of these tables."""
        if self._followed == (markers, tables):
            return
        happened, known = self._happened(), self._regions()
        for table in sorted(happened.keys() - tables):
            self._forget(table, known)
        regions = {name: region for name, region in known.items() if region.table in tables}
        for table in sorted(tables - happened.keys()):
            for region, files in self._folder.newest_in(table).items():
                regions[region] = Region(table, now_ms, 0, "", frozenset(files))
        regions, found = follow(regions, markers)
        changed = {name: _packed(region) for name, region in regions.items() if known.get(name) != region}
        if changed:
            self._rows.put_all(REGIONS, changed)
        told = _with({table: happened.get(table, {}) for table in tables}, found)
        new = {table: json.dumps(told[table]).encode() for table in tables if happened.get(table) != told[table]}
        if new:  # behind the regions: a table without a row here is looked at again
            self._rows.put_all(OUTSIDE, new)
        self._followed = (list(markers), tables)

    def happened(self, markers: Sequence[Marker]) -> Mapping[str, Mapping[str, int]]:
        """What did to each table, and what markers show that the pipeline has not followed yet."""
        happened = self._happened()
        return _with(happened, follow(self._regions(), markers)[1] if markers else [])

    def find_right(self, tables: Sequence[int], at_ms: int) -> None:
        """Remember that what is known of these mapped tables was found to be all that they had then."""
        if tables:
            self._rows.put_all(LOG, {f"{_RIGHT}{table}": b"%d" % at_ms for table in tables})

    def found_right(self, table: int) -> int:
        """When (ms) that last was; 0: never."""
        return int(self._rows.read(LOG, f"{_RIGHT}{table}").get(f"{_RIGHT}{table}", b"0"))

    def forget_all(self) -> None:
        """Markers were passed over: take everything from the folder again."""
        known = self._regions()
        for table in self._happened():
            self._forget(table, known)
        self._followed = None

    def _forget(self, table: str, known: Mapping[str, Region]) -> None:
        mine = {name for name, region in known.items() if region.table == table}
        for row, names in ((OUTSIDE, {table}), (REGIONS, mine)):
            stamps = {name: cell.timestamp for name, cell in self._rows.cells(row).items() if name in names}
            if stamps:
                self._rows.delete(row, stamps)

    def _happened(self) -> _Happened:
        return {table: json.loads(value) for table, value in self._rows.read(OUTSIDE).items()}

    def _regions(self) -> dict[str, Region]:
        return {name: _unpacked(value) for name, value in self._rows.read(REGIONS).items()}


def _with(happened: _Happened, found: Iterable[Beyond]) -> _Happened:
    both = {table: dict(whats) for table, whats in happened.items()}
    for one in found:
        whats = both.setdefault(one.table, {})
        whats[one.what] = max(whats.get(one.what, 0), one.written_ms)
    return both


def _packed(region: Region) -> bytes:
    facts = (region.table, region.written_ms, region.sequence, region.name, sorted(region.files))
    return json.dumps(facts).encode()


def _unpacked(value: bytes) -> Region:
    table, written_ms, sequence, name, files = json.loads(value)
    return Region(table, written_ms, sequence, name, frozenset(files))
