"""One HBase for the whole run: that of `make services` if it runs, or one of our own, which ends with the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tests.support.services.__main__ import FOLDER
from tests.support.services.admin import Admin, administering
from tests.support.services.failure import ServicesFailed
from tests.support.services.hbase import Cluster, free_port_base, started


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Serves when the tests begin; a test that stops a server starts it again."""
    running = Cluster.find(FOLDER) if FOLDER.exists() else None
    if running and running.running():
        running.start()
        yield running
        return
    with ExitStack() as stack:
        folder, tell = tmp_path_factory.mktemp("hbase"), _teller(pytestconfig)
        try:
            cluster = stack.enter_context(started(folder, port_base=free_port_base(), tell=tell))
        except ServicesFailed as failed:  # one line, and no test looks as if it had run
            pytest.exit(f"no test of real servers ran: {failed}", returncode=1)
        yield cluster


@pytest.fixture(scope="session")
def admin(hbase: Cluster) -> Iterator[Admin]:
    with administering(hbase) as opened:
        yield opened


@pytest.fixture
def table(hbase: Cluster, admin: Admin) -> Iterator[str]:
    """A new table with the families f and g in three regions."""
    name = next(name for number in count() if not _exists(hbase, name := f"rows{number}"))
    types = hbase.types
    families = [types.TColumnFamilyDescriptor(name=family) for family in (b"f", b"g")]
    description = types.TTableDescriptor(tableName=_name(hbase, name), columns=families)
    with hbase.client() as client:
        client.createTable(description, [b"h", b"p"])
    yield name
    admin.drop(name)


def _exists(hbase: Cluster, name: str) -> bool:
    with hbase.client() as client:
        return client.tableExists(_name(hbase, name))


def _name(hbase: Cluster, name: str) -> object:
    return hbase.types.TTableName(ns=b"default", qualifier=name.encode())


def _teller(config: pytest.Config) -> Callable[[str], None]:
    """Progress goes past pytest's capture: starting takes a minute."""
    capture = config.pluginmanager.getplugin("capturemanager")

    def tell(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, flush=True)

    return tell
