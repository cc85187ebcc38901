"""First speed: how much faster is an epoch than the papers' per-operation algorithm, on the same log?

In: sizes. Out: seconds of both systems and their ratio. Always: it is the first case of `single_table` by itself: V1,
uniform, with before-images; all that is promised there holds here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from benchmarks import single_table
from benchmarks.options import Options

_CASE = "V1, uniform"


def measure(options: Options) -> dict[str, Any]:
    """V1 alone."""
    figures = single_table.measure(replace(options, views=("V1",), distributions=("uniform",)), without_images=())
    return {**{name: figures[name] for name in ("rows", "seed", "view_managers")}, **figures["cases"][_CASE]}


def tell(figures: Mapping) -> Iterator[str]:
    whole = {**figures, "cases": {_CASE: figures}, "ratios": {}, "skipped": {}}
    return single_table.tell(whole)
