"""Records as of a moment, out of version chains that a store holds unchanged.

In: chains, and the moment to read. Out: rows, and the steps between two epochs. Always: the same result, whatever was
written, purged or dropped since the chains were held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from viewkeeper.model.moments import Moment, Step
from viewkeeper.model.pairs import pairs_to_arrow, pieces
from viewkeeper.model.texts import DAMAGE, record_damaged
from viewkeeper.stores.versions import damage_of, damaged, newest_epoch, rows_at, version_at, versions_of

if TYPE_CHECKING:
    import pyarrow as pa

    from viewkeeper.ports.reads import Span, Stored


class HeldChains(Protocol):
    """Version chains that do not change; `written_between`: those of records that indexed epochs wrote."""

    def get(self, partition: int, table: int, key: bytes) -> bytes | None: ...

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def written_between(
        self, partitions: Sequence[int], table: int, since: int, epoch: int
    ) -> list[tuple[bytes, bytes]]: ...

    def close(self) -> None: ...


class HeldRecords:
    """The port `Held` over chains."""

    def __init__(self, chains: HeldChains, moment: Moment) -> None:
        self._chains = chains
        self._moment = moment

    def get(self, partition: int, table: int, key: bytes) -> bytes | None:
        chain = self._chains.get(partition, table, key)
        return None if chain is None else row_at(chain, self._moment)

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, chain in self._chains.scan(partitions, table, start, stop, reverse=reverse):
            row = row_at(chain, self._moment)
            if row is not None:
                yield key, row

    def batches(
        self, table: int, spans: Iterable[Span], *, reverse: bool = False
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        found = (
            pair
            for partitions, start, stop in spans
            for pair in self._chains.scan(partitions, table, start, stop, reverse=reverse)
        )
        for piece in pieces(found):
            keys, chains = pairs_to_arrow(piece)
            try:
                rows = rows_at(chains, self._moment.epoch, self._moment.aborted)
            except DAMAGE as error:
                raise record_damaged() from error
            there = rows.is_valid()
            yield keys.filter(there), rows.filter(there)

    def stored(self, partition: int, table: int, last: int) -> Iterator[Stored]:
        for piece in pieces(self._chains.scan([partition], table, b"", None)):
            keys, chains = pairs_to_arrow(piece)
            is_damaged, told = damaged(chains, last), list[tuple[bytes, str]]()
            if is_damaged.any():
                told = [(piece[at][0], damage_of(piece[at][1], last)) for at in is_damaged.nonzero()[0].tolist()]
                keys, chains = (array.take((~is_damaged).nonzero()[0]) for array in (keys, chains))
            rows = rows_at(chains, self._moment.epoch, self._moment.aborted)
            there = rows.is_valid()
            yield keys.filter(there), rows.filter(there), told

    def steps(self, partitions: Sequence[int], table: int, since: int) -> list[Step]:
        indexed_from = self._moment.horizon.indexed_from
        if indexed_from is not None and since + 1 >= indexed_from:
            return collect_steps(
                self._chains.written_between(partitions, table, since, self._moment.epoch), since, self._moment
            )
        return collect_steps(self._chains.scan(partitions, table, b"", None), since, self._moment)

    def keep(self) -> None:
        """They are held."""

    def close(self) -> None:
        self._chains.close()


def row_at(chain: bytes, moment: Moment) -> bytes | None:
    """The row that a reader of a moment sees; raises CorruptStore where the chain is none."""
    try:
        return version_at(chain, moment.epoch, moment.aborted)
    except DAMAGE as error:
        raise record_damaged() from error


def collect_steps(pairs: Iterable[tuple[bytes, bytes]], since: int, moment: Moment) -> list[Step]:
    """The steps of all chains after `since`, ordered by epoch and key."""
    steps: list[Step] = []
    for key, chain in pairs:
        try:
            if newest_epoch(chain) <= since:
                continue
            seen = [(e, row) for e, row in versions_of(chain) if e <= moment.epoch and e not in moment.aborted]
        except DAMAGE as error:
            raise record_damaged() from error
        olders = [*seen[1:], (0, None)]  # before the oldest version there was no record
        pairs_of_versions = zip(seen, olders, strict=False)  # `seen` is empty for a record of an epoch in flight
        steps += [Step(e, key, before, row) for (e, row), (_, before) in pairs_of_versions if e > since]
    return sorted(steps, key=attrgetter("epoch"))
