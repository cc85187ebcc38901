"""What BaseTables promises of a store that keeps base rows itself: as of a moment, in its own log, removed when dropped."""

from __future__ import annotations

import os

import pytest

from tests.contract.conftest import TABLE, Subject
from tests.contract.steps import pairs_in, spans_of
from viewkeeper.errors import BadRow, InputError, PipelineRunning, StoreInUse
from viewkeeper.model.stored_rows import Expected, RowWrites
from viewkeeper.ports.base_rows import scan_rows
from viewkeeper.ports.meta import live_holder
from viewkeeper.stores.open import open_store


def test_a_url_opens_the_same_base_again(subject: Subject) -> None:
    subject.write(5)

    assert open_store(subject.store.url).ends() == subject.store.ends()


def test_a_table_can_be_read_as_of_any_cut(subject: Subject) -> None:
    cuts = []
    for _ in range(4):
        subject.write(9)
        subject.put(b"row-1", None)
        cuts.append((subject.store.cut({}, changes_max=1_000, bytes_max=1 << 40).positions, dict(subject.rows)))
    for positions, rows in cuts:
        found: dict[bytes, bytes] = {}
        for part in subject.store.parts(TABLE):
            for batch in subject.store.scan_as_of(TABLE, part, positions):
                found |= dict(zip(batch["key"].to_pylist(), batch["row"].to_pylist(), strict=True))
        assert found == rows


def test_a_write_that_changes_nothing_leaves_nothing_in_the_log(subject: Subject) -> None:
    reached = subject.put(b"k", b"1")
    ends = subject.store.ends()

    assert subject.put(b"k", b"1") == reached and reached.items() <= ends.items()
    subject.put(b"other", None)
    assert subject.store.ends() == ends
    writes = RowWrites(TABLE, [b"k"], lambda befores: [b"2"])
    assert subject.store.write_if(writes, Expected((), lambda before: False)) is None
    assert subject.store.ends() == ends


def test_a_group_of_writes_that_fails_leaves_nothing_in_the_log(subject: Subject) -> None:
    subject.put(b"k", b"1")
    ends = subject.store.ends()

    def fail(befores: list) -> list:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        subject.store.write([RowWrites(TABLE, [b"k"], lambda befores: [b"2"]), RowWrites(TABLE, [b"k"], fail)])
    assert subject.store.ends() == ends


def test_a_row_that_is_too_large_is_refused(subject: Subject) -> None:
    with pytest.raises(BadRow, match="134,217,728"):
        subject.put(b"k", bytes((128 << 20) + 1))
    assert subject.store.get(TABLE, b"k") is None


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(7, 1 << 40), (1_000, 60), (1_000, 1 << 40)])
def test_borders_cut_rows_in_pieces(subject: Subject, rows_max: int, bytes_max: int) -> None:
    """From border to border everything is met once, in order, and no step is larger than was asked for."""
    rows = {b"%03d" % number: b"x" * (number % 9) for number in range(50)}
    for key, row in rows.items():
        subject.put(key, row)
    most = {"rows_max": rows_max, "bytes_max": bytes_max, "pieces": 3}
    found: list[tuple[bytes, bytes]] = []
    for part in subject.store.parts(TABLE):
        ends = subject.store.ends()
        spans = spans_of(lambda after, of=part: subject.store.row_borders(TABLE, of, after, **most), rows_max)
        scans = [list(subject.store.scan_as_of(TABLE, part, ends, low, high)) for low, high in spans]
        mine = [pair for batches in scans for pair in pairs_in(batches)]
        assert mine == sorted(mine)
        found += mine

    assert sorted(found) == list(rows.items())
    assert sum(subject.store.parts(TABLE).values()) == 50


def test_a_dropped_table_leaves_nothing(subject: Subject) -> None:
    subject.write(10)
    subject.store.drop(TABLE)

    assert list(scan_rows(subject.store, TABLE, b"", None)) == []
    assert sum(subject.store.parts(TABLE).values()) == 0


def test_held_rows_stay_as_they_were(subject: Subject) -> None:
    subject.write(30)
    rows, held = dict(subject.rows), subject.store.hold_rows()
    scan = scan_rows(subject.store, TABLE, b"", None)
    first = next(scan)
    subject.write(30)
    subject.put(b"row-3", None)

    assert dict(held.scan_all(TABLE, b"", None)) == dict([first, *scan]) == rows
    assert [key for key, _ in held.scan_all(TABLE, b"row-2", b"row-5")] == sorted(
        key for key in rows if b"row-2" <= key < b"row-5"
    )
    held.close()


def test_a_store_is_had_alone_by_one_who_has_it_open_once(subject: Subject) -> None:
    other = open_store(subject.store.url)
    claim = subject.store.claim(take_over=False)
    with pytest.raises(PipelineRunning, match="stop it first"), other.alone():
        pass
    claim.release()
    with pytest.raises(StoreInUse, match="open 2 times"), other.alone():
        pass
    other.close()
    with subject.store.alone():
        assert live_holder(subject.store).pid == os.getpid()
    subject.store.claim(take_over=False).release()


def test_a_closed_store_has_no_log(subject: Subject) -> None:
    subject.write(3)
    subject.store.close()

    with pytest.raises(InputError, match="closed"):
        subject.store.ends()


def test_what_a_reader_holds_stays(subject: Subject) -> None:
    """`test_reads.py` asks for more of a store that says so."""
    assert subject.store.capabilities.held_reads
