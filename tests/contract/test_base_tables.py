"""The contract of BaseTables: rows that clients write, over every store, also over one whose tables are its users' own."""

from __future__ import annotations

import threading

import pytest

from tests.contract.conftest import TABLE, Subject
from viewkeeper.errors import InputError
from viewkeeper.model.stored_rows import Expected, RowWrites
from viewkeeper.ports.base_rows import scan_rows


def test_base_rows_are_there_in_key_order_both_ways(subject: Subject) -> None:
    subject.write(40)
    subject.put(b"row-3", None)
    pairs = sorted(subject.rows.items())

    assert list(scan_rows(subject.store, TABLE, b"", None)) == pairs
    assert list(scan_rows(subject.store, TABLE, b"row-2", b"row-5", reverse=True)) == [
        pair for pair in pairs[::-1] if b"row-2" <= pair[0] < b"row-5"
    ]
    keys = [b"row-3", *subject.rows, b"none"]
    assert subject.store.get_many(TABLE, keys) == [subject.rows.get(key) for key in keys]
    assert [subject.store.get(TABLE, key) for key in keys] == [subject.rows.get(key) for key in keys]
    assert list(scan_rows(subject.store, TABLE + 1, b"", None)) == []


def test_a_group_of_writes_is_there_or_not_at_all(subject: Subject) -> None:
    subject.put(b"k", b"1")

    def fail(befores: list) -> list:
        assert befores == [b"2"]  # it sees what the group before it wrote
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        subject.store.write([RowWrites(TABLE, [b"k"], lambda befores: [b"2"]), RowWrites(TABLE, [b"k"], fail)])
    assert subject.store.get(TABLE, b"k") == b"1"


def test_rows_of_several_nodes_are_not_one_group(subject: Subject) -> None:
    keys = [b"k%d" % number for number in range(20)]
    parts = subject.store.together(keys)
    group = [RowWrites(TABLE, keys, lambda befores: [b"1"] * len(befores))]
    if len(parts) == 1:
        subject.store.write(group)
    else:
        with pytest.raises(InputError, match=f"several {subject.store.capabilities.atomic_group}s"):
            subject.store.write(group)

    assert sorted(i for part in parts for i in part) == list(range(20))
    assert sum(subject.store.parts(TABLE).values()) == (20 if len(parts) == 1 else 0)


def test_a_write_on_a_condition_is_done_where_the_row_is_as_expected(subject: Subject) -> None:
    writes = RowWrites(TABLE, [b"k"], lambda befores: [b"2"])
    expected = Expected(("v",), lambda before: before == b"1")

    assert subject.store.write_if(writes, expected) is None
    assert subject.store.get(TABLE, b"k") is None
    subject.put(b"k", b"1")
    reached, ends = subject.store.write_if(writes, expected), subject.store.ends()
    assert all(position <= ends[stream] for stream, position in reached.items())
    assert subject.store.get(TABLE, b"k") == b"2"
    assert subject.store.write_if(writes, Expected(None, lambda before: before is None)) is None
    assert subject.store.write_if(writes, Expected((), lambda before: before is not None)) is not None


def test_a_scan_beside_a_writer_sees_each_row_as_one_write_left_it(subject: Subject) -> None:
    """All rows of a node are written together, so a scan that sees two numbers in one node is torn."""
    store, enough = subject.store, threading.Event()
    every = [b"k%d" % n for n in range(40)]
    groups = [[every[i] for i in chosen] for chosen in store.together(every)]

    def write_all(number: int) -> None:
        for keys in groups:
            store.write([RowWrites(TABLE, keys, lambda befores: [b"%d" % number] * len(befores))])

    def keep_writing() -> None:
        number = 0
        while not enough.is_set():
            number += 1
            write_all(number)

    write_all(0)
    writer = threading.Thread(target=keep_writing)
    writer.start()
    seen: set[bytes] = set()
    try:
        while len(seen) < 20:
            rows = dict(scan_rows(store, TABLE, b"", None))
            assert len(rows) == 40
            for keys in groups:
                assert len({rows[key] for key in keys}) == 1
            seen |= set(rows.values())
    finally:
        enough.set()
        writer.join()


def test_a_row_is_written_again_as_it_is_where_that_is_asked_for(subject: Subject) -> None:
    subject.put(b"k", b"1")
    subject.store.write([RowWrites(TABLE, [b"k"], lambda befores: befores, repeats=True)])

    assert subject.store.get(TABLE, b"k") == b"1"


def test_many_rows_are_written_apart_each_after_those_before_it(subject: Subject) -> None:
    keys = [b"k%d" % number for number in range(20)]
    for chosen in subject.store.together(keys, apart=True):
        some = [keys[i] for i in chosen]
        first = RowWrites(TABLE, some, lambda befores: [b"1"] * len(befores))
        then = RowWrites(TABLE, some[:1], lambda befores: [befores[0] + b"2"])
        subject.store.write([first, then], apart=True)
        assert subject.store.get_many(TABLE, some) == [b"12"] + [b"1"] * (len(some) - 1)
