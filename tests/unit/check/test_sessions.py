"""The guarantees of sessions: planted violations of each, random histories against the definitions, and real sessions."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest

import viewkeeper as vk
from viewkeeper.model.positions import covers
from viewkeeper.testing.session_guarantees import Guarantee, Read, Violation, Write, violations

RYW, MR, MW, WFR = Guarantee

PLANTED = {
    "a read before the session's write": ([Write("a", {"0": 5}), Read("a", {"0": 4})], {RYW: 1}),
    "a read without the write's stream": ([Write("a", {"1": 1}), Read("a", {"0": 9})], {RYW: 1}),
    "a read older than the one before": ([Read("a", {"0": 5}), Read("a", {"0": 6}), Read("a", {"0": 5})], {MR: 2}),
    "one stream older, another newer": ([Read("a", {"0": 5, "1": 1}), Read("a", {"0": 9})], {MR: 1}),
    "a later write without an earlier one": (
        [Write("a", {"0": 5}), Write("a", {"1": 5}), Read("b", {"0": 5, "1": 4}), Read("b", {"0": 4, "1": 5})],
        {MR: 3, MW: 3},
    ),
    "the answer without the question": (
        [Write("a", {"0": 5}), Read("b", {"0": 5}), Write("b", {"1": 3}), Read("c", {"0": 4, "1": 3})],
        {WFR: 3},
    ),
    "all of it right": (
        [
            *(Write("a", {"0": 5}), Write("a", {"1": 5}), Read("a", {"0": 7, "1": 5}), Write("a", {"0": 9})),
            *(Read("b", {"0": 5}), Read("b", {"0": 5, "1": 6}), Read("c", {"0": 9, "1": 5}), Read("d", {"0": 4})),
        ],
        {},
    ),
}


def found_in(operations: list[Write | Read]) -> dict[Guarantee, int]:
    return {violation.guarantee: violation.operation for violation in violations(operations)}


@pytest.mark.parametrize("name", PLANTED)
def test_each_guarantee_is_found_broken_where_it_is(name: str) -> None:
    operations, broken = PLANTED[name]

    assert found_in(operations) == broken


def test_a_violation_says_what_is_missing() -> None:
    (violation,) = violations([Write("a", {"0": 5}), Read("a", {"0": 4})])

    assert violation == Violation(RYW, 1, "a", "shows 0 up to 4, not up to 5")
    assert str(violation) == "read your writes: operation 1, a read of session a, shows 0 up to 4, not up to 5"


def by_definition(operations: list[Write | Read]) -> Iterator[tuple[Guarantee, int]]:
    """Every violation, by comparing each read with each pair of operations before."""
    for place, read in enumerate(operations):
        if isinstance(read, Write):
            continue
        for earlier in operations[:place]:
            if earlier.session == read.session and not covers(read.positions, earlier.positions):
                yield (RYW if isinstance(earlier, Write) else MR), place
        for first, then in itertools.combinations(operations, 2):
            shows = isinstance(then, Write) and any(read.positions.get(s, 0) >= p for s, p in then.positions.items())
            if first.session == then.session and shows and not covers(read.positions, first.positions):
                yield (MW if isinstance(first, Write) else WFR), place


def test_the_linear_pass_finds_what_the_definitions_say() -> None:
    choose, seen = random.Random(5), Counter()
    for _ in range(600):
        ends: Counter[str] = Counter()
        operations: list[Write | Read] = []
        is_careful = choose.random() < 0.4  # reads that show everything, but for a few
        for _ in range(choose.randint(2, 12)):
            session = choose.choice("abc")
            if choose.random() < 0.5:
                stream = choose.choice("01")
                ends[stream] += 1
                operations.append(Write(session, {stream: ends[stream]}))
            else:
                back = 0 if is_careful and choose.random() < 0.9 else 2
                shown = {stream: max(0, end - choose.randint(0, back)) for stream, end in ends.items()}
                operations.append(Read(session, shown))
        expected: dict[Guarantee, int] = {}
        for guarantee, place in by_definition(operations):
            expected[guarantee] = min(place, expected.get(guarantee, place))

        assert found_in(operations) == expected, operations
        seen.update(expected or ["none"])

    assert min(seen[guarantee] for guarantee in (*Guarantee, "none")) >= 50, seen


def shop(name: str) -> vk.Database:
    """A view that shows the version of every row, so that a read tells which writes it has seen."""
    db = vk.connect(f"memory:{name}?nodes=2")
    db.execute("CREATE TABLE r (k STRING PRIMARY KEY, n BIGINT); CREATE MATERIALIZED VIEW v AS SELECT k, n FROM r")
    return db


def run(db: vk.Database, *, own: bool, seed: int) -> list[Write | Read]:
    """Three sessions that write and read in turns; `own`: each by a session of its own, else by plain reads."""
    choose, versions = random.Random(seed), Counter()
    sessions = {name: db.session() for name in "abc"}
    operations: list[Write | Read] = []
    for _ in range(60):
        name = choose.choice("abc")
        if choose.random() < 0.4:
            key = f"{choose.randrange(8)}row"
            versions[key] += 1
            sessions[name].table("r").put(key, {"n": versions[key]})
            operations.append(Write(name, {key: versions[key]}))
        else:
            view = sessions[name].view("v") if own else db.view("v")
            operations.append(Read(name, {row["k"]: row["n"] for row in view.scan(timeout=60)}))
    return operations


@pytest.mark.parametrize("seed", range(3))
def test_sessions_of_a_running_store_keep_all_four_guarantees(seed: int) -> None:
    with shop(f"kept sessions {seed}") as db, db.pipeline() as pipeline:
        pipeline.run_available()
        pipeline.start()
        operations = run(db, own=True, seed=seed)

    assert violations(operations) == ()
    assert sum(isinstance(operation, Read) for operation in operations) > 20


def test_reads_outside_a_session_miss_its_writes() -> None:
    """The control: with the views left behind, the same run read as snapshots breaks what a session would have kept."""
    with shop("no sessions") as db:
        with db.pipeline() as pipeline:
            pipeline.run_available()
        operations = run(db, own=False, seed=1)

    assert found_in(operations).keys() == {RYW}
