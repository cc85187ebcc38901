"""The README's Python example runs, and prints what its comments say."""

from __future__ import annotations

from pathlib import Path

from tests.support.examples import run_examples
from tests.support.source_tree import ROOT


def test_the_readmes_example_prints_what_its_comments_say(tmp_path: Path) -> None:
    printed, promised = run_examples(ROOT / "README.md", tmp_path)

    assert promised
    assert printed == promised
