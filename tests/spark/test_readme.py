"""The README's Python example runs, and prints what its comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readmes_example_prints_what_its_comments_say(tmp_path: Path) -> None:
    code = re.search(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert code
    promised = re.findall(r"^print\(.*?  # (.+)$", code[1], flags=re.MULTILINE)

    run = subprocess.run([sys.executable, "-c", code[1]], capture_output=True, text=True, cwd=tmp_path, timeout=300)

    assert run.returncode == 0, run.stderr
    assert promised
    assert run.stdout.splitlines() == promised
