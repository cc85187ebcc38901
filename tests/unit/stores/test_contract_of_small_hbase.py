"""The contracts of VersionedTables, Reads, Meta and Admin of HBase's adapter, over a small HBase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.conftest import Subject
from tests.contract.test_admin import *  # noqa: F403
from tests.contract.test_meta import *  # noqa: F403
from tests.contract.test_reads import *  # noqa: F403
from tests.contract.test_records import *  # noqa: F403
from tests.contract.test_scan_prefixes import *  # noqa: F403
from tests.support.small_hbase import SmallHBase
from viewkeeper.stores.open import open_store


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Subject]:
    hbase = SmallHBase(tmp_path)
    hbase.ms = time.time_ns() // 1_000_000  # a claim is compared with the clock
    url = f"hbase://small:9090/views?partitions=4&late=60&rootdir={tmp_path.as_uri()}"
    with hbase.replying(), closing(open_store(url)) as store:
        yield Subject(store)
