"""What made an engine's work fail is told without a value of a row."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from viewkeeper.engine.spark_errors import translate_error
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.wording import cause_of
from viewkeeper.operators.duck import run_sql

CANARY, NUMBER = "can'ary\" of text\n7f3a", 7_373_737_373_737_373_737
FAILING = {
    "SELECT CAST(v AS INTEGER) FROM rows": "a value cannot be converted",
    "SELECT CAST(v AS DATE) FROM rows": "a value cannot be converted",
    "SELECT CAST(n AS INTEGER) FROM rows": "overflow",
    "SELECT n * 3 FROM rows": "overflow",
    "SELECT CAST(n AS DECIMAL(4, 2)) FROM rows": "a value cannot be converted",
    "SELECT error(v) FROM rows": None,
    "SELECT regexp_matches('a', v || '(') FROM rows": None,
    "SELECT strptime(v, '%Y') FROM rows": None,
}


@pytest.mark.parametrize("sql", FAILING)
@pytest.mark.parametrize("times", [1, 100])
def test_of_an_error_of_duckdb_its_kind_its_known_cause_and_its_place_are_told(sql: str, times: int) -> None:
    with pytest.raises(duckdb.Error) as caught:
        run_sql(sql, rows=pa.table({"v": [CANARY] * times, "n": [NUMBER] * times}))
    told = cause_of(caught.value)

    assert told.startswith(f"{type(caught.value).__name__}: {FAILING[sql]} in " if FAILING[sql] else "")
    assert "(duck.py:" in told and "\n" not in told
    assert not any(part in told for part in ("can'ary", "text", "7f3a", str(NUMBER), "rows"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (pa.ArrowInvalid(f"Could not convert '{CANARY}' with type str"), "ArrowInvalid: a value cannot be converted"),
        (KeyError(CANARY), "KeyError"),
        (
            InvariantBroken("a count in table 7 would be -1"),
            "internal error, please report it (InvariantBroken): a count in table 7 would be -1",
        ),
        (RuntimeError(f"[CAST_INVALID_INPUT] '{CANARY}'"), "RuntimeError: a value cannot be converted"),
        (RuntimeError(f"[NO.SUCH_THING] '{CANARY}'"), "RuntimeError: NO.SUCH_THING"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_of_other_errors_too_unless_they_are_ours(error: Exception, told: str) -> None:
    assert cause_of(error) == told


def test_of_a_job_that_spark_aborted_the_kind_of_the_failure_is_told() -> None:
    behind = f"most recent failure: Lost task 1.3 in stage 2 (TID 7): java.lang.ArithmeticException: {NUMBER} is large"
    told = translate_error(
        RuntimeError(f"Job aborted due to stage failure: Task 1 failed 4 times, {behind}\n{CANARY}"), 7
    )

    assert told.fact == (
        "epoch 7 failed: Job aborted due to stage failure: Task 1 failed 4 times, by java.lang.ArithmeticException"
    )


@pytest.mark.parametrize("letters", [299, 300, 301])
def test_of_a_long_line_of_ours_the_first_300_letters_are_told(letters: int) -> None:
    assert (
        cause_of(InvariantBroken("x" * letters))
        == f"internal error, please report it (InvariantBroken): {'x' * min(letters, 300)}"
    )
