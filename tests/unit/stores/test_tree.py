"""The tree: keys of any length, in exact order, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeeper.stores.embedded import tree
from viewkeeper.stores.embedded.long_keys import LAYERS

LIMIT = tree.LIMIT
# Keys around the limit that share their first bytes, so that they meet in one layer or stand just beside it; some of them
# in a layer of a layer.
STEMS = (b"", b"a", b"\x00" * (LIMIT - 2), b"m" * (LIMIT - 1), b"m" * LIMIT, b"m" * (LIMIT + 3), b"\xfe" * (LIMIT + 1))
STEMS += (b"m" * (2 * LIMIT - 12), b"m" * (2 * LIMIT + 9), b"m" * 1700)
KEYS = st.builds(lambda stem, tail: stem + tail, st.sampled_from(STEMS), st.binary(max_size=3)).filter(bool)
ENVIRONMENT: list[lmdb.Environment] = []


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    ENVIRONMENT.append(lmdb.open(str(tmp_path_factory.mktemp("tree")), map_size=1 << 26, sync=False))
    yield
    ENVIRONMENT.pop().close()


@settings(max_examples=150)
@given(
    steps=st.lists(st.tuples(st.sampled_from(("put", "put", "delete")), KEYS, st.binary(max_size=4)), max_size=40),
    start=st.just(b"") | KEYS,
    stop=st.none() | KEYS,
)
def test_a_tree_is_a_sorted_dictionary(steps: list, start: bytes, stop: bytes | None) -> None:
    expected: dict[bytes, bytes] = {}
    with ENVIRONMENT[0].begin(write=True) as transaction:
        for kind, key, value in steps:
            if kind == "put":
                tree.put(transaction, key, value)
                expected[key] = value
            else:
                tree.delete(transaction, key)
                expected.pop(key, None)
        pairs = sorted(expected.items())
        asked = [key for _, key, _ in steps]
        inside = [(key, value) for key, value in pairs if key >= start and (stop is None or key < stop)]

        assert list(tree.scan(transaction, b"", None)) == pairs
        assert list(tree.scan(transaction, start, stop)) == inside
        assert list(tree.scan(transaction, start, stop, reverse=True)) == inside[::-1]
        assert tree.get_many(transaction, asked) == [expected.get(key) for key in asked]
        assert [tree.get(transaction, key) for key in asked] == [expected.get(key) for key in asked]
        transaction.abort()


@settings(max_examples=150)
@given(
    pairs=st.dictionaries(KEYS, st.binary(max_size=4), max_size=40),
    prefix=st.just(b"") | KEYS,
    cut=st.integers(0, LIMIT + 4),
    size=st.integers(1, 20),
)
def test_a_prefix_is_scanned_in_lists(pairs: dict, prefix: bytes, cut: int, size: int) -> None:
    prefix = prefix[:cut]
    with ENVIRONMENT[0].begin(write=True) as transaction:
        tree.put_many(transaction, list(pairs), list(pairs.values()))
        lists = list(tree.scan_prefix(transaction, prefix, size=size))
        transaction.abort()

    assert [pair for part in lists for pair in part] == sorted(p for p in pairs.items() if p[0].startswith(prefix))
    assert all(lists)
    if max(map(len, pairs), default=0) < LIMIT:
        assert max(map(len, lists), default=0) <= size


@given(st.dictionaries(KEYS, st.binary(max_size=4), max_size=20))
def test_many_puts_at_once_equal_single_ones(pairs: dict) -> None:
    with ENVIRONMENT[0].begin(write=True) as transaction:
        tree.put_many(transaction, list(pairs), list(pairs.values()))
        assert list(tree.scan(transaction, b"", None)) == sorted(pairs.items())
        transaction.abort()


@given(st.lists(KEYS, max_size=12, unique=True), st.integers(1, 5))
def test_a_dropped_table_leaves_its_neighbours(keys: list[bytes], limit: int) -> None:
    with ENVIRONMENT[0].begin(write=True) as transaction:
        for table in (6, 7, 8):
            for key in keys:
                tree.put(transaction, tree.table_prefix(table) + key, b"v")
        while tree.drop(transaction, tree.table_prefix(7), limit=limit) == limit:
            pass
        left = [key for key, _ in tree.scan(transaction, b"", None)]
        assert left == sorted(tree.table_prefix(table) + key for table in (6, 8) for key in keys)
        transaction.abort()


def test_an_empty_layer_leaves_no_trace(tmp_path: Path) -> None:
    with ENVIRONMENT[0].begin(write=True) as transaction:
        long = b"k" * (LIMIT + 9)
        tree.put(transaction, long, b"1")
        tree.put(transaction, long + b"x", b"2")
        tree.delete(transaction, long)
        tree.delete(transaction, long)
        tree.delete(transaction, long + b"x")
        assert [key for key, _ in transaction.cursor()] == [LAYERS]  # how many layers there have been
        transaction.abort()


def test_a_value_is_written_alone_however_many_keys_begin_like_its_own() -> None:
    """A bucket of all of them, written anew with each, took the square of their number."""
    with ENVIRONMENT[0].begin(write=True) as transaction:
        for number in range(300):
            tree.put(transaction, b"k" * 1200 + b"%04d" % number, b"value")
        assert max(len(key) + len(value) for key, value in transaction.cursor()) < 2 * LIMIT
        assert len(list(tree.scan(transaction, b"", None))) == 300
        transaction.abort()


def test_very_long_keys_that_differ_at_the_end_are_told_apart() -> None:
    """More layers than Python would go down by recursion."""
    keys = [b"k" * 600_000 + bytes([last]) for last in (1, 2, 3)]
    with ENVIRONMENT[0].begin(write=True) as transaction:
        tree.put_many(transaction, keys, [b"1", b"2", b"3"])
        assert tree.get_many(transaction, keys) == [b"1", b"2", b"3"]
        assert [value for _, value in tree.scan(transaction, keys[0] + b"x", None)] == [b"2", b"3"]
        assert [value for _, value in tree.scan(transaction, b"", keys[2], reverse=True)] == [b"2", b"1"]
        tree.delete(transaction, keys[1])
        assert [key for key, _ in tree.scan(transaction, b"", None)] == [keys[0], keys[2]]
        assert tree.drop(transaction, b"k", limit=10) == 2
        assert [key for key, _ in transaction.cursor()] == [LAYERS]
        transaction.abort()


@settings(max_examples=200)
@given(
    sources=st.lists(st.lists(st.integers(0, 60), unique=True, max_size=30), max_size=4),
    size=st.integers(1, 5),
)
def test_what_several_sources_give_comes_in_key_order(sources: list[list[int]], size: int) -> None:
    # a key is in one source only: its last digit says which
    pairs = [[(f"{key:03}{number}".encode(), b"") for key in sorted(keys)] for number, keys in enumerate(sources)]
    lists = [iter([part[i : i + size] for i in range(0, len(part), size)]) for part in pairs]

    found = list(tree.merged(lists))
    assert all(found)
    assert [pair for part in found for pair in part] == sorted(pair for part in pairs for pair in part)
