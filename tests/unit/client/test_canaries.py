"""Values of rows are in the store, and in answers to those who ask for them: nowhere else."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.json_codec import to_json_value
from viewkeeper.operators import program
from viewkeeper.operators.duck import run_sql
from viewkeeper.operators.messages import encode
from viewkeeper.operators.receipts import Failure, Receipt

TEXT, NUMBER, VARIABLE = "canary-of-text-7f3a", 7_373_737_373_737_373_737, "canary-of-environment-51b2"
KEY = "canary-of-key-90cd"


def columns_from_side(db: vk.Database) -> list[str]:
    """All that a pipeline, a status and plans tell, and the errors of statements that fail on rows."""
    events: list[object] = []
    Coordinator(db.store, HereRunner(db.store), events=events.append).catch_up()
    told = [repr(events), repr(db.status()), str(db.status())]
    for statement in (
        "EXPLAIN",
        "EXPLAIN failing",
        "SHOW TABLES",
        "SHOW VIEWS",
        "DESCRIBE t",
        "SHOW CREATE VIEW failing",
    ):
        told.append(repr(db.execute(statement)))
    for expression in ("CAST(v AS INT)", "CAST(v AS DATE)", "n + n", "n * 3", "CAST(n AS INT)", "1 / (n - n)"):
        with pytest.raises(vk.ViewKeeperError) as caught:
            db.execute(f"SELECT {expression} AS x FROM t")
        told.append(f"{caught.value} {caught.value.__cause__} {caught.value!r}")
    return told


def test_values_of_rows_are_told_to_nobody_who_did_not_ask(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("here", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("VIEWKEEPER_CANARY", VARIABLE)
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING, n BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW failing AS SELECT k, CAST(v AS INT) AS x, n + n AS y FROM t")
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT k % 2 AS g, SUM(n) AS total, MAX(v) AS most FROM t GROUP BY 1")
    db.table("t").put_many([{"k": k, "v": TEXT, "n": NUMBER} for k in range(3)])

    told = [*columns_from_side(db), caplog.text, *capfd.readouterr()]

    assert db.status().views[0].set_aside.count == 3, "rows failed, and had to be told"
    assert db.table("t").get(1) == {"k": 1, "v": TEXT, "n": NUMBER}
    for canary in (TEXT, str(NUMBER), str(2 * NUMBER), VARIABLE):
        assert [text for text in told if canary in text] == []
    outside = [path for name in ("here", "temporary") for path in (tmp_path / name).rglob("*")]
    assert outside == []
    stored = b"".join(path.read_bytes() for path in (tmp_path / "s").rglob("data.mdb"))
    assert TEXT.encode() in stored and VARIABLE.encode() not in stored
    assert os.environ["VIEWKEEPER_CANARY"] == VARIABLE


def test_the_reason_for_which_a_view_is_stopped_holds_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do the epoch record, receipts and failures, events and status, though DuckDB's own text quotes one."""
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, v STRING)")
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    sent: list[object] = []
    carry = program.InProcess.carry

    def carried(self: program.InProcess, messages: object) -> list:
        found = carry(self, messages)
        sent.extend(message for message in found if isinstance(message.body, Receipt | Failure))
        return found

    monkeypatch.setattr(program.InProcess, "carry", carried)
    failing = f"SELECT CAST('{TEXT} {KEY} {NUMBER}' || a.n AS INT) FROM (SELECT 1 AS n) a"
    monkeypatch.setattr(program.StagePart, "_apply_node", lambda *_: run_sql(failing))
    db.table("t").put(KEY, {"v": TEXT})
    events: list[object] = []
    Coordinator(db.store, HereRunner(db.store), events=events.append).catch_up()

    record, status = db.store.read_epoch_record(), db.status()
    assert status.views[0].stopped.startswith("ConversionException: a value cannot be converted in ")
    assert any(isinstance(message.body, Failure) for message in sent)
    told = [json.dumps(to_json_value(record)), repr(events), repr(status), str(status), *(str(encode(m)) for m in sent)]
    with pytest.raises(vk.NotReady) as caught:
        db.view("w").get(TEXT)
    told.append(f"{caught.value!r} {caught.value}")
    for canary in (TEXT, KEY, str(NUMBER)):
        assert [text for text in told if canary in text] == []


def test_an_error_repeats_the_callers_own_value_shortened(tmp_path: Path) -> None:
    db = vk.connect("memory:")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    with pytest.raises(vk.BadRow) as caught:
        db.table("t").put("mine " * 1_000, {})
    assert "mine" in str(caught.value) and len(str(caught.value)) < 200
