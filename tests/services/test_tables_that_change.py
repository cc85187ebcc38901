"""What an operator does to a mapped table of HBase and no log tells: it is refused, or `status` tells of it."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.services.test_outside_the_log import put
from tests.services.test_views_over_hbase import TEXTS, catch_up, compare, connected, url_of
from tests.support.duck_judge import DuckRecompute
from tests.support.hbase_clients import Clients
from tests.support.services.admin import Admin
from tests.support.services.hbase import Cluster
from tests.support.services.waiting import say_nothing, wait_until
from viewkeeper.check import check_views, repairing

VIEWS = ("everything", "sums")


@pytest.fixture
def clients(hbase: Cluster) -> Clients:
    made = Clients(hbase, seed=21)
    made.write(60)
    return made


@pytest.fixture
def db(hbase: Cluster, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    """Filled views over one table."""
    with connected(url_of(hbase)) as db:
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
        db.execute(clients.ddl("t"))
        for name in VIEWS:
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {TEXTS[name]}")
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
    told = "\n".join(db.status().warnings)
    assert f"table {name} of HBase has no family f" in told
    assert "table t was restored from a snapshot or rid of a family at " in told


def loaded(hbase: Cluster, admin: Admin, clients: Clients, folder: Path) -> None:
    """Rows come as a file that HBase made of another table."""
    source = clients.tables["u"]
    put(hbase, source, "bulk", g="bulk", x="9")
    admin.flush(source)
    files = (hbase.layout.root / "data" / "default" / source).glob("*/f/*")
    file = next(file for file in files if not file.name.startswith(".") and b"bulk" in file.read_bytes())
    (folder / "f").mkdir()
    shutil.copy(file, folder / "f" / file.name)
    admin.bulk_load(clients.tables["t"], str(folder))


def restored(hbase: Cluster, admin: Admin, clients: Clients, folder: Path) -> None:
    admin.restore(clients.tables["t"], f"before{clients.tables['t']}")


def truncated(hbase: Cluster, admin: Admin, clients: Clients, folder: Path) -> None:
    admin.truncate(clients.tables["t"])


def made_anew(hbase: Cluster, admin: Admin, clients: Clients, folder: Path) -> None:
    admin.drop(clients.tables["t"])
    clients.create(clients.tables["t"])


@pytest.mark.parametrize(
    ("change", "words", "is_followed"),
    [
        (truncated, "truncated or made anew", False),
        (made_anew, "truncated or made anew", True),
        (restored, "restored from a snapshot or rid of a family", True),
        (loaded, "bulk-loaded", False),
    ],
)
def test_status_tells_of_what_no_log_does_until_a_repair_has_taken_it_over(
    hbase: Cluster,
    admin: Admin,
    clients: Clients,
    db: vk.Database,
    tmp_path: Path,
    change: Callable[[Cluster, Admin, Clients, Path], None],
    words: str,
    is_followed: bool,
) -> None:
    name = clients.tables["t"]
    admin.snapshot(name, f"before{name}")
    clients.write(30, seed=2)
    put(hbase, name, "a0", g="after", x="3")
    admin.flush(name)
    admin.compact(name)
    for region in admin.regions(name)[:2]:
        admin.move(region, admin.servers()[0])
    admin.split(name, b"c")
    catch_up(db, random.Random(2))
    assert {view.state for view in db.status().views} == {"fresh"} and not db.status().warnings

    change(hbase, admin, clients, tmp_path)
    if is_followed:
        catch_up(db, random.Random(3))
    with vk.connect(db.url) as other:
        found = other.status()
    (warning,) = found.warnings
    assert warning.startswith(f"table t was {words} at ") and "run viewkeeper repair" in warning
    assert "everything, sums may be wrong" in warning
    assert {view.state for view in found.views} == {"lagging"}

    assert repairing.repair_views(db, None, spark="no Spark at all").ok
    compare(db, clients)
    assert {view.state for view in db.status().views} == {"fresh"} and not db.status().warnings


def found_and_mended(db: vk.Database, clients: Clients, *views: str) -> None:
    """A check names the views, or DELTA, and a repair puts all right."""
    assert {finding.view for finding in check_views.check_views(db, None, spark="no Spark at all").findings} >= set(
        views
    )
    assert repairing.repair_views(db, None, spark="no Spark at all").ok
    compare(db, clients)
    assert check_views.check_views(db, None, spark="no Spark at all").ok


def test_a_repair_takes_over_cells_that_expired(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database
) -> None:
    name, long_ago = clients.tables["t"], time.time_ns() // 1_000_000 - 7_200_000
    put(hbase, name, "gone", at=long_ago, g="old", x="1")
    put(hbase, name, "half", at=long_ago, g="old", x="1")
    put(hbase, name, "half", x="2")
    catch_up(db, random.Random(2))
    assert db.view("everything").get("gone") is not None
    admin.alter_family(name, "f", timeToLive=3_600)
    found_and_mended(db, clients, "DELTA(t)")
    assert db.view("everything").get("gone") is None
    assert db.view("everything").get("half") == {"k": "half", "g": None, "x": 2}


def test_a_repair_takes_over_a_put_below_a_delete_that_hbase_has_forgotten(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database
) -> None:
    name, now = clients.tables["t"], time.time_ns() // 1_000_000
    deleted = {"past": now - 1_000, "future": now + 3_600_000}
    for row, at in deleted.items():
        put(hbase, name, row, at=at - 5, g="before")
        with hbase.client() as client:
            client.deleteSingle(name.encode(), hbase.types.TDelete(row=row.encode(), timestamp=at))
    catch_up(db, random.Random(2))
    admin.compact(name)
    wait = {"seconds_max": 120.0, "state": lambda: "deletes are compacted", "tell": say_nothing}
    assert wait_until(lambda: not raw_rows(hbase, name, deleted), **wait)
    for row, at in deleted.items():
        put(hbase, name, row, at=at - 3, g="after")
    catch_up(db, random.Random(3))
    assert {row for row, _, _ in clients.rows("t")} > set(deleted)
    assert not any(db.view("everything").get(row) for row in deleted)
    found_and_mended(db, clients, "DELTA(t)")
    put(hbase, name, "past", g="later")
    catch_up(db, random.Random(4))
    compare(db, clients)


def test_a_repair_brings_back_what_others_did_to_the_table_of_a_view(
    hbase: Cluster, clients: Clients, db: vk.Database
) -> None:
    """Their stamps are those of the clock, above all that an epoch writes, or those of an epoch."""
    types, store = hbase.types, db.store
    table = store._site.tables.name_of(db.catalog().view("everything").node.table)
    with hbase.client() as client:
        shown = client.getScannerResults(table, types.TScan(columns=[types.TColumn(b"c")]), 10)
        first, second, third, fourth = shown[:4]
        client.deleteSingle(table, types.TDelete(row=first.row))
        client.put(table, types.TPut(row=second.row, columnValues=[types.TColumnValue(b"c", b"g", b"wrong")]))
        stamp = third.columnValues[0].timestamp
        client.put(table, types.TPut(third.row, [types.TColumnValue(b"c", b"x", b"wrong")], timestamp=stamp))
        client.deleteSingle(table, types.TDelete(row=fourth.row, columns=[types.TColumn(b"c", b"x")]))
    report = check_views.check_views(db, None, spark="no Spark at all")
    assert sorted(finding.key for finding in report.findings) == sorted((row.row[2:-2].decode(),) for row in shown[:4])
    repaired = repairing.repair_views(db, None, spark="no Spark at all")
    assert repaired.ok and repaired.rebuilt == ("everything",)
    compare(db, clients)
    assert check_views.check_views(db, None, spark="no Spark at all").ok


@pytest.mark.deep
def test_what_others_deleted_of_delta_comes_back_with_a_repair_after_a_major_compaction(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database
) -> None:
    table = db.store._site.tables.name_of(db.catalog().table("t").delta).decode()
    with hbase.client() as client:
        there = {row.encode() for row, _, _ in clients.rows("t")}
        records = client.getScannerResults(table.encode(), hbase.types.TScan(), 1_000)
        first = next(record for record in records if record.row[2:-2] in there)
        client.deleteSingle(table.encode(), hbase.types.TDelete(row=first.row))
    assert not repairing.repair_views(db, None, spark="no Spark at all").ok
    admin.compact(table)
    wait = {"seconds_max": 120.0, "state": lambda: "the delete is compacted", "tell": say_nothing}
    assert wait_until(lambda: not raw_rows(hbase, table, [first.row.decode()]), **wait)
    found_and_mended(db, clients, "DELTA(t)")


def raw_rows(hbase: Cluster, table: str, rows: Iterable[str]) -> list[object]:
    """Of these rows all that HBase still has, deletes too."""
    with hbase.client() as client:
        scan = hbase.types.TScan(attributes={b"_raw_": b"\xff"})
        return [found for found in client.getScannerResults(table.encode(), scan, 1_000) if found.row.decode() in rows]
