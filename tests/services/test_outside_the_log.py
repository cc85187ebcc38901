"""What happens to users' tables and is in no log of HBase: a repair sees it, and takes it over."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import viewkeeper as vk
from tests.services.test_views_over_hbase import TEXTS, catch_up, compare, connected, url_of
from tests.support.duck_judge import DuckRecompute
from tests.support.hbase_clients import Clients
from tests.support.services.admin import Admin
from tests.support.services.hbase import Cluster
from viewkeeper.check import check_views, repairing
from viewkeeper.check.report import RepairReport
from viewkeeper.cli.main import app

VIEWS = ("everything", "sums", "ends", "pairs")


@pytest.fixture
def clients(hbase: Cluster) -> Clients:
    made = Clients(hbase, seed=11)
    made.write(200)
    return made


@pytest.fixture
def db(hbase: Cluster, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    """Filled views over both tables."""
    with connected(url_of(hbase)) as db:
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
        for name in "tu":
            db.execute(clients.ddl(name))
        for name in VIEWS:
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {TEXTS[name]}")
        catch_up(db, random.Random(1))
        yield db


def repair(db: vk.Database) -> RepairReport:
    return repairing.repair_views(db, None, spark="no Spark at all")


def put(hbase: Cluster, table: str, row: str, *, in_log: bool = True, at: int | None = None, **cells: str) -> None:
    """`at`: with that timestamp."""
    types = hbase.types
    values = [types.TColumnValue(b"f", name.encode(), value.encode()) for name, value in cells.items()]
    durability = types.TDurability.SYNC_WAL if in_log else types.TDurability.SKIP_WAL
    with hbase.client() as client:
        client.put(table.encode(), types.TPut(row.encode(), values, timestamp=at, durability=durability))


@pytest.mark.parametrize("way", ["truncated", "made anew"])
def test_rows_of_a_table_that_was_truncated_or_made_anew_are_gone_after_a_repair(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database, way: str
) -> None:
    before, name = clients.rows("t"), clients.tables["t"]
    (part,) = [row for row, g, x in before if g is not None and x is not None][:1]
    admin.truncate(name) if way == "truncated" else admin.drop(name)
    if way == "made anew":
        clients.create(name)
    put(hbase, name, part, g="another")
    put(hbase, name, "unlogged", in_log=False, g="a", x="7")
    catch_up(db, random.Random(2))
    assert len(list(db.view("everything").scan())) > len(clients.rows("t")) == 2

    report = repair(db)
    assert report.ok and not report.before.ok
    compare(db, clients)
    clients.write(100, seed=12)
    catch_up(db, random.Random(3))
    compare(db, clients)
    assert repair(db).before.ok


def test_a_repair_takes_over_a_cell_of_a_new_table_that_was_read_anew_late_in_the_log_of_the_old_one(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database
) -> None:
    name, types = clients.tables["t"], hbase.types
    with hbase.client() as client:
        for stamp, value in ((10, b"1"), (20, b"2")):
            cells = [types.TColumnValue(b"f", b"x", value)]
            client.put(name.encode(), types.TPut(row=b"a0", columnValues=cells, timestamp=stamp))
        column = [types.TColumn(b"f", b"x", timestamp=20)]
        kind = types.TDeleteType.DELETE_COLUMN
        client.deleteSingle(name.encode(), types.TDelete(row=b"a0", columns=column, deleteType=kind))
    catch_up(db, random.Random(4))
    admin.truncate(name)
    put(hbase, name, "a0", g="new", x="9")
    catch_up(db, random.Random(5))
    assert repair(db).ok
    compare(db, clients)


def test_a_repair_leaves_users_rows_as_they_are_also_those_that_do_not_decode(
    hbase: Cluster, clients: Clients, db: vk.Database
) -> None:
    row = next(row for row, g, x in clients.rows("t") if x is not None)
    put(hbase, clients.tables["t"], row, in_log=False, x="no number")
    before = clients.rows("t")
    report = repair(db)
    assert [finding.key for finding in report.before.findings if finding.view == "DELTA(t)"] == [(row,)]
    assert clients.rows("t") == before
    assert db.view("everything").get(row) is None


def test_a_table_that_is_disabled_or_gone_is_told_of_in_words(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database
) -> None:
    name = clients.tables["t"]
    seen = list(db.view("everything").scan())
    assert not db.status().warnings
    for change, words in ((admin.disable, "is disabled in HBase"), (admin.drop, "is not in HBase")):
        change(name)
        calls = (
            lambda: db.table("t").get("a0"),
            lambda: list(db.table("t").scan()),
            lambda: db.table("t").put("a0", {"g": "a"}),
        )
        for call in calls:
            with pytest.raises(vk.StoreError, match=f"table {name} {words}"):
                call()
        (warning,) = db.status().warnings
        assert warning.startswith(f"table {name} {words}")
        assert list(db.view("everything").scan()) == seen


def test_status_shows_views_and_says_what_to_do_where_the_log_is_lost(
    hbase: Cluster, admin: Admin, clients: Clients, db: vk.Database, tmp_path: Path
) -> None:
    for server in admin.servers():
        admin.roll(server)
    clients.write(20, seed=13)
    for folder in (hbase.layout.root / "WALs").iterdir():
        (tmp_path / "WALs" / folder.name).mkdir(parents=True)
        for file in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)[-1:]:
            shutil.copy(file, tmp_path / "WALs" / folder.name)  # as if HBase had deleted the others
    (tmp_path / "oldWALs").mkdir()
    shutil.copy(hbase.layout.root / "hbase.id", tmp_path)
    url = db.url.replace(f"file://{hbase.layout.root}", f"file://{tmp_path}")
    told = CliRunner().invoke(app, ["status", url])
    with vk.connect(url) as without, without.pipeline() as pipeline, pytest.raises(vk.PositionLost) as lost:
        pipeline.run_available()

    assert told.exit_code == 0, told.output
    shown = " ".join(told.output.split())
    assert f"warning: changes are lost: {lost.value.fact}; {lost.value.hint}" in shown
    assert "lag not known" in shown and f"epoch {db.epoch}" in shown
    with vk.connect(url) as without:
        assert {view.state for view in without.status().views} == {"lagging"}
        assert list(without.view("everything").scan()) == list(db.view("everything").scan())
