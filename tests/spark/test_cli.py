"""run, check and demo with Spark; the two that start a JVM of their own do so as a user would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.cli.main import app
from viewkeeper.client.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWKEEPER = [sys.executable, "-m", "viewkeeper"]
SECONDS_MAX = 240  # a busy machine needs long to start a JVM; a test that hangs is ended all the same
SHOP = """
CREATE TABLE orders (id STRING PRIMARY KEY, region STRING, amount BIGINT);
CREATE MATERIALIZED VIEW revenue AS SELECT region, SUM(amount) AS total FROM orders GROUP BY region;
INSERT INTO orders VALUES ('o1', 'eu', 30)
"""


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = vk.connect(f"embedded:{tmp_path}/shop")
    made.execute(SHOP)
    return made


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A `viewkeeper` that does not outlive the test."""
    process = subprocess.Popen([*VIEWKEEPER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_java(process: subprocess.Popen[str]) -> None:
    """Return once a process has started Java."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until and process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text(encoding="ascii").split()]
        if any(Path(f"/proc/{child}/comm").read_text(encoding="utf-8") == "java\n" for child in children):
            return
    raise AssertionError("no Java was started")


@pytest.mark.deep
def test_control_c_in_a_check_is_one_line(database: Database) -> None:
    keep_up(database)
    with running("check", database.url) as process:
        wait_for_java(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)

    assert (process.returncode, out) == (130, "")
    assert err == "interrupted: nothing was changed; viewkeeper check URL VIEW looks at one view alone\n"


def test_run_keeps_views_fresh_until_sigterm_and_leaves_the_store_free(database: Database) -> None:
    with running("run", database.url, "--json") as process:
        first = json.loads(process.stdout.readline())
        token = database.table("orders").put("o2", {"region": "eu", "amount": 12})
        database.wait_for(token, SECONDS_MAX)
        second = CliRunner().invoke(app, ["run", database.url, "--until-caught-up"])
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS_MAX)

    assert (first["epoch"], first["changes"]) == (1, 1)
    assert second.exit_code == 4
    assert f"pid {process.pid}" in second.stderr
    assert "hint: stop it, or use --take-over" in second.stderr
    assert process.returncode == 0, err
    assert err == "stopped at epoch 2\n"
    assert [json.loads(line)["epoch"] for line in out.splitlines()] == [2]
    assert database.view("revenue").get("eu") == {"region": "eu", "total": 42}
    assert database.status().pipeline_pid is None


@pytest.mark.deep
def test_a_standby_takes_over_from_a_pipeline_that_is_killed(database: Database) -> None:
    with running("run", database.url, "--json") as first:
        assert first.stdout.readline(), "the owner is to be the one that began first"
        with running("run", database.url, "--standby") as second:
            assert next(line for line in second.stdout if line.startswith("standing by: process "))
            first.kill()
            token = database.table("orders").put("o2", {"region": "eu", "amount": 12})
            database.wait_for(token, SECONDS_MAX)
            assert database.status().pipeline_pid == second.pid
            second.send_signal(signal.SIGTERM)
            out, err = second.communicate(timeout=SECONDS_MAX)

    assert (second.returncode, out.splitlines()[-1]) == (0, "stopped at epoch 2"), err
    assert database.view("revenue").get("eu") == {"region": "eu", "total": 42}


def test_run_catches_up_and_check_finds_all_well(spark: SparkSession, database: Database) -> None:
    caught_up = CliRunner().invoke(app, ["run", database.url, "--until-caught-up"], catch_exceptions=False)
    checked = CliRunner().invoke(app, ["check", database.url, "--json"], catch_exceptions=False)

    assert (caught_up.exit_code, checked.exit_code) == (0, 0)
    assert caught_up.stdout.splitlines()[-1].startswith("caught up at epoch 1: 1 change in ")
    report = json.loads(checked.stdout)
    assert (report["ok"], report["epoch"], report["views"], report["findings"]) == (True, 1, ["revenue"], [])


def test_the_demo_tells_its_story_and_keeps_the_store_where_it_was_told_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = subprocess.run(
        [*VIEWKEEPER, "demo", "--keep", str(kept)], capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "ok: revenue, big, by_customer, everything as recomputed" in done.stdout
    assert f"viewkeeper sql embedded:{kept}" in done.stdout.partition("What next")[2]
    database = vk.connect(f"embedded:{kept}", read_only=True)
    assert database.view("everything").get()["n"] == 30_005
    assert [row["id"] for row in database.view("big").scan()] == ["o1", "o2", "o3"]
    again = CliRunner().invoke(app, ["demo", "--keep", str(kept)])
    assert (again.exit_code, again.stdout) == (2, "")
