"""Chains of versions: what a reader and a re-run see, against the definition in `docs/epochs.md`, section 1."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.record_reader import Damaged, read_versions
from viewkeeper.errors import Fenced
from viewkeeper.stores import version_chains

Chain = list[tuple[int, bytes | None]]  # newest first
CHAINS = st.lists(
    st.tuples(st.integers(1, 9), st.none() | st.binary(max_size=4)), max_size=5, unique_by=lambda v: v[0]
).map(lambda chain: sorted(chain, key=lambda version: -version[0]))
VOID = st.lists(st.integers(1, 9), max_size=3, unique=True).map(tuple)


def version(chain: Chain, epoch: int, aborted: tuple[int, ...]) -> bytes | None:
    """The newest (s, row) with s <= epoch and s not in aborted, else nothing."""
    return next((row for s, row in chain if s <= epoch and s not in aborted), None)


def keep(chain: Chain, floor: int, aborted: tuple[int, ...]) -> Chain:
    """Versions that are not aborted with s > floor, and the newest at or below it."""
    live = [(s, row) for s, row in chain if s not in aborted]
    above = [(s, row) for s, row in live if s > floor]
    return above + [(s, row) for s, row in live if s <= floor][:1]


def encoded(chain: Chain) -> bytes:
    built = pa.array([None], pa.binary())
    for epoch, row in reversed(chain):
        built = version_chains.push(built, pa.array([row], pa.binary()), epoch, 0, ())
    return built[0].as_py() or b""


def array(chains: list[Chain]) -> pa.Array:
    """Chains as a store finds them: NULL where there is no record."""
    return pa.array([encoded(chain) or None for chain in chains], pa.binary())


@given(CHAINS)
def test_a_chain_holds_its_versions_newest_first(chain: Chain) -> None:
    assert list(version_chains.versions_of(encoded(chain))) == chain


@given(st.lists(CHAINS, max_size=6), st.integers(0, 10), VOID)
def test_a_reader_sees_the_newest_version_of_its_epoch_that_is_not_aborted(
    chains: list, epoch: int, aborted: tuple
) -> None:
    expected = [version(chain, epoch, aborted) for chain in chains]

    assert version_chains.rows_at(array(chains), epoch, aborted).to_pylist() == expected
    assert [version_chains.version_at(encoded(chain), epoch, aborted) for chain in chains] == expected


@given(st.lists(CHAINS, max_size=6), st.integers(1, 10), VOID)
def test_a_rerun_sees_the_version_below_its_epoch_and_what_it_wrote(chains: list, epoch: int, aborted: tuple) -> None:
    aborted = tuple(v for v in aborted if v != epoch)  # an aborted epoch is not run again
    if any(chain and chain[0][0] > epoch for chain in chains):
        with pytest.raises(Fenced, match="an epoch later than"):
            version_chains.rows_before(array(chains), epoch, aborted)
        return
    rows, applied, now = version_chains.rows_before(array(chains), epoch, aborted)
    is_applied = [bool(chain) and chain[0][0] == epoch for chain in chains]

    assert rows.to_pylist() == [version(chain, epoch - 1, aborted) for chain in chains]
    assert applied.tolist() == is_applied
    assert [row for row, there in zip(now.to_pylist(), is_applied, strict=True) if there] == [
        chain[0][1] for chain, there in zip(chains, is_applied, strict=True) if there
    ]


@given(st.lists(st.tuples(CHAINS, st.none() | st.binary(max_size=4)), max_size=6), st.integers(0, 10), VOID)
def test_a_new_version_keeps_what_readers_above_the_floor_need(pairs: list, floor: int, aborted: tuple) -> None:
    epoch, chains = 10, [chain for chain, _ in pairs]
    rows = pa.array([row for _, row in pairs], pa.binary())
    pushed = version_chains.push(array(chains), rows, epoch, floor, aborted).to_pylist()

    for chain, row, after in zip(chains, rows.to_pylist(), pushed, strict=True):
        kept = list(version_chains.versions_of(after))
        assert [pair for pair in kept if pair[0] not in aborted] == [(epoch, row), *keep(chain, floor, aborted)]
        for reader in range(floor, epoch):
            assert version(kept, reader, aborted) == version(chain, reader, aborted)


@given(CHAINS, st.integers(0, 10), VOID)
def test_a_record_is_dead_when_no_reader_at_or_above_the_floor_sees_a_row(
    chain: Chain, floor: int, aborted: tuple
) -> None:
    if not chain:
        return
    dead = version_chains.is_dead(encoded(chain), floor, aborted)

    assert dead == (chain[0][0] <= floor and version(chain, floor, aborted) is None)
    if dead:
        assert all(version(chain, reader, aborted) is None for reader in range(floor, 12))


def test_long_chains_and_long_rows_are_read_right() -> None:
    chain = [(epoch, b"%d" % epoch * epoch) for epoch in range(60, 0, -1)]
    stored = encoded(chain)

    for epoch in (1, 57, 60, 1000):
        row = b"%d" % min(epoch, 60) * min(epoch, 60)
        assert version_chains.version_at(stored, epoch, ()) == row
        assert version_chains.rows_at(pa.array([stored, None, stored]), epoch, ()).to_pylist() == [row, None, row]


@given(st.lists(CHAINS.filter(bool), max_size=6), st.data())
def test_a_chain_is_damaged_unless_it_is_one_of_descending_epochs_up_to_the_last(
    chains: list[Chain], data: st.DataObject
) -> None:
    whole = [encoded(chain) for chain in chains]
    cut = [chain[: data.draw(st.integers(0, len(chain) - 1))] for chain in whole]
    twice = [chain + chain for chain in whole]
    given_chains = [*whole, *cut, *twice, *([b"\xff" * 20] if whole else []), *whole]
    last = data.draw(st.integers(0, 9))
    found = version_chains.damaged(pa.array(given_chains, pa.binary()), last).tolist()
    assert found == [not is_whole(chain, last) for chain in given_chains]


def is_whole(chain: bytes, last: int) -> bool:
    try:
        epochs = [epoch for epoch, _ in read_versions(chain)]
    except (Damaged, struct.error):
        return False
    return epochs == sorted(set(epochs), reverse=True) and 0 < epochs[-1] and epochs[0] <= last
