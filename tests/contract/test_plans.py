"""Plans of stores with transactions go when another epoch begins; HBase keeps them for a while (test_late_in_hbase.py)."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Subject
from viewkeeper.errors import CorruptStore
from viewkeeper.model import epochs
from viewkeeper.model.positions import Cut


def test_a_plan_of_no_epoch_goes_when_the_next_one_begins(subject: Subject) -> None:
    store = subject.store
    store.keep_json("plan", "first", {"nodes": [1]})
    store.keep_json("plan", "second", {"nodes": [2]})
    assert store.read_json("plan", "first") == {"nodes": [1]}
    record = epochs.take_over(store.read_epoch_record(), "me")
    assert store.swap_epoch_record(record.version - 1, record)
    begun = epochs.begin(record, "me", Cut({}, 1, 0), "second")
    assert store.swap_epoch_record(record.version, begun)

    assert store.read_json("plan", "second") == {"nodes": [2]}
    with pytest.raises(CorruptStore, match="the store lacks plan first of the epoch"):
        store.read_json("plan", "first")
