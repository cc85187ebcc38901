"""The schedule of the soak over HBase, without servers."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice, takewhile
from types import ModuleType

import pytest

from tests.support.hbase_soak.mutations import ROWS, STAMPED, WEIGHTS, Mutations, key_of
from tests.support.hbase_soak.schedule import FULL, QUIET, SHORT, Round, rounds
from tests.support.hbase_soak.tables import MAPPINGS, shown
from viewkeeper.stores.hbase.thrift_cells import thrift


def first(seed: int, count: int = 40) -> list[Round]:
    return list(islice(rounds(seed), count))


def test_equal_seeds_give_equal_rounds_and_others_give_others() -> None:
    assert first(4711) == first(4711)
    assert first(4711) != first(4712)


@pytest.mark.parametrize("deck", [FULL, SHORT], ids=["full", "short"])
def test_every_card_of_the_deck_is_dealt_each_time(deck: dict[str, int]) -> None:
    dealt = list(takewhile(lambda one: one.deal < 2, rounds(7, deck)))
    for deal in range(2):
        actions = [action for one in dealt if one.deal == deal for action in (*one.busy, *one.quiet)]
        assert Counter(action.kind for action in actions) == deck
    assert [one.number for one in dealt] == list(range(len(dealt)))


def test_what_needs_a_quiet_moment_is_kept_for_it() -> None:
    for one in first(3):
        assert {action.kind for action in one.quiet} <= QUIET
        assert not {action.kind for action in one.busy} & QUIET


def test_a_draw_chooses_any_of_what_there_is() -> None:
    actions = [action for one in first(5, 200) for action in one.busy]
    assert {action.pick(0, "abc") for action in actions} == set("abc")


class Client:
    """Remembers what it was asked."""

    def __init__(self, types: ModuleType) -> None:
        self.asked: list[tuple[str, tuple]] = []
        self._types = types

    def __getattr__(self, name: str) -> object:
        def ask(*arguments: object) -> object:
            self.asked.append((name, arguments))
            return self._types.TResult(columnValues=[self._types.TColumnValue(b"f", b"x", b"1", 7)])

        return ask


def written(seed: int, *, number: int = 0, count: int = 1_000, big_rows: int = 100) -> tuple[Counter[str], list]:
    types, kinds = thrift(), Counter[str]()
    names = {table: table for table in ("l", "r", "big")}
    mutations = Mutations(types, names, random.Random(seed), number, 2, big_rows)
    client = Client(types)
    for _ in range(count):
        kind, call = mutations.next()
        call(client)
        kinds[kind] += 1
    return kinds, client.asked


def test_writers_write_every_kind_of_mutation() -> None:
    assert set(written(1)[0]) == set(WEIGHTS)


def stamped_rows(number: int) -> set[tuple[bytes, bytes]]:
    """(table, row) of the rows that a writer gives timestamps of its own."""
    asked = [arguments for method, arguments in written(2, number=number)[1] if method == "put"]
    return {(table, put.row) for table, put in asked if put.timestamp is not None}


def test_rows_with_timestamps_of_a_client_are_written_by_that_client_alone() -> None:
    assert not stamped_rows(0) & stamped_rows(1)
    stamped = {(t.encode(), key_of(t, n)) for t, rows in ROWS.items() for n in range(rows) if n % 3 == STAMPED}
    assert stamped_rows(0) | stamped_rows(1) <= stamped
    for method, (table, *more) in written(3)[1]:
        if method in ("increment", "append", "mutateRow", "deleteMultiple", "putMultiple") and table != b"big":
            rows = [getattr(one, "row", None) for one in (more[0] if isinstance(more[0], list) else more[:1])]
            assert not {(table, row) for row in rows} & stamped


def test_a_put_is_above_every_earlier_delete_of_its_row() -> None:
    deleted: dict[tuple[bytes, bytes], int] = {}
    checked = 0
    for method, (table, *more) in written(4)[1]:
        if method == "deleteSingle" and (stamp := more[0].timestamp or (more[0].columns or [more[0]])[0].timestamp):
            if more[0].deleteType == thrift().TDeleteType.DELETE_COLUMNS:
                place = (table, more[0].row)
                deleted[place] = max(deleted.get(place, 0), stamp)
        elif method == "put" and more[0].timestamp is not None:
            assert more[0].timestamp > deleted.get((table, more[0].row), 0)
            checked += (table, more[0].row) in deleted
    assert checked > 10


def test_a_client_leaves_out_rows_without_a_mapped_cell_and_those_it_cannot_read() -> None:
    rows = {
        b"a": {(b"f", b"x"): b"7", (b"f", b"other"): b"?"},
        b"b": {(b"f", b"other"): b"?"},
        b"c": {(b"f", b"x"): b"no number", (b"f", b"j"): b"j"},
        b"d": {(b"f", b"j"): b"j"},
    }
    found = shown("l", rows).to_pylist()
    assert [row["k"] for row in found] == ["a", "d"]
    assert (found[0]["x"], found[0]["j"], found[1]["j"]) == (7, None, "j")
    assert shown("narrow", rows).to_pylist() == [{"k": "a", "x": 7}]
    assert set(MAPPINGS["l"][1]) == {"j", "x", "f", "a", "s"}
