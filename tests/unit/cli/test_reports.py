"""status, explain and check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import Result

from tests.support.drawing import draws
from viewkeeper.check.report import CheckReport, Finding, RepairReport, ViewOutcome
from viewkeeper.client.database import Database

Run = Callable[..., Result]

WRONG = Finding("revenue", ("eu",), "wrong", {"n": 1}, {"n": 2})


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[CheckReport], None]:
    """Lets `check` find what the test says; the real one needs a JVM."""

    def judge(report: CheckReport) -> None:
        monkeypatch.setattr(Database, "check", lambda self, views=None, **options: report)

    return judge


def test_status_tells_people_what_to_do(run: Run, shop: str) -> None:
    told = run("status", shop)

    assert told.exit_code == 0
    for words in ("not running", "3 changes", "revenue", "to be filled", "warning: no pipeline is running"):
        assert words in told.stdout


def test_status_tells_programs_numbers(run: Run, fresh_shop: str) -> None:
    told = json.loads(run("status", fresh_shop, "--json").stdout)

    assert (told["epoch"], told["lag_changes"], told["pipeline_pid"], told["tables"]) == (1, 0, None, ["orders"])
    (view,) = told["views"]
    assert (view["name"], view["kind"], view["ready"], view["filling"], view["stopped"]) == (
        "revenue",
        "AGGREGATE",
        1,
        None,
        None,
    )
    assert view["set_aside"] == view["degraded"] == {"count": 0, "keys": [], "reasons": []}


def test_explain_prints_the_plan_of_one_view_or_of_all(run: Run, shop: str) -> None:
    run("sql", shop, "CREATE MATERIALIZED VIEW big AS SELECT id FROM orders WHERE amount > 10")

    one, both = run("explain", shop, "revenue").stdout, run("explain", shop).stdout
    assert "view revenue" in one and "view big" not in one
    assert "view revenue" in both and "view big" in both
    assert run("explain", shop, "nothing").exit_code == 2


def test_explain_prints_a_flowchart(run: Run, shop: str) -> None:
    told = run("explain", shop, "revenue", "--mermaid")

    assert told.exit_code == 0
    assert told.stdout.startswith("flowchart LR\n")
    assert '(["γ by (region) of' in told.stdout


@draws
def test_explain_writes_a_picture(run: Run, shop: str, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    told = run("explain", shop, "--picture", str(picture))

    assert (told.exit_code, told.stdout) == (0, f"{picture} written\n")
    assert ElementTree.fromstring(picture.read_text(encoding="utf-8")).tag.endswith("svg")


@pytest.mark.parametrize("name", ["plan.png", "plan", "svg", "plan.svg.txt"])
def test_a_picture_that_is_not_called_svg_is_refused_before_anything_is_written(
    run: Run, shop: str, tmp_path: Path, name: str
) -> None:
    told = run("explain", shop, "--picture", str(tmp_path / name))

    assert told.exit_code == 2
    assert "a picture is an SVG file" in told.stderr and "end its name in .svg" in told.stderr
    assert not (tmp_path / name).exists()


@draws
def test_a_picture_that_cannot_be_written_is_told(run: Run, shop: str, tmp_path: Path) -> None:
    told = run("explain", shop, "--picture", str(tmp_path / "nowhere" / "plan.svg"))

    assert (told.exit_code, told.stdout) == (2, "")
    assert "cannot be written: No such file or directory" in told.stderr
    assert run("explain", shop, "--mermaid", "--picture", "plan.svg").exit_code == 2


def test_a_good_check_says_what_was_compared(run: Run, shop: str, judged: Callable[[CheckReport], None]) -> None:
    judged(CheckReport(ok=True, epoch=4, views=("revenue",), records=3, findings=()))
    told = run("check", shop)

    assert (told.exit_code, told.stdout) == (0, "ok: revenue as recomputed, 3 records at epoch 4\n")


def test_a_bad_check_names_the_records_and_has_its_own_exit_code(
    run: Run, shop: str, judged: Callable[[CheckReport], None]
) -> None:
    judged(CheckReport(ok=False, epoch=4, views=("revenue",), records=3, findings=(WRONG,) * 30))
    told, as_json = run("check", shop), run("check", shop, "--json")

    assert told.exit_code == as_json.exit_code == 1
    assert "not ok: 30 records are wrong at epoch 4" in told.stdout
    assert "and 10 more" in told.stdout
    report = json.loads(as_json.stdout)
    assert report["ok"] is False
    assert report["findings"][0] == {
        "view": "revenue",
        "key": ["eu"],
        "kind": "wrong",
        "expected": {"n": 1},
        "found": {"n": 2},
        "why": None,
    }


def test_a_repair_lists_every_view_with_what_was_done(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable = Finding("sums", (b"\1",), "unreadable", None, None, "its versions cannot be read")
    before = CheckReport(ok=False, epoch=4, views=("sums",), records=3, findings=(unreadable,))
    outcomes = (
        ViewOutcome("revenue", "repaired", 2, 1),
        ViewOutcome("sums", "rebuilt", 3),
        ViewOutcome("well", "ok", 7),
        ViewOutcome("bad", "wrong", 1, way_out="viewkeeper rebuild URL bad"),
        ViewOutcome("still", "not done", why="it is stopped: it broke", way_out="viewkeeper rebuild URL still"),
    )
    report = RepairReport(False, 5, {"revenue": 2}, {"revenue": 1}, ("sums",), before, before, outcomes)
    monkeypatch.setattr(Database, "repair", lambda self, views=None, **options: report)
    told, as_json = run("repair", shop), run("repair", shop, "--json")

    assert told.exit_code == as_json.exit_code == 1
    lines = [" ".join(line.split()) for line in told.stdout.splitlines()]
    for line in (
        "revenue 2 records and 1 auxiliary record put right",
        "sums filled anew: an epoch could not put it right",
        "well nothing: it was right",
        "bad still wrong: 1 record viewkeeper rebuild URL bad",
        "still nothing: it is stopped: it broke viewkeeper rebuild URL still",
        'sums ["01"] unreadable NULL its versions cannot be read',
    ):
        assert line in lines
    assert json.loads(as_json.stdout)["outcomes"][4] == {
        "view": "still",
        "state": "not done",
        "records": 0,
        "auxiliary": 0,
        "why": "it is stopped: it broke",
        "way_out": "viewkeeper rebuild URL still",
    }


def test_status_lists_rows_set_aside_with_view_key_and_reason(run: Run, url: str) -> None:
    from tests.support.running import keep_up
    from viewkeeper.client.database import connect

    run("sql", url, "CREATE TABLE t (k STRING PRIMARY KEY, n INT); INSERT INTO t VALUES ('a', 0), ('b', 2)")
    run("sql", url, "CREATE MATERIALIZED VIEW shares AS SELECT k, 1 / n AS share FROM t")
    keep_up(connect(url))
    lines = [line.split() for line in run("status", url).stdout.splitlines()]
    (view,) = json.loads(run("status", url, "--json").stdout)["views"]

    assert ["shares", '["a"]', "division", "by", "zero"] in lines
    assert view["set_aside"] == {"count": 1, "keys": [["a"]], "reasons": ["division by zero"]}
    told = run("set-aside", url, "shares").stdout.splitlines()
    assert [line.split() for line in told if "division" in line] == [['["a"]', "division", "by", "zero"]]
    row = {"key": ["a"], "reason": "division by zero", "dropped": False}
    assert json.loads(run("set-aside", url, "shares", "--json").stdout) == row


def test_rows_set_aside_are_tried_again_and_dropped(run: Run, url: str) -> None:
    from tests.support.running import keep_up
    from viewkeeper.client.database import connect

    run("sql", url, "CREATE TABLE t (k STRING PRIMARY KEY, n INT); INSERT INTO t VALUES ('a', 0), ('b', 0), ('c', 0)")
    run("sql", url, "CREATE MATERIALIZED VIEW shares AS SELECT k, 1 / n AS share FROM t")
    keep_up(connect(url))

    assert run("set-aside", url, "shares", "--retry").stdout == "rows of shares that no longer fail, epoch 2: 0\n"
    assert run("set-aside", url, "shares", "--drop", "--key", '["b"]').stdout == "rows of shares dropped, epoch 3: 1\n"
    told = run("set-aside", url, "shares", "--drop", "--key", '"c"', "--json").stdout
    assert json.loads(told) == {"view": "shares", "rows": 1, "epoch": 4}
    assert len(run("set-aside", url, "shares", "--json").stdout.splitlines()) == 1
    unquoted = run("set-aside", url, "shares", "--drop", "--key", "b").stderr
    assert "a key is not JSON" in unquoted and """strings need quotes inside: '["o1"]'""" in unquoted
    assert run("set-aside", url, "shares", "--dropped").stdout.count("division by zero; dropped") == 2
    for wrong in (("--retry", "--drop"), ("--key", '["a"]'), ("--drop", "--key", '["z"]')):
        assert run("set-aside", url, "shares", *wrong).exit_code == 2


def test_rebuild_fills_a_view_anew_and_tells_which(run: Run, fresh_shop: str) -> None:
    before = run("scan", fresh_shop, "revenue").stdout
    told = run("rebuild", fresh_shop, "revenue")

    assert (told.exit_code, told.stdout) == (0, "rebuilt at epoch 2: revenue\n")
    assert run("scan", fresh_shop, "revenue").stdout == before
    assert run("rebuild", fresh_shop, "nowhere").exit_code == 2


def test_status_has_a_word_for_each_view(run: Run, shop: str) -> None:
    (line,) = [line.split() for line in run("status", shop).stdout.splitlines() if line.startswith("revenue")]
    assert line[:3] == ["revenue", "AGGREGATE", "filling"] and line[-3:] == ["to", "be", "filled"]
    run("rebuild", shop, "revenue")
    (line,) = [line.split() for line in run("status", shop).stdout.splitlines() if line.startswith("revenue")]
    assert line[:3] == ["revenue", "AGGREGATE", "fresh"] and line[-1] == "never"
