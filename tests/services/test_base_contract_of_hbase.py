"""The contract of BaseTables, held against a table that is mapped in a real HBase."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import viewkeeper as vk
from tests.contract.conftest import TABLE, Subject
from tests.contract.test_base_tables import *  # noqa: F403
from tests.support.hbase_stores import drop_namespace, new_url
from tests.support.mapped_rows import MappedRows
from tests.support.services.hbase import Cluster


@pytest.fixture
def subject(hbase: Cluster, table: str) -> Iterator[Subject]:
    url = new_url(hbase)
    try:
        with vk.connect(url) as db:
            db.execute(
                f"CREATE TABLE t (id BINARY PRIMARY KEY, v BINARY) USING hbase OPTIONS (table '{table}', family 'f')"
            )
            assert db.catalog().table("t").id == TABLE
            yield Subject(MappedRows(db.store))
    finally:
        drop_namespace(url)
