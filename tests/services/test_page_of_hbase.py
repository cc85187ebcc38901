"""The first scripts of docs/hbase.md run as they stand, but for the address, the folder and the names."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

from tests.support.hbase_stores import drop_namespace
from tests.support.services.configuration import ADDRESS
from tests.support.services.hbase import Cluster
from tests.support.source_tree import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_first_scripts_make_a_table_and_a_view_over_it(hbase: Cluster, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "hbase.md").read_text(encoding="utf-8").partition("\n## Tables")[0]
    port, mark = hbase.layout.thrift_ports()[0], uuid.uuid4().hex[:12]
    here = {
        '"thrift.example", 9090': f'"{ADDRESS}", {port}',
        "thrift.example:9090": f"{ADDRESS}:{port}",
        "/var/hbase": str(hbase.layout.root),
        "shop": f"shop_{mark}",
        "/views?": f"/views_{mark}?",
    }
    try:
        first, *others = _BLOCK.findall(page)
        for code in (first, first, *others):  # it may be pasted twice
            run = _run(re.sub("|".join(map(re.escape, here)), lambda found: here[found[0]], code), tmp_path)
            assert run.returncode == 0, run.stderr
        assert run.stdout.splitlines()[-1] == "{'placed': datetime.date(2026, 11, 17), 'n': 2, 'total': 42}"
    finally:
        for name in ("views", "shop"):
            with suppress(Exception):  # it may not have been made
                drop_namespace(f"hbase://{ADDRESS}:{port}/{name}_{mark}")


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=600)
