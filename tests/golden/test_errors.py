"""Golden errors: each refused statement with the message it is refused by, by topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import ViewKeeperError
from viewkeeper.plan.define import define_view

FILES = sorted((Path(__file__).parent / "errors").glob("*.txt"))


def _refusal(catalog: Catalog, query: str) -> str:
    try:
        define_view(catalog, "v", query)
    except ViewKeeperError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_statement_is_refused_by_its_recorded_message(path: Path, catalog: Catalog, recording: bool) -> None:
    queries = [block.partition("\n----\n")[0].strip() for block in path.read_text(encoding="utf-8").split("\n\n")]
    found = "\n\n".join(f"{query}\n----\n{_refusal(catalog, query)}" for query in queries) + "\n"
    if recording:
        path.write_text(found, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == found
    assert "\naccepted" not in found
