"""backup, restore, compact and scale on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.unit.cli.conftest import Run
from viewkeeper.client.pipeline import Pipeline


def test_a_shop_is_backed_up_and_restored(run: Run, fresh_shop: str, tmp_path: Path) -> None:
    token = run("put", fresh_shop, "orders", "o9", "region=eu", "amount=1").stdout.strip()
    made = run("backup", fresh_shop, f"{tmp_path}/b")
    assert made.exit_code == 0
    assert made.stdout.startswith("backed up at epoch 1: ") and made.stdout.endswith(f" in {tmp_path}/b\n")
    restored = run("restore", f"{tmp_path}/b", f"embedded:{tmp_path}/new")
    assert restored.exit_code == 0
    assert restored.stdout.startswith("restored at epoch 1: ")
    assert f"1 change waits for the pipeline: viewkeeper run embedded:{tmp_path}/new" in restored.stdout
    assert run("get", f"embedded:{tmp_path}/new", "revenue", "eu", "--json").stdout.count('"n": 1') == 1
    assert run("get", f"embedded:{tmp_path}/new", "orders", "o9").exit_code == 0
    late = run("get", f"embedded:{tmp_path}/new", "revenue", "eu", "--after", token)
    assert late.exit_code == 5
    assert "before it was restored" in late.stderr and "hint: use a token" in late.stderr


def test_what_they_did_is_told_as_json_too(run: Run, fresh_shop: str, tmp_path: Path) -> None:
    made = json.loads(run("backup", fresh_shop, f"{tmp_path}/b", "--json").stdout)
    assert made["epoch"] == 1 and made["inflight"] is None and made["bytes"] > 0
    restored = json.loads(run("restore", f"{tmp_path}/b", f"embedded:{tmp_path}/new", "--json").stdout)
    assert restored["epoch"] == 1 and restored["url"] == f"embedded:{tmp_path}/new"
    compacted = json.loads(run("compact", f"embedded:{tmp_path}/new", "--json").stdout)
    assert compacted["bytes_after"] <= compacted["bytes_before"]


def test_what_cannot_be_done_is_told_with_the_way_out(run: Run, shop: str, tmp_path: Path) -> None:
    assert run("backup", shop, f"{tmp_path}/b").exit_code == 0
    again = run("backup", shop, f"{tmp_path}/b")
    assert (again.exit_code, "is there already" in again.stderr) == (2, True)
    over = run("restore", f"{tmp_path}/b", shop)
    assert (over.exit_code, "hint: name a new directory" in over.stderr) == (2, True)
    as_store = run("status", f"embedded:{tmp_path}/b")
    assert (as_store.exit_code, "viewkeeper restore BACKUP URL" in as_store.stderr) == (4, True)
    (tmp_path / "b" / "meta.mdb").unlink()
    damaged = run("restore", f"{tmp_path}/b", f"embedded:{tmp_path}/new")
    assert (damaged.exit_code, "hint: copy it again from where it was made" in damaged.stderr) == (4, True)
    assert run("backup", f"embedded:{tmp_path}/nowhere", f"{tmp_path}/c").exit_code == 4
    assert run("compact", f"embedded:{tmp_path}/nowhere").exit_code == 4
    with vk.connect(shop):
        in_use = run("compact", shop)
    assert (in_use.exit_code, "close the other databases" in in_use.stderr) == (4, True)


def test_compact_prints_sizes(run: Run, shop: str, tmp_path: Path) -> None:
    run("backup", shop, f"{tmp_path}/b")
    run("restore", f"{tmp_path}/b", f"embedded:{tmp_path}/new")  # `shop` is still open in this process
    done = run("compact", f"embedded:{tmp_path}/new")
    assert done.exit_code == 0
    assert done.stdout.startswith("compacted: ") and " bytes)" in done.stdout


def pipeline_of(db: vk.Database) -> Pipeline:
    """Epochs as small as these need no Java."""
    return Pipeline(db, view_managers=2, spark=None, take_over=False, changes_per_epoch=None)


def test_a_running_pipeline_is_told_how_many_managers_to_have(run: Run, shop: str) -> None:
    with vk.connect(shop) as db, pipeline_of(db) as pipeline:
        told = run("scale", shop, "3..5")
        assert (told.exit_code, told.stdout) == (0, "from its next epoch on the pipeline has 3 to 5 view managers\n")
        pipeline.run_available()
        assert pipeline.view_managers == 3
    alone = run("scale", shop, "3")
    assert alone.exit_code == 2 and "no pipeline of this store is running" in alone.stderr


@pytest.mark.parametrize("wrong", ["", "x", "1..", "..3", "0", "0..3", "4..1", "1.5", "-2"])
def test_what_is_no_number_of_view_managers_is_told_in_words_of_the_command_line(
    run: Run, shop: str, wrong: str
) -> None:
    for told in (run("scale", shop, "--", wrong), run("run", shop, f"--view-managers={wrong}")):
        assert told.exit_code == 2
        fact, hint = told.stderr.splitlines()
        assert fact == f"error: {wrong} is not a number of view managers"
        assert hint.endswith("1..4")
