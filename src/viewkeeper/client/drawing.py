"""Drawing: a graph in the language of Graphviz becomes an SVG picture, by Graphviz's own `dot`.

In: the text of a graph. Out: the text of an SVG document. Always: `dot` runs as a process of its own and reads and
writes only what it is given; where it is not installed, the error names the package and an alternative.
"""

from __future__ import annotations

import shutil
import subprocess

from viewkeeper.errors import InputError

_SECONDS_MAX = 120
_OTHERWISE = "print the plan as a Mermaid flowchart (--mermaid, form='mermaid'), which many pages and editors draw"


def draw_svg(graph: str) -> str:
    tool = shutil.which("dot")
    if tool is None:
        raise InputError(
            "a picture is drawn by Graphviz, and its dot is not installed",
            f"install it (Debian, Ubuntu: apt-get install graphviz; macOS: brew install graphviz), or {_OTHERWISE}",
        )
    try:
        drawn = subprocess.run([tool, "-Tsvg"], input=graph.encode(), capture_output=True, timeout=_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"Graphviz's dot could not draw the plan: {error}", f"draw one view, or {_OTHERWISE}"
        ) from None
    if drawn.returncode:
        told = drawn.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {drawn.returncode}"]
        raise InputError(f"Graphviz's dot could not draw the plan: {told[0]}", f"draw one view, or {_OTHERWISE}")
    text = drawn.stdout.decode()
    return text[text.index("<svg") :]  # without the DOCTYPE, which names a file elsewhere
