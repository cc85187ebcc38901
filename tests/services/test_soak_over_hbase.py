"""The soak over HBase in its short form: a few faults of each kind, under writers, with every view judged."""

from __future__ import annotations

from tests.support.hbase_soak.run import Asked, soak
from tests.support.hbase_soak.schedule import SHORT
from tests.support.hbase_soak.summary import KILLS, MOMENTS, SERVERS, STAGED, STOPS, THRIFTS
from tests.support.services.hbase import Cluster

BIG_ROWS = 3_000


def test_every_view_is_right_though_pipelines_servers_and_regions_come_and_go(hbase: Cluster) -> None:
    summary = soak(hbase, Asked(seed=20, deals=1, deck=SHORT, big_rows=BIG_ROWS), print)
    counts = summary.counts

    assert not summary.violation, summary.text()
    assert counts[KILLS] >= SHORT["kill"]
    assert (counts[STOPS], counts[SERVERS], counts[THRIFTS]) == (1, 1, 1)
    assert counts[STAGED] == BIG_ROWS
    assert counts[MOMENTS] > 2
    assert summary.written.total() > 100
