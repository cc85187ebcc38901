"""Plans of stores with transactions: one goes when another is kept; HBase keeps them for a while (test_late_in_hbase.py)."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Subject
from viewkeeper.errors import CorruptStore


def test_a_plan_of_no_epoch_in_flight_goes_with_the_next_one(subject: Subject) -> None:
    subject.store.keep_plan("first", {"nodes": [1]})
    subject.store.keep_plan("second", {"nodes": [2]})

    assert subject.store.read_plan("second") == {"nodes": [2]}
    with pytest.raises(CorruptStore, match="the plan first of an epoch is not there"):
        subject.store.read_plan("first")
