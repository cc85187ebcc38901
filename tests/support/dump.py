"""Dumps: everything that the view tables of a local store hold, byte for byte, and what a reader sees of it.

In: an open store or database. Out: plain lists and dicts that compare with ==. Always: all partitions, all tables, every
version and every remembered tombstone, so two dumps are equal only if no byte differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewkeeper.stores.local import partition
from viewkeeper.stores.version_chains import versions_of

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.stores.local.local_store import LocalStore


def dump(store: LocalStore) -> list[tuple[int, bytes, bytes]]:
    """(table, key, chain) of every view record, partition after partition, in key order within each."""
    found = []
    for number in range(store.partitions):
        with store.partition(number).kernel.read("records") as records:
            for pairs in records.lists(b"", None):
                found += [(int.from_bytes(key[:4], "big"), key[4:], chain) for key, chain in pairs]
    return found


def tombstone_index(store: LocalStore) -> list[tuple[int, bytes]]:
    """(epoch, key with its table's prefix) of every tombstone that a partition remembers."""
    found = []
    for number in range(store.partitions):
        with store.partition(number).kernel.read("tombstones") as tombstones:
            pairs = list(tombstones.walk(b""))
            found += sorted(
                (partition.epoch_of(entry), key) for entry, value in pairs for key in partition.keys_of(value)
            )
    return found


def chain_epochs(store: LocalStore, table: int) -> dict[bytes, list[int]]:
    """For each record of a table the epochs of its versions, newest first."""
    return {key: [epoch for epoch, _ in versions_of(chain)] for at, key, chain in dump(store) if at == table}


def written_by(store: LocalStore, epoch: int) -> list[tuple[int, bytes, bytes | None]]:
    """(table, key, row) of every version that an epoch wrote, by table and key; None is a tombstone."""
    found = ((table, key, versions_of(chain)) for table, key, chain in dump(store))
    return sorted((table, key, row) for table, key, chain in found for at, row in chain if at == epoch)


def contents(database: Database) -> dict[str, list[dict[str, object]]]:
    """What a snapshot read of every view gives, by view; NaN is shown as text, so that it equals itself."""
    with database.snapshot() as snapshot:
        names = [view.name for view in database.catalog().views]
        return {name: [_comparable(row) for row in snapshot.view(name).scan()] for name in names}


def _comparable(row: dict[str, object]) -> dict[str, object]:
    return {name: "NaN" if value != value else value for name, value in row.items()}
