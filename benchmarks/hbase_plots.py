"""Pictures of the questions over HBase, each after the figure of paper 1 that it answers.

In: figures of a question, and a function that makes an empty picture. Out: the picture. Always: as in `plots`, from the
figures alone, with units on both axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

New = Callable[..., "tuple[Figure, list[Axes]]"]
_BLUE, _RED, _ORANGE, _GREY = "#1b6ca8", "#c0504d", "#e39b5a", "#9aa5b1"
_FIGURES = {"6": "selection", "7": "aggregates and INDEX", "8": "join"}


def views(figures: Mapping, new: New) -> Figure:
    """Changes per second by managers, a panel for each of the paper's figures."""
    picture, panels = new("Views over HBase, by view managers", figures, 12, 4.4, panels=3)
    for axes, (number, title) in zip(panels, _FIGURES.items(), strict=True):
        for name, found in figures["figures"][number].items():
            axes.plot(range(len(found)), list(found.values()), marker="o", label=name)
            axes.set_xticks(range(len(found)), list(found), fontsize=8.5)
        axes.set_title(f"figure {number}: {title}", fontsize=10)
        axes.legend(fontsize=8, frameon=False)
        _finish(axes, "view managers on Spark", "changes per second")
    return picture


def scale(figures: Mapping, new: New) -> Figure:
    """Region servers, skew and many views."""
    picture, (servers, skew, many) = new("Region servers, skew and many views over HBase", figures, 12, 4.4, panels=3)
    turns = figures["servers"]
    labels = [str(turn["servers"]) for turn in turns]
    for name in turns[0]["changes_per_second"]:
        servers.plot(range(len(turns)), [turn["changes_per_second"][name] for turn in turns], marker="o", label=name)
    writes = [turn["writes_per_second"] for turn in turns]
    servers.plot(range(len(turns)), writes, marker="s", linestyle=":", color=_GREY, label="base writes")
    servers.set_xticks(range(len(turns)), labels)
    servers.set_title("figure 10: region servers, in the order of turns", fontsize=10)
    for (name, found), colour in zip(figures["skew"].items(), (_BLUE, _RED), strict=True):
        seconds = [one["maintain_seconds"] for one in found.values()]
        skew.plot(range(len(found)), seconds, marker="o", color=colour, label=f"{name}, view")
        written = [one["write_seconds"] for one in found.values()]
        skew.plot(range(len(found)), written, marker="s", linestyle=":", color=colour, label=f"{name}, base")
        skew.set_xticks(range(len(found)), list(found), fontsize=8.5)
    skew.set_title("figure 11: uniform and zipf", fontsize=10)
    counts = figures["views"]
    many.plot([one["views"] for one in counts], [one["changes_per_second"] for one in counts], marker="o", color=_BLUE)
    many.set_title("figure 13: views over one table", fontsize=10)
    _finish(servers, "region servers", "changes per second")
    _finish(skew, "view managers on Spark", "seconds for a turn's changes", better="lower")
    _finish(many, "views", "changes per second")
    for axes in (servers, skew):
        axes.legend(fontsize=8, frameon=False)
    return picture


def reads(figures: Mapping, new: New) -> Figure:
    """Milliseconds until a client has a count, by the table's size."""
    picture, (axes,) = new("A count of one group, by the size of the base table (figure 9)", figures, 8, 4.6)
    sizes = figures["sizes"]
    rows = [one["rows"] for one in sizes]
    for name, unit, label, colour in (
        ("client_scan_seconds", 1000, "scan by a client", _RED),
        ("server_scan_seconds", 1000, "scan with a filter in HBase's servers", _ORANGE),
        ("view_get_ms_p50", 1, "view.get, p50", _BLUE),
        ("plain_get_ms_p50", 1, "plain get of a base row, p50", _GREY),
    ):
        axes.plot(rows, [one[name] * unit for one in sizes], marker="o", color=colour, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(rows, [f"{count:,}" for count in rows])
    axes.minorticks_off()
    axes.set_xlabel("rows of the base table")
    axes.set_ylabel("milliseconds (log scale, lower is better)")
    axes.grid(alpha=0.3)
    picture.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return picture


def writes(figures: Mapping, new: New) -> Figure:
    """Puts per second without maintenance and with it."""
    picture, panels = new("Base writes without and with view maintenance (figure 12)", figures, 11, 4.2, panels=3)
    for axes, (kind, one) in zip(panels, figures["kinds"].items(), strict=True):
        values = [one[f"puts_per_second_{kind}"] for kind in ("without", "with")]
        bars = axes.bar(("without", "with"), values, color=(_GREY, _BLUE), width=0.6)
        axes.bar_label(bars, [f"{value:,}" for value in values], fontsize=9, padding=2)
        axes.set_title(f"{kind}: {one['ratio']:.2f} times", fontsize=10)
        _finish(axes, "view maintenance", "puts per second")
    return picture


def crash(figures: Mapping, new: New) -> Figure:
    """Rows written and committed in each second, with the kill marked."""
    picture, panels = new("Killed under load (figure 14)", figures, 11, 4.4, panels=2)
    for axes, (kind, part) in zip(panels, figures["parts"].items(), strict=True):
        for name, label, colour in (("written", "written", _ORANGE), ("committed", "committed to the view", _BLUE)):
            places = [place + 0.5 for place in range(len(part[name]))]
            axes.plot(places, part[name], color=colour, label=label, linewidth=1.5)
        axes.axvline(part["killed_at"], color=_RED, linestyle=":", label="kill -9")
        pause = f"longest without a commit {part['longest_commit_pause_seconds']} s"
        axes.set_title(f"{kind}: {pause}", fontsize=10)
        _finish(axes, "seconds", "rows per second")
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return picture


def speed(figures: Mapping, new: New) -> Figure:
    """Changes per second of both systems, best of their managers."""
    picture, (axes,) = new("Over the same HBase: epochs and the papers' algorithm", figures, 8, 4.2)
    names = list(figures["cases"])
    for place, (system, colour) in enumerate((("per_operation", _RED), ("pipeline", _BLUE))):
        values = [max(figures["cases"][name][system].values()) for name in names]
        places = [number + (place - 0.5) * 0.38 for number in range(len(names))]
        bars = axes.bar(places, values, 0.36, color=colour, label=system.replace("_", " "))
        axes.bar_label(bars, [f"{value:,}" for value in values], fontsize=9, padding=2)
    axes.set_xticks(range(len(names)), [f"{name}\n{figures['cases'][name]['ratio']} times" for name in names])
    axes.legend(fontsize=9, frameon=False)
    _finish(axes, "", "changes per second")
    return picture


def _finish(axes: Axes, across: str, unit: str, *, better: str = "higher") -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(f"{unit} ({better} is better)")
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")
    axes.grid(alpha=0.3)
