"""Pictures of plans: drawn by Graphviz, and a way out where it is not there."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import viewkeeper as vk
from tests.support.drawing import draws
from viewkeeper.client.explaining import draw_svg

SVG = "{http://www.w3.org/2000/svg}"


@draws
def test_a_picture_is_a_document_of_its_own_with_every_node_and_edge(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, x STRING, y INT)")
        for number in range(12):
            db.execute(
                f"CREATE MATERIALIZED VIEW v{number} AS SELECT x, COUNT(*) AS n FROM t WHERE x <> '<&\"{number}' GROUP BY x"
            )
        graph, drawn = db.explain(form="dot"), db.explain(form="svg")
    kinds = [group.get("class") for group in ElementTree.fromstring(drawn).iter(f"{SVG}g")]

    assert drawn.startswith("<svg ")
    assert kinds.count("edge") == graph.count(" -> ") == 12 * 4
    assert kinds.count("node") == 1 + 12 * 4
    assert not re.findall(r"https?://(?!www\.w3\.org/(2000/svg|1999/xlink))|<image|<script|href", drawn)


@draws
def test_what_graphviz_cannot_read_is_told() -> None:
    with pytest.raises(vk.InputError, match="could not draw the plan: .*syntax error"):
        draw_svg("digraph {{{")


def test_without_graphviz_the_package_is_named_and_a_way_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(vk.InputError, match="dot is not installed") as missing:
        draw_svg("digraph {}")
    assert "apt-get install graphviz" in str(missing.value.hint)
    assert "--mermaid" in str(missing.value.hint)
