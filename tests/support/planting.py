"""Errors planted in views behind the system's back, for the tests of `check`.

In: an open database, a view and a key of it. Out: its record, read or changed where it is stored. Always: no epoch, no
signature and no count learns of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewkeeper.model.keys import after_prefix, decode_key, encode_key, partition_of
from viewkeeper.stores.kv.kernel import table_prefix

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.stores.local.partition import Partition


def _stored(database: Database, view: str, key: tuple) -> tuple[Partition, bytes]:
    """The partition of a record, and the key under which it is stored there."""
    node = database.view(view).definition.node
    encoded = encode_key(node.key, key)
    partition = database.store.partition(partition_of(encode_key(node.key[:1], key[:1]), database.store.partitions))
    return partition, table_prefix(node.table) + encoded


def _stored_in_delta(database: Database, table: str, key: tuple) -> tuple[Partition, bytes]:
    schema = database.table(table).schema
    encoded = encode_key(schema.key_columns, key)
    partition = database.store.partition(
        partition_of(encode_key(schema.key_columns[:1], key[:1]), database.store.partitions)
    )
    return partition, table_prefix(schema.delta) + encoded


def row_of_delta(database: Database, table: str, key: tuple) -> bytes:
    partition, stored = _stored_in_delta(database, table, key)
    with partition.kernel.read("records") as records:
        return records.get(stored)


def change_row_of_delta(database: Database, table: str, key: tuple, chain: bytes | None) -> None:
    partition, stored = _stored_in_delta(database, table, key)
    with partition.kernel.write("records") as records:
        records.delete_many([stored]) if chain is None else records.put(stored, chain)


def view_keys(database: Database, view: str) -> list[tuple]:
    node = database.view(view).definition.node
    with database.snapshot() as snapshot:
        return [tuple(decode_key(node.key, key)) for key in snapshot.keys_of(node.table)]


def chain_of(database: Database, view: str, key: tuple) -> bytes:
    partition, stored = _stored(database, view, key)
    with partition.kernel.read("records") as records:
        return records.get(stored)


def change_record(database: Database, view: str, key: tuple, chain: bytes | None) -> None:
    partition, stored = _stored(database, view, key)
    with partition.kernel.write("records") as records:
        records.delete_many([stored]) if chain is None else records.put(stored, chain)


def stored_records(database: Database, table: int) -> list[tuple[int, bytes, bytes]]:
    """(partition, key, chain) of every record of any table of a node."""
    prefix, found = table_prefix(table), []
    for number in range(database.store.partitions):
        with database.store.partition(number).kernel.read("records") as records:
            for pairs in records.lists(prefix, after_prefix(prefix)):
                found += [(number, key[len(prefix) :], chain) for key, chain in pairs]
    return found


def change_stored(database: Database, table: int, partition: int, key: bytes, chain: bytes | None) -> None:
    stored = table_prefix(table) + key
    with database.store.partition(partition).kernel.write("records") as records:
        records.delete_many([stored]) if chain is None else records.put(stored, chain)
