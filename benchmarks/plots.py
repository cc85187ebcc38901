"""Plots: one picture for each question, from its figures alone.

In: a result file. Out: an SVG beside it, or None when there is nothing to draw or nothing to draw with. Always: matplotlib
is imported only here and only when a picture is drawn; the same figures make the same bytes; title, axes and units are
named, and the sizes stand under the title.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import hbase_plots, timelines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"pipeline": "#1b6ca8", "each": "#c0504d", "batched": "#e39b5a", "fused": "#f0c987"}
_GREYS = ("#9aa5b1", "#1b6ca8")
_SYSTEMS = {
    "pipeline": "ViewKeeper's pipeline",
    "each": "per operation, each",
    "batched": "per operation, batched",
    "fused": "per operation, fused",
}


def draw(file: Path, suffix: str = ".svg") -> Path | None:
    """The picture of a result."""
    figures = json.loads(file.read_text())
    drawing = _DRAWINGS.get(figures["question"])
    if drawing is None or importlib.util.find_spec("matplotlib") is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "viewkeeper",
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
        }
    )
    picture = drawing(figures)
    target = file.with_suffix(suffix)
    picture.savefig(target, metadata={"Date": None} if suffix == ".svg" else None, dpi=110, facecolor="white")
    return target


def _new(title: str, figures: Mapping, width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib import pyplot

    picture, axes = pyplot.subplots(1, panels, figsize=(width, height), layout="constrained", squeeze=False)
    picture.suptitle(f"{title}\n\n", fontsize=12, fontweight="bold")  # the empty lines hold the sizes
    picture.text(0.5, 0.985 - 0.3 / height, _sizes(figures), ha="center", va="top", fontsize=8.5, color="#555555")
    return picture, list(axes[0])


def _sizes(figures: Mapping) -> str:
    parts = [f"{figures[name]:,} {name}" for name in ("rows", "changes") if name in figures]
    parts += [f"backlog of {figures['backlog']:,} changes"] if "backlog" in figures else []
    machine = figures.get("machine", {})
    parts += [f"{figures['view_managers']} view managers"] if "view_managers" in figures else []
    parts += [f"{machine.get('cores')} cores", f"commit {figures.get('commit', 'unknown')}"]
    return " · ".join(parts) + (" · QUICK RUN, too small to judge by" if figures.get("quick") else "")


def _single_table(figures: Mapping) -> Figure:
    """Throughput of every system, case by case."""
    cases = figures.get("cases", {"V1, uniform": figures})
    rows = [(case, system) for case in cases for system in _SYSTEMS if _seconds(cases[case], system)]
    picture, (axes,) = _new("Changes applied per second", figures, 9, 1.6 + 0.27 * len(rows) + 0.18 * len(cases))
    place, ticks, names = 0.0, [], []
    for case, of_case in cases.items():
        systems = [system for of, system in rows if of == case]
        ticks.append(place + (len(systems) - 1) / 2)
        names.append(case.replace(", ", "\n"))
        for system in systems:
            speed = of_case["changes"] / _seconds(of_case, system)
            axes.barh(place, speed / 1000, height=0.9, color=_COLOURS[system])
            ratio = f"   {of_case[f'ratio_{system}']:.1f}× the pipeline's time" if f"ratio_{system}" in of_case else ""
            axes.text(speed / 1000, place, f" {speed / 1000:,.0f}{ratio}", va="center", fontsize=8.5)
            place += 1
        place += 0.7
    axes.set_yticks(ticks, names)
    axes.invert_yaxis()
    axes.set_xlabel("thousand changes per second (longer is better)")
    axes.margins(x=0.22)
    axes.grid(axis="x", alpha=0.3)
    seen = [system for system in _SYSTEMS if any(system == other for _, other in rows)]
    handles = [axes.barh([0], [0], color=_COLOURS[system], label=_SYSTEMS[system]) for system in seen]
    picture.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return picture


def _join(figures: Mapping) -> Figure:
    return _single_table({**figures, "cases": {"V3, uniform": figures}})


def _join_growth(figures: Mapping) -> Figure:
    """Microseconds of a row changed by size, for the same changes and for changes everywhere."""
    picture, (axes,) = _new("A changed row of a join's tables, by the size of R", figures, 7.5, 4.4)
    sizes = figures["sizes"]
    for kind, label, colour in (
        ("s", f"of S, {figures['matches']} matches", _COLOURS["each"]),
        ("r", "of R, one match", _COLOURS["pipeline"]),
        ("bare", "a bare LMDB record", _COLOURS["batched"]),
    ):
        for form, style in (("here", "-"), ("everywhere", ":")):
            values = [figures["cases"][f"{rows}, {form}"][f"{kind}_us"] for rows in sizes]
            axes.plot(sizes, values, style, marker="o", color=colour, label=f"{label}, {form}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_numbers(axes)
    axes.set_xticks(sizes, [f"{rows:,}" for rows in sizes])
    axes.set_xlabel("rows of R")
    axes.set_ylabel("microseconds per row (log scale, lower is better)")
    axes.grid(alpha=0.3)
    picture.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return picture


def _seconds(case: Mapping, system: str) -> float:
    name = "pipeline_seconds" if system == "pipeline" else f"per_operation_{system}_seconds"
    return case[name]["median"] if name in case else 0.0


def _refresh(figures: Mapping) -> Figure:
    """Seconds of each refresh."""
    if "scale" in figures:
        title = f"TPC-H at scale {figures['scale']}: refreshes of {len(figures['queries'])} views"
    else:
        title = f"A refresh after every {figures['changes_per_refresh']:,} changes"
    picture, (axes,) = _new(title, figures, 7.5, 4.2)
    for name, label, colour in (
        ("recompute_seconds", "recomputation by Spark", _COLOURS["each"]),
        ("refresh_seconds", "ViewKeeper's pipeline", _COLOURS["pipeline"]),
    ):
        runs, middle = figures[name]["runs"], figures[name]["median"]
        axes.plot(range(1, len(runs) + 1), runs, marker="o", color=colour, label=f"{label}: median {middle:.3g} s")
    axes.set_yscale("log")
    _plain_numbers(axes)
    axes.set_xlabel("refresh")
    axes.set_xticks(range(1, len(figures["refresh_seconds"]["runs"]) + 1))
    axes.set_ylabel("seconds (log scale, lower is better)")
    axes.grid(alpha=0.3, which="both")
    axes.set_title(f"the pipeline is {figures['ratio']:.1f}× faster", fontsize=10, loc="left")
    picture.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return picture


def _reads(figures: Mapping) -> Figure:
    """Microseconds of a get."""
    picture, (axes,) = _new("One get by key", figures, 7.5, 3.6)
    names = ("view", "bare_view", "table", "bare_table")
    labels = ("view.get (snapshot)", "bare LMDB get,\nsame record", "table.get", "bare LMDB get,\nsame row")
    values = [figures[f"{name}_get_ns"]["median"] / 1000 for name in names]
    axes.barh(range(4), values, color=[_COLOURS["pipeline"], _GREYS[0]] * 2, height=0.7)
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        ratio = figures.get(f"ratio_{name}_to_bare")
        axes.text(
            value, place, f" {value:.1f} µs" + (f"   {ratio:.2f}× bare" if ratio else ""), va="center", fontsize=9
        )
    axes.set_yticks(range(4), labels)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlabel("microseconds per get, median of rounds (shorter is better)")
    axes.grid(axis="x", alpha=0.3)
    return picture


def _put_latency(figures: Mapping) -> Figure:
    """p50 and p99, stopped and running."""
    picture, panels = _new("One put, with the pipeline stopped and running", figures, 8, 4.2, panels=2)
    for axes, sync, title in zip(panels, ("synced", "sync_off"), ("synced", "?sync=off"), strict=True):
        part = figures[sync]
        series = [[part[f"{state}_{share}_us"] for share in ("p50", "p99")] for state in ("stopped", "running")]
        _grouped_bars(axes, ("p50", "p99"), series, ("pipeline stopped", "pipeline running"), "{:,.0f}")
        axes.set_yscale("log")
        _plain_numbers(axes)
        axes.margins(y=0.15)
        axes.set_ylabel("microseconds (log scale, lower is better)")
        busy = f"pipeline at work {part['busy_share']:.0%} of the time"
        axes.set_title(f"{title}: p50 ×{part['ratio_p50']:.2f}, p99 ×{part['ratio_p99']:.2f}\n{busy}", fontsize=9.5)
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return picture


def _memory(figures: Mapping) -> Figure:
    """Peaks by kind of process."""
    picture, panels = _new("Peak memory of the pipeline by backlog", figures, 10, 4.2, panels=3)
    kinds = ("driver", "jvm", "workers", "all")
    titles = {"private": "private", "pss": "PSS, LMDB's pages once", "rss": "RSS, LMDB's pages\nin every process"}
    for axes, (measure, title) in zip(panels, titles.items(), strict=True):
        series = [[peaks[f"{measure}_mib"][kind] for kind in kinds] for peaks in figures["backlogs"].values()]
        labels = [f"backlog of {int(changes):,} changes" for changes in figures["backlogs"]]
        _grouped_bars(axes, kinds, series, labels, "{:,.0f}", size=7.5)
        axes.set_title(f"{title} (all: ×{figures['ratios'].get(f'{measure} all', 0):.2f})", fontsize=9.5)
        axes.set_ylabel("MiB")
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return picture


def _epoch_steps(figures: Mapping) -> Figure:
    """CPU seconds of each word of the profile."""
    from matplotlib import colormaps

    cases = figures["cases"]
    picture, (axes,) = _new("Where the CPU time of an epoch goes", figures, 9, 1.9 + 0.55 * len(cases))
    left = [0.0] * len(cases)
    for number, word in enumerate(next(iter(cases.values()))["profile"]):
        values = [max(0.0, case["profile"][word]["cpu"]) for case in cases.values()]
        axes.barh(range(len(cases)), values, left=left, color=colormaps["tab20"](number), label=word, height=0.7)
        left = [start + value for start, value in zip(left, values, strict=True)]
    for place, (total, case) in enumerate(zip(left, cases.values(), strict=True)):
        axes.text(total, place, f" {total:.2f} s CPU, {case['seconds']:.2f} s wall", va="center", fontsize=8.5)
    axes.set_yticks(range(len(cases)), list(cases))
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlabel("CPU seconds, all processes together (shorter is better)")
    axes.grid(axis="x", alpha=0.3)
    picture.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8.5)
    return picture


def _dashboards(figures: Mapping) -> Figure:
    """Throughput and stored bytes by the number of views."""
    unsized = {name: value for name, value in figures.items() if name != "rows"}  # the legend has them
    picture, panels = _new("Many views over one table, and over one join", unsized, 12, 4.6, panels=3)
    sources = {"table": ("pipeline", "rows", "changes_per_size"), "join": ("each", "join_rows", "join_changes")}
    measures = {
        "changes_per_cpu_second": ("changes for each CPU second", "higher", 1),
        "changes_per_second": ("changes for each second", "higher", 1),
        "view_bytes": ("MiB of the views' records", "lower", 2**20),
    }
    for axes, (measure, (title, better, unit)) in zip(panels, measures.items(), strict=True):
        for source, (colour, rows, changes) in sources.items():
            for way, style in (("optimized", "-"), ("unoptimized", ":")):
                counts = figures["sweep"][source][way]
                label = f"{source} of {figures[rows]:,} rows, {figures[changes]:,} changes, {way}"
                values = [one[measure] / unit for one in counts.values()]
                axes.plot([int(n) for n in counts], values, style, marker="o", color=_COLOURS[colour], label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        _plain_numbers(axes)
        axes.minorticks_off()
        axes.set_xticks([int(count) for count in counts], list(counts))
        axes.set_xlabel("views")
        axes.set_ylabel(f"log scale, {better} is better", fontsize=9)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return picture


def _manager_skew(figures: Mapping) -> Figure:
    """The busiest manager's share, with shards whole and divided."""
    title = f"{figures['hot_share']:.0%} of the changes under one first key part"
    picture, panels = _new(title, figures, 12, 4.4, panels=2)
    names = list(figures["views"])
    for axes, (measure, unit) in zip(panels, (("rows", "rows of input"), ("cpu", "CPU seconds")), strict=True):
        series = [[figures["views"][name][state][measure] for name in names] for state in ("whole", "divided")]
        wrapped = [name.replace(" by ", "\nby ") for name in names]
        _grouped_bars(axes, wrapped, series, ("shards whole", "hot shards divided, by what was measured"), "{:.1f}")
        axes.axhline(1, color="#555555", linestyle=":", linewidth=1)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_ylabel("busiest manager / mean (1 is even)")
        axes.set_title(unit, fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return picture


def _grouped_bars(
    axes: Axes,
    groups: Sequence[str],
    series: Sequence[Sequence[float]],
    labels: Sequence[str],
    form: str,
    size: float = 9,
) -> None:
    """Bars side by side in each group, with their values above them."""
    width = 0.8 / len(series)
    for number, (values, label) in enumerate(zip(series, labels, strict=True)):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(places, values, width * 0.95, color=_GREYS[number % 2], label=label)
        axes.bar_label(bars, [form.format(value) for value in values], fontsize=size, padding=2)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="y", alpha=0.3)


def _plain_numbers(axes: Axes) -> None:
    """Numbers on a log scale as people write them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


_DRAWINGS: dict[str, Callable[[Mapping], Figure]] = {
    "first_speed": _single_table,
    "single_table": _single_table,
    "join": _join,
    "join_growth": _join_growth,
    "tpch": _refresh,
    "refresh": _refresh,
    "reads": _reads,
    "put_latency": _put_latency,
    "memory": _memory,
    "epoch_steps": _epoch_steps,
    "dashboards": _dashboards,
    "manager_kills": lambda figures: timelines.manager_kills(figures, _new),
    "manager_scaling": lambda figures: timelines.manager_scaling(figures, _new),
    "manager_skew": _manager_skew,
    "node_changes": lambda figures: timelines.node_changes(figures, _new),
    "hbase_views": lambda figures: hbase_plots.views(figures, _new),
    "hbase_scale": lambda figures: hbase_plots.scale(figures, _new),
    "hbase_reads": lambda figures: hbase_plots.reads(figures, _new),
    "hbase_writes": lambda figures: hbase_plots.writes(figures, _new),
    "hbase_crash": lambda figures: hbase_plots.crash(figures, _new),
    "hbase_speed": lambda figures: hbase_plots.speed(figures, _new),
}
