"""What an operator does to a mapped table of HBase and no log tells: it is refused, or `status` tells of it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import viewkeeper as vk
from tests.services.test_views_over_hbase import catch_up, connected, url_of
from tests.support.hbase_clients import Clients
from tests.support.services.admin import Admin
from tests.support.services.hbase import Cluster

VIEWS = {"everything": "SELECT k, g, x FROM t", "sums": "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g"}


@pytest.fixture
def clients(hbase: Cluster) -> Clients:
    made = Clients(hbase, seed=21)
    made.write(60)
    return made


@pytest.fixture
def db(hbase: Cluster, clients: Clients) -> Iterator[vk.Database]:
    """Filled views over one table."""
    with connected(url_of(hbase)) as db:
        db.execute(clients.ddl("t"))
        for name, text in VIEWS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        catch_up(db, random.Random(1))
        yield db


def test_a_family_in_which_deletes_go_by_turn_is_refused_and_told_of_when_it_becomes_one(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database
) -> None:
    name = clients.tables["t"]
    assert not db.status().warnings
    admin.alter_family(name, "f", newVersionBehavior=True)
    (warning,) = db.status().warnings
    assert f"family f of table {name} has NEW_VERSION_BEHAVIOR" in warning and "viewkeeper repair" in warning
    with pytest.raises(vk.InputError, match="NEW_VERSION_BEHAVIOR") as refused:
        db.execute(clients.ddl("t").replace("TABLE t", "TABLE again"))
    assert f"alter '{name}'" in str(refused.value)

    admin.alter_family(name, "f", newVersionBehavior=False)
    assert not db.status().warnings
    db.execute(clients.ddl("t").replace("TABLE t", "TABLE again"))


def test_a_table_that_has_lost_its_log_or_a_family_is_told_of(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database
) -> None:
    name = clients.tables["t"]
    admin.set_durability(name, "SKIP_WAL")
    (warning,) = db.status().warnings
    assert f"table {name} of HBase has no log (SKIP_WAL)" in warning and "viewkeeper repair" in warning
    admin.set_durability(name, "SYNC_WAL")
    admin.replace_family(name, "f", "other")
    (warning,) = db.status().warnings
    assert f"table {name} of HBase has no family f" in warning
