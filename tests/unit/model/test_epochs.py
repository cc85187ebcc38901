"""The epoch record: every step is one of the protocol's, and a record that contradicts itself is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.errors import Fenced, InvariantBroken
from viewkeeper.model import epochs
from viewkeeper.model.epochs import READABLE_EPOCHS, EpochRecord, record_from_json, record_to_json
from viewkeeper.model.positions import BackfillProgress, Chunk, Cut
from viewkeeper.model.read_frontier import frontier_bytes, parse_frontier

PLAN = "c0ffee"


def cut(position: int) -> Cut:
    return Cut({"0": position}, 100 + position, 1)


def owned(record: EpochRecord | None = None) -> EpochRecord:
    return epochs.take_over(record or EpochRecord.first("store"), "me")


def begun(record: EpochRecord, position: int = 1, tables: tuple[int, ...] = (5,)) -> EpochRecord:
    """The next epoch begun, which fills those of `tables` that are not filled, whole."""
    chunks = tuple(chunk(table) for table in tables if table not in record.filled)
    return epochs.begin(record, "me", cut(position), PLAN, chunks)


def chunk(table: int, high: bytes | None = None, rows: int = 3) -> Chunk:
    return Chunk(1, (table,), {0: (b"", b"g", high)}, rows, 100, 10, opens=True)


def committed(record: EpochRecord, tables: frozenset[int] = frozenset({5})) -> EpochRecord:
    return epochs.commit(record, "me", record.last, {"0": 7}, tables)


def test_a_new_record_has_nothing_committed_and_nobody_owns_it() -> None:
    record = EpochRecord.first("store")
    record.check_invariants()

    assert (record.version, record.last, record.committed, record.floor, record.inflight) == (0, 0, 0, 0, None)


def test_every_step_raises_the_version_by_one() -> None:
    steps = [EpochRecord.first("store")]
    for step in (owned, begun, committed, begun, lambda record: epochs.abort(record, "me"), begun):
        steps.append(step(steps[-1]))

    assert [record.version for record in steps] == list(range(len(steps)))


def test_begin_stores_what_a_rerun_needs_and_commit_moves_the_positions() -> None:
    record = begun(committed(begun(owned(), 3)), 8, (5, 6))

    assert record.inflight.epoch == record.last == 2
    assert record.inflight.start == {"0": 3}
    assert record.inflight.stop == cut(8)
    assert record.inflight.chunks == (chunk(6),)  # 5 is filled already
    done = committed(record, frozenset({6}))
    assert (done.committed, done.positions, done.stamp, done.checksums) == (2, {"0": 8}, 108, {"0": 7})
    assert done.filled == {6: 2}  # 5 was dropped meanwhile


def test_a_view_is_readable_when_its_last_chunk_is_committed() -> None:
    record = committed(epochs.begin(owned(), "me", cut(1), PLAN, (chunk(5, high=b"m"),)))
    assert (record.filled, record.filling) == ({}, {5: BackfillProgress({1: {0: b"m"}}, 3, 10)})
    record = committed(epochs.begin(record, "me", cut(2), PLAN, (chunk(5),)))

    assert (record.filled, record.filling) == ({5: 2}, {})


def test_a_view_of_two_tables_is_readable_when_both_are_in() -> None:
    other = Chunk(2, (5,), {0: (b"", None)}, 4, 40, 4, opens=True)
    record = committed(epochs.begin(owned(), "me", cut(1), PLAN, (chunk(5, high=b"m"), other)))
    assert (record.filled, record.filling[5]) == ({}, BackfillProgress({1: {0: b"m"}, 2: {}}, 7, 14))
    record = committed(epochs.begin(record, "me", cut(2), PLAN, (chunk(5),)))

    assert record.filled == {5: 2}


def test_a_chunk_of_an_aborted_epoch_is_not_behind_the_cursor() -> None:
    record = committed(epochs.begin(owned(), "me", cut(1), PLAN, (chunk(5, high=b"m"),)))
    aborted = epochs.abort(epochs.begin(record, "me", cut(2), PLAN, (chunk(5),)), "me")

    assert (aborted.filled, aborted.filling) == ({}, record.filling)


def test_behind_a_power_loss_a_view_is_readable_once_the_log_of_all_rows_is_committed() -> None:
    record = epochs.forget_views(committed(begun(owned(), 3)), {"0": 9})
    record = committed(epochs.begin(record, "me", cut(5), PLAN, (chunk(5),)))
    assert record.filled == {} and record.filling[5].is_done
    record = committed(epochs.begin(record, "me", cut(9), PLAN, (Chunk(1, (5,), {}, 0, 0, 10, opens=False),)))

    assert record.filled == {5: record.committed}


def test_a_stopped_view_is_not_readable_and_is_remembered_while_it_exists() -> None:
    record = epochs.abort(begun(committed(begun(owned(), 3)), 4), "me", {5: "broken"})
    assert (record.stopped, record.aborted) == ({5: "broken"}, (2,))
    assert committed(begun(record, 4, ()), frozenset()).stopped == {}


def test_the_floor_stays_k_epochs_behind() -> None:
    record, floors = owned(), []
    for position in range(1, 7):
        record = begun(record, position)
        floors.append((record.inflight.epoch, record.floor, record.inflight.floor))
        record = committed(record)

    assert READABLE_EPOCHS == 2
    assert floors == [(1, 0, 0), (2, 0, 0), (3, 1, 1), (4, 2, 2), (5, 3, 3), (6, 4, 4)]
    assert record.recent == (6, 5)


def test_an_aborted_epoch_is_never_used_again_and_does_not_count_as_readable() -> None:
    record = epochs.abort(begun(committed(begun(owned(), 1)), 5), "me")

    assert (record.aborted, record.committed, record.positions, record.inflight) == ((2,), 1, {"0": 1}, None)
    again = begun(record, 6)
    assert again.inflight.epoch == 3
    assert again.inflight.start == {"0": 1}
    assert again.inflight.aborted == (2,)
    assert committed(again).recent == (3, 1)


def test_who_does_not_own_the_record_is_fenced() -> None:
    record = begun(owned())

    for step in (
        lambda: epochs.begin(record, "other", cut(1), PLAN, ()),
        lambda: epochs.commit(record, "other", 1, {}, frozenset()),
        lambda: epochs.abort(record, "other"),
    ):
        with pytest.raises(Fenced):
            step()


def test_a_takeover_leaves_the_epoch_in_flight_as_it_is_and_counts() -> None:
    record = begun(owned(), 4)
    taken = epochs.take_over(record, "other")

    assert taken.inflight == dataclasses.replace(record.inflight, takeovers=1)
    assert epochs.take_over(taken, "other").inflight == taken.inflight  # it tries again
    assert (taken.owner, taken.generation) == ("other", record.generation + 1)
    with pytest.raises(Fenced):
        committed(taken)


def test_steps_out_of_order_are_refused() -> None:
    with pytest.raises(InvariantBroken, match="in flight"):
        begun(begun(owned()))
    with pytest.raises(InvariantBroken, match="none can be aborted"):
        epochs.abort(owned(), "me")
    with pytest.raises(Fenced, match="no longer in flight"):
        epochs.commit(owned(), "me", 1, {}, frozenset())
    with pytest.raises(Fenced, match="no longer in flight"):
        epochs.commit(begun(owned()), "me", 7, {}, frozenset())


@pytest.mark.parametrize(
    "change",
    [
        {"last": 9},
        {"floor": 2},
        {"committed": 5},
        {"aborted": (1,)},
        {"recent": (0, 1)},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change: dict) -> None:
    record = dataclasses.replace(begun(committed(begun(owned()))), **change)

    with pytest.raises(InvariantBroken):
        record.check_invariants()


STEPS = {
    "take": lambda record: epochs.take_over(record, "me"),
    "begin": lambda record: begun(record, max(record.positions.values(), default=0) + 1, (5, record.last % 3)),
    "commit": lambda record: committed(record, frozenset({0, 1, 2, 5})),
    "aborted": lambda record: epochs.abort(record, "me"),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=30))
def test_any_sequence_of_steps_keeps_the_invariants_and_goes_to_json_and_back(steps: list[str]) -> None:
    record = owned()
    for name in steps:
        try:
            after = STEPS[name](record)
        except (InvariantBroken, Fenced):
            assert (name == "begin") == (record.inflight is not None)
            continue
        after.check_invariants()
        assert after.last >= record.last
        assert after.floor >= record.floor
        assert after.committed >= record.committed
        assert after.floor <= after.recent[-1] <= after.committed
        record = after
        value = json.loads(json.dumps(record_to_json(record)))
        assert record_from_json(value) == record
        frontier = parse_frontier(frontier_bytes(value, 4))
        assert (frontier.committed, frontier.floor, frontier.aborted) == (
            record.committed,
            record.floor,
            record.aborted,
        )
        assert (frontier.positions, frontier.filled, frontier.catalog_version) == (record.positions, record.filled, 4)
