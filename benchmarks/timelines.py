"""Timelines: pictures of what happened second by second while managers and nodes came, went and died.

In: figures of a question, and a function that makes an empty picture. Out: the picture. Always: as in `plots`, from the
figures alone, with units on both axes and the moments of what was done marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

New = Callable[..., "tuple[Figure, list[Axes]]"]
_BLUE, _RED, _ORANGE = "#1b6ca8", "#c0504d", "#e39b5a"


def manager_kills(figures: Mapping, new: New) -> Figure:
    """Changes per second with kills and without."""
    picture, (axes,) = new("View managers killed under load", figures, 8, 4.2)
    labels = {"none": "none killed", "killed": f"one of four killed every {figures['kill_seconds']:g} s"}
    for (kind, label), colour in zip(labels.items(), (_BLUE, _RED), strict=True):
        told = f"{label}: {figures[kind]['changes_per_second']:,} a second"
        _line(axes, figures[kind]["per_second"], told, colour)
    for number, moment in enumerate(figures["killed"]["killed_at"]):
        axes.axvline(moment, color=_RED, linestyle=":", linewidth=1, label="" if number else "a manager is killed")
    axes.set_title(f"killed / none: {figures['ratio']:.2f}; views right at the end", fontsize=10, loc="left")
    return _finished(picture, axes, "changes per second", "seconds of each kind")


def manager_scaling(figures: Mapping, new: New) -> Figure:
    """Changes per second while managers are added and withdrawn."""
    picture, (axes,) = new("View managers added and withdrawn under load", figures, 8, 4.2)
    _line(axes, [value for turn in figures["turns"] for value in turn["per_second"]], "committed in that second", _BLUE)
    for place, turn in enumerate(figures["turns"]):
        start, stop = place * figures["part_seconds"], (place + 1) * figures["part_seconds"]
        mean, label = turn["changes_per_second"], "mean" if not place else ""
        axes.hlines(mean, start, stop, color=_ORANGE, linewidth=2, label=label)
        _mark(axes, start, f"{turn['view_managers']} manager{'s' * (turn['view_managers'] > 1)}\n{mean:,}")
    read = figures["snapshots"]
    told = f"{read['reads']:,} snapshots of {read['epochs']:,} epochs read meanwhile, {read['wrong']} wrong"
    axes.set_title(told, fontsize=10, loc="left", pad=10)
    return _finished(picture, axes, "changes per second", "seconds")


def node_changes(figures: Mapping, new: New) -> Figure:
    """Writes, commits and lag while a node comes and goes."""
    picture, (rates, lags) = new("A node added and removed under load", figures, 11, 4.4, panels=2)
    parts, seconds = figures["parts"], figures["part_seconds"]
    for name, label, colour in (("written", "written", _ORANGE), ("committed", "committed to the views", _BLUE)):
        _line(rates, [value for part in parts for value in part[name]], label, colour)
    for place, part in enumerate(parts):
        looks = part["lag_changes"]
        at = [(place + number / len(looks)) * seconds for number in range(len(looks))]
        lags.plot(at, looks, color=_RED, linewidth=1.2, label="" if place else "changes not yet in the views")
        for axes in (rates, lags):
            _mark(axes, place * seconds, part["part"])
    pauses = ", ".join(f"{part['longest_pause_seconds']:.1f}" for part in parts)
    rates.set_title(f"longest without a commit, in turn: {pauses} s", fontsize=9.5, loc="left", pad=10)
    lags.set_title("how far the views are behind", fontsize=9.5, loc="left", pad=10)
    _finished(picture, rates, "changes per second", "seconds")
    lags.set_ylabel("changes (lower is better)")
    lags.set_xlabel("seconds")
    lags.set_ylim(0, 1.15 * lags.get_ylim()[1])
    lags.grid(alpha=0.3)
    return picture


def _line(axes: Axes, values: Sequence[float], label: str, colour: str) -> None:
    axes.plot([place + 0.5 for place in range(len(values))], values, color=colour, label=label, linewidth=1.5)


def _mark(axes: Axes, moment: float, text: str) -> None:
    """A moment at which something was done; the text stands at the top, beside its line."""
    axes.axvline(moment, color="#555555", linestyle=":", linewidth=1)
    axes.text(moment, 1.0, f" {text}", transform=axes.get_xaxis_transform(), va="top", fontsize=8.5)


def _finished(picture: Figure, axes: Axes, unit: str, time: str) -> Figure:
    axes.set_ylabel(f"{unit} (higher is better)")
    axes.set_xlabel(time)
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    picture.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return picture
