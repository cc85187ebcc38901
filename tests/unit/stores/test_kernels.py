"""Kernels: ordered maps under transactions, with keys of any length, forwards and backwards, on LMDB and in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeeper.model.keys import after_prefix
from viewkeeper.stores.kv.kernel import FIRST_PAIRS, Kernel, OrderedMap, Pair, merged, table_prefix
from viewkeeper.stores.kv.lmdb_environment import Environment
from viewkeeper.stores.kv.lmdb_files import make_part, part_of
from viewkeeper.stores.kv.lmdb_maps import LAYERS, LIMIT
from viewkeeper.stores.kv.memory_kernel import CHUNK_KEYS, MemoryKernel

# Keys around the limit that share their first bytes, so that they meet in one layer or stand just beside it; some of them
# in a layer of a layer.
STEMS = (b"", b"a", b"\x00" * (LIMIT - 2), b"m" * (LIMIT - 1), b"m" * LIMIT, b"m" * (LIMIT + 3), b"\xfe" * (LIMIT + 1))
STEMS += (b"m" * (2 * LIMIT - 12), b"m" * (2 * LIMIT + 9), b"m" * 1700)
KEYS = st.builds(lambda stem, tail: stem + tail, st.sampled_from(STEMS), st.binary(max_size=3)).filter(bool)
SHORT_KEYS = st.binary(min_size=1, max_size=3) | st.builds(lambda last: b"i" * 510 + last, st.binary(max_size=1))
KINDS = ("lmdb", "memory")
KERNELS: dict[str, Kernel] = {}
EACH_KERNEL = pytest.mark.parametrize("kind", KINDS)


class NotKept(Exception):
    """Ends a transaction whose writes are not wanted."""


@pytest.fixture(scope="module", autouse=True)
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    part, path = part_of({}, "node-0"), tmp_path_factory.mktemp("kernel") / "node-0"
    make_part(path, part)
    with ExitStack() as ends:
        environment = Environment(path, part, synced=False)
        ends.callback(environment.close, NotKept())
        KERNELS.update(lmdb=environment, memory=MemoryKernel())
        yield
    KERNELS.clear()


@contextmanager
def empty(kind: str, name: str = "rows") -> Iterator[OrderedMap]:
    """A map of the write transaction, empty before and after."""
    with suppress(NotKept), KERNELS[kind].write(name) as pairs:
        yield pairs
        raise NotKept


def raw(pairs: OrderedMap) -> lmdb.Cursor:
    """What LMDB itself holds."""
    return pairs._transaction.cursor(pairs._database)


def listed(pairs: OrderedMap, start: bytes = b"", stop: bytes | None = None) -> list[Pair]:
    return list(chain.from_iterable(pairs.lists(start, stop, first=FIRST_PAIRS)))


@EACH_KERNEL
@settings(max_examples=150)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("put", "put", "delete", "pop")), KEYS, st.binary(max_size=4)), max_size=40
    ),
    start=st.just(b"") | KEYS,
    stop=st.none() | KEYS,
)
def test_a_map_is_a_sorted_dictionary(kind: str, steps: list, start: bytes, stop: bytes | None) -> None:
    expected: dict[bytes, bytes] = {}
    with empty(kind) as rows:
        for step, key, value in steps:
            match step:
                case "put":
                    rows.put(key, value)
                    expected[key] = value
                case "delete":
                    rows.delete_many([key])
                    expected.pop(key, None)
                case _:
                    assert rows.pop_many([key]) == [expected.pop(key, None)]
        pairs = sorted(expected.items())
        asked = [key for _, key, _ in steps]
        inside = [(key, value) for key, value in pairs if key >= start and (stop is None or key < stop)]

        assert listed(rows) == pairs
        assert listed(rows, start, stop) == inside
        assert list(rows.walk_back(start, stop)) == inside[::-1]
        assert rows.get_many(asked) == [expected.get(key) for key in asked]
        assert [rows.get(key) for key in asked] == [expected.get(key) for key in asked]
        if max(map(len, expected), default=0) < LIMIT:
            assert (len(rows), rows.count(start, stop)) == (len(pairs), len(inside))


@EACH_KERNEL
@settings(max_examples=100)
@given(
    steps=st.lists(st.tuples(st.booleans(), SHORT_KEYS, st.binary(max_size=4)), max_size=40),
    start=st.just(b"") | SHORT_KEYS,
    stop=st.none() | SHORT_KEYS,
    limit=st.integers(1, 9),
)
def test_a_map_of_short_keys_takes_all_that_lmdb_takes(
    kind: str, steps: list, start: bytes, stop: bytes | None, limit: int
) -> None:
    expected: dict[bytes, bytes] = {}
    with empty(kind, "log") as log:
        for is_put, key, value in steps:
            if is_put:
                log.put(key, value)
                expected[key] = value
            else:
                log.delete_many([key])
                expected.pop(key, None)
        pairs = sorted(expected.items())
        inside = [(key, value) for key, value in pairs if key >= start and (stop is None or key < stop)]
        assert list(log.walk(start)) == [pair for pair in pairs if pair[0] >= start]
        assert listed(log, start, stop) == inside
        assert list(log.walk_back(start, stop)) == inside[::-1]
        under = [key for key, _ in pairs if key.startswith(start)]
        assert log.drop(start, limit=limit) == min(limit, len(under))
        assert [key for key, _ in log.walk(b"")] == sorted(expected.keys() - set(under[:limit]))
        log.clear()
        assert len(log) == 0


@EACH_KERNEL
@settings(max_examples=150)
@given(
    pairs=st.dictionaries(KEYS, st.binary(max_size=4), max_size=40),
    prefix=st.just(b"") | KEYS,
    cut=st.integers(0, LIMIT + 4),
    size=st.integers(1, 20),
)
def test_a_prefix_is_scanned_in_lists(kind: str, pairs: dict, prefix: bytes, cut: int, size: int) -> None:
    prefix = prefix[:cut]
    with empty(kind) as rows:
        rows.put_many([*pairs], [*pairs.values()])
        lists = list(rows.lists(prefix, after_prefix(prefix), size=size, first=min(FIRST_PAIRS, size)))

    assert [pair for part in lists for pair in part] == sorted(p for p in pairs.items() if p[0].startswith(prefix))
    assert all(lists)
    if max(map(len, pairs), default=0) < LIMIT:
        assert max(map(len, lists), default=0) <= size


@EACH_KERNEL
def test_lists_are_bounded_by_bytes_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kernel", "lmdb_maps"):
        monkeypatch.setattr(f"viewkeeper.stores.kv.{module}.LIST_BYTES", 10)
    pairs = [(b"%04d" % number, b"x" * (number % 5)) for number in range(300)]
    with empty(kind) as rows:
        rows.put_many(*zip(*pairs, strict=True))
        parts = list(rows.lists(b"", None, size=100, first=1))

    assert [pair for part in parts for pair in part] == pairs
    assert all(sum(len(value) for _, value in part) < 60 for part in parts) and len(parts) > 20


@EACH_KERNEL
@given(st.dictionaries(KEYS, st.binary(max_size=4), max_size=20))
def test_many_puts_at_once_equal_single_ones(kind: str, pairs: dict) -> None:
    with empty(kind) as rows:
        rows.put_many([*pairs], [*pairs.values()])
        assert listed(rows) == sorted(pairs.items())
        assert rows.pop_many(list(pairs)) == list(pairs.values())
        assert listed(rows) == []


@EACH_KERNEL
@given(st.lists(KEYS, max_size=12, unique=True), st.integers(1, 5))
def test_a_dropped_table_leaves_its_neighbours(kind: str, keys: list[bytes], limit: int) -> None:
    with empty(kind) as rows:
        for table in (6, 7, 8):
            rows.put_many([table_prefix(table) + key for key in keys], [b"v"] * len(keys))
        while rows.drop(table_prefix(7), limit=limit) == limit:
            pass
        assert [key for key, _ in listed(rows)] == sorted(table_prefix(table) + key for table in (6, 8) for key in keys)


@EACH_KERNEL
def test_a_transaction_is_seen_whole_or_not_at_all_and_a_reader_sees_what_was_there(kind: str) -> None:
    kernel = KERNELS[kind]
    with kernel.write("rows") as rows:
        rows.put(b"a", b"1")
        rows.of("log").put(b"a", b"1", is_last=True)
    with kernel.read("rows") as before, kernel.held("log") as held:
        with suppress(NotKept), kernel.write("rows") as rows:
            rows.put(b"b", b"2")
            assert rows.get(b"b") == b"2"
            raise NotKept
        with kernel.read("rows") as rows:
            assert listed(rows) == [(b"a", b"1")]
        thread = threading.Thread(target=_empty_both, args=(kernel,))  # LMDB: a thread has one transaction at a time
        thread.start()
        thread.join()
        assert (listed(before), list(held.walk(b""))) == ([(b"a", b"1")], [(b"a", b"1")])
    with kernel.read("rows") as rows:
        assert (len(rows), len(rows.of("log"))) == (0, 0)
    kernel.pass_writer_lock()
    kernel.sync()


def _empty_both(kernel: Kernel) -> None:
    with kernel.write("log") as log:
        log.delete_many([b"a", b"gone"])
        log.of("rows").clear()


# long keys on LMDB


def test_an_empty_layer_leaves_no_trace() -> None:
    with empty("lmdb") as rows:
        long = b"k" * (LIMIT + 9)
        rows.put(long, b"1")
        rows.put(long + b"x", b"2")
        rows.delete_many([long, long, long + b"x"])
        assert [key for key, _ in raw(rows)] == [LAYERS]  # how many layers there have been


def test_a_value_is_written_alone_however_many_keys_begin_like_its_own() -> None:
    """A bucket of all of them, written anew with each, took the square of their number."""
    with empty("lmdb") as rows:
        for number in range(300):
            rows.put(b"k" * 1200 + b"%04d" % number, b"value")
        assert max(len(key) + len(value) for key, value in raw(rows)) < 2 * LIMIT
        assert len(listed(rows)) == 300


@EACH_KERNEL
def test_very_long_keys_that_differ_at_the_end_are_told_apart(kind: str) -> None:
    """More layers than Python would go down by recursion."""
    keys = [b"k" * 600_000 + bytes([last]) for last in (1, 2, 3)]
    with empty(kind) as rows:
        rows.put_many(keys, (b"1", b"2", b"3"))
        assert rows.get_many(keys) == [b"1", b"2", b"3"]
        assert [value for _, value in listed(rows, keys[0] + b"x")] == [b"2", b"3"]
        assert [value for _, value in rows.walk_back(b"", keys[2])] == [b"2", b"1"]
        rows.delete_many([keys[1]])
        assert [key for key, _ in listed(rows)] == [keys[0], keys[2]]
        assert rows.drop(b"k", limit=10) == 2
        if kind == "lmdb":
            assert [key for key, _ in raw(rows)] == [LAYERS]


# chunks in memory


def test_no_chunk_is_empty_or_too_long() -> None:
    kernel = MemoryKernel()
    for number in range(0, 4 * CHUNK_KEYS, 7):
        with kernel.write("rows") as rows:
            rows.put_many([b"%05d" % (at * 13 % 5_000) for at in range(number, number + 40)], [b"v"] * 40)
            rows.delete_many([b"%05d" % at for at in range(number, number + 25)])
        chunks = kernel.maps["rows"]._chunks
        assert all(chunks) and max(map(len, chunks)) <= CHUNK_KEYS
        assert kernel.maps["rows"]._firsts == [min(chunk) for chunk in chunks]


# several maps


@settings(max_examples=200)
@given(
    sources=st.lists(st.lists(st.integers(0, 60), unique=True, max_size=30), max_size=4),
    size=st.integers(1, 5),
)
def test_what_several_sources_give_comes_in_key_order(sources: list[list[int]], size: int) -> None:
    # a key is in one source only: its last digit says which
    pairs = [[(f"{key:03}{number}".encode(), b"") for key in sorted(keys)] for number, keys in enumerate(sources)]
    lists = [iter([part[i : i + size] for i in range(0, len(part), size)]) for part in pairs]

    found = list(merged(lists))
    assert all(found)
    assert [pair for part in found for pair in part] == sorted(pair for part in pairs for pair in part)
