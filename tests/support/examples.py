"""Examples in pages: they run as they stand, and their comments are what they print.

In: a Markdown page. Out: the lines that its Python blocks print, run in turn as one program, and the lines that comments
after `print(…)` promise. Always: a block that fails raises, with what it wrote to stderr.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PROMISE = re.compile(r"^ *print\(.*?  # (.+)$", re.MULTILINE)


def run_examples(page: Path, folder: Path) -> tuple[list[str], list[str]]:
    """What the examples of a page print, and what they promise to."""
    code = "\n".join(_BLOCK.findall(page.read_text(encoding="utf-8")))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines(), _PROMISE.findall(code)
