"""The ratchet of the house: `tests/golden/house.toml` holds its figures, and they only get better.

In: the figures of today and those of the file. Out: which got worse and which got better; `make house` writes the file.
Always: a figure that got worse is written only when that is asked for, by `make house WORSE=yes`.

A merge that meets a conflict in the file takes either side and runs the command.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence

from tests.support.house import MEDIAN_AIM, MEDIANS, Figures, figures
from tests.support.source_tree import ROOT

GOLDEN = ROOT / "tests" / "golden" / "house.toml"
WRITE = "make house"
WRITE_WORSE = "make house WORSE=yes"
HEADER = f"# The figures of the house, written by `{WRITE}`. tests/support/house.py says what each of them counts.\n"

# Section -> how a figure in it gets better.
WAYS: dict[str, str] = {
    "files": "put the code into a file that is there, or merge two that are read together",
    "forbidden words": "use the word that tests/support/words.py has for it",
    "lines": "find what the package does twice, or what a library does; then inline, merge or delete",
    MEDIANS: "merge files that have one idea between them",
    "modules of one basename": "name the module after what sets it apart from the others",
    "small private functions called once": "inline the function, or give it a body that is worth a name",
    "touched files": "do the work where the data is, or merge the files on the way "
    "(`python -m tests.support.touched_files` lists them)",
}


def changed(before: Figures, today: Figures) -> Iterator[tuple[str, str]]:
    """The section and the name of each figure that is not what it was; a name may be new, or gone."""
    for section in sorted(before.keys() | today.keys()):
        old, new = before.get(section, {}), today.get(section, {})
        yield from ((section, name) for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name))


def is_worse(section: str, before: int | None, today: int | None) -> bool:
    """Less is better, and nothing is best; but for medians, where more is better, and a new one must have reached the aim."""
    if section != MEDIANS:
        return (today or 0) > (before or 0)
    return today is not None and today < (MEDIAN_AIM if before is None else before)


def worse(before: Figures, today: Figures) -> list[str]:
    return [_line(before, today, *at) for at in changed(before, today) if is_worse(*_figures_at(before, today, *at))]


def better(before: Figures, today: Figures) -> list[str]:
    return [
        _line(before, today, *at) for at in changed(before, today) if not is_worse(*_figures_at(before, today, *at))
    ]


def without_worse(before: Figures, today: Figures) -> Figures:
    """Today's figures, but for those that got worse, which are as before."""
    kept = {section: dict(found) for section, found in today.items()}
    for section, name in changed(before, today):
        if is_worse(*_figures_at(before, today, section, name)):
            del kept[section][name]
            if name in before.get(section, {}):
                kept[section][name] = before[section][name]
    return kept


def read_golden() -> Figures:
    return tomllib.loads(GOLDEN.read_text(encoding="utf-8"))


def as_text(found: Figures) -> str:
    lines = [HEADER]
    for section in sorted(found):
        lines += ["\n", f'["{section}"]\n']
        lines += (f'"{name}" = {found[section][name]}\n' for name in sorted(found[section]))
    return "".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Write the file; the exit code is 1 if figures got worse and `--worse` does not ask for them."""
    before, today = read_golden(), figures()
    refused = [] if "--worse" in arguments else worse(before, today)
    kept = without_worse(before, today) if refused else today
    GOLDEN.write_text(as_text(kept), encoding="utf-8")
    print("written:", *(worse(before, kept) + better(before, kept) or ["nothing is new"]), sep="\n  ")
    if refused:
        print(f"worse, and not written (`{WRITE_WORSE}` does, where it buys something):", *refused, sep="\n  ")
    return 1 if refused else 0


def _figures_at(before: Figures, today: Figures, section: str, name: str) -> tuple[str, int | None, int | None]:
    return section, before.get(section, {}).get(name), today.get(section, {}).get(name)


def _line(before: Figures, today: Figures, section: str, name: str) -> str:
    _, old, new = _figures_at(before, today, section, name)
    return f"{section}, {name}: {old or 0} before, {new or 0} now"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
