"""The contracts of VersionedTables, Reads, Meta and Admin, held against a store in a real HBase."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.conftest import Subject
from tests.contract.test_admin import *  # noqa: F403
from tests.contract.test_meta import *  # noqa: F403
from tests.contract.test_reads import *  # noqa: F403
from tests.contract.test_records import *  # noqa: F403
from tests.contract.test_scan_prefixes import *  # noqa: F403
from tests.support.hbase_stores import new_store
from tests.support.services.hbase import Cluster


@pytest.fixture
def subject(hbase: Cluster) -> Iterator[Subject]:
    with new_store(hbase) as store:
        yield Subject(store)
