"""The figures of the house only get better: its size, its words, and the files on the way of an operation.

A figure that got worse fails, and says the way out. One that got better fails too until `make house` has written it down:
without that the next change could lose it again unseen; a test that wrote the file by itself would change the tree of
whoever runs it, and in continuous integration nobody would commit it. `make house` never writes a figure that got worse; that
takes `make house WORSE=yes`.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.support import house, ratchet
from tests.support.source_tree import PACKAGE, ROOT, modules, python_files
from tests.support.words import MODULES, NAMES, SAY, WORDS, forbidden_words

# Definitions whose name occurs once in src, tests, benchmarks and docs -> who uses them all the same.
UNMENTIONED: dict[str, str] = {
    "_close_all": "atexit calls it",
    "_end_starts": "atexit calls it",
    "_remove_folders": "atexit calls it",
    "initialOffset": "Spark calls it on a data source",
    "latestOffset": "Spark calls it on a data source",
    "streamReader": "Spark calls it on a data source",
}
TEXTS = ("src", "tests", "benchmarks", "docs")
SMALL = "def f():\n    return _g()\n\n\ndef _g():\n    return 1\n"


def test_there_are_figures_to_judge() -> None:
    assert house.figures().keys() == ratchet.WAYS.keys()
    assert [section for section, found in house.figures().items() if not found] in ([], ["modules of one basename"])


@pytest.mark.parametrize("section", ratchet.WAYS)
def test_no_figure_is_worse(section: str) -> None:
    before, today = ratchet.read_golden(), house.figures()
    worse = ratchet.worse({section: before[section]}, {section: today[section]})

    way_out = f"{ratchet.WAYS[section]}; where it buys something, `{ratchet.WRITE_WORSE}` writes it down"
    assert worse == [], "\n".join([way_out, *worse])


@pytest.mark.parametrize("section", ratchet.WAYS)
def test_what_got_better_is_written_down(section: str) -> None:
    before, today = ratchet.read_golden(), house.figures()
    better = ratchet.better({section: before[section]}, {section: today[section]})

    assert better == [], "\n".join([f"well done; `{ratchet.WRITE}` writes it down, so that it stays", *better])


def test_the_file_of_figures_is_as_the_command_writes_it() -> None:
    assert ratchet.GOLDEN.read_text(encoding="utf-8") == ratchet.as_text(ratchet.read_golden())


def test_every_definition_is_mentioned_somewhere() -> None:
    unmentioned = [name for name in unmentioned_names() if name not in UNMENTIONED]

    assert unmentioned == [], f"nobody uses these, delete them: {', '.join(unmentioned)}"


def test_every_exception_of_the_unmentioned_is_needed_and_has_a_reason() -> None:
    assert set(UNMENTIONED) <= set(unmentioned_names())
    assert all(len(reason) > 10 for reason in UNMENTIONED.values())


@cache
def unmentioned_names() -> list[str]:
    words = Counter[str]()
    for path in (
        path for folder in TEXTS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".md")
    ):
        if path != Path(__file__):
            words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return [name for module in modules() for name in house.definitions(module.source) if words[name] == 1]


def test_every_file_of_the_support_is_on_its_map_and_nothing_else() -> None:
    support = ROOT / "tests" / "support"
    named = re.findall(r"^\| `([\w/.]+)` \|", (support / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    files = [path.relative_to(support).as_posix() for path in python_files(support)]

    assert [name for name, count in Counter(named).items() if count > 1] == []
    assert sorted(named) == [name for name in files if not name.endswith("__init__.py")]


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("a.py", "(root)"),
        ("b/a.py", "b"),
        ("b/c/a.py", "b"),
        ("stores/a.py", "stores"),
        ("stores/x/y/a.py", "stores/x"),
    ],
)
def test_a_file_counts_for_its_package(path: str, package: str) -> None:
    assert house.package_of(path) == package


def test_lines_and_files_count_for_their_package_and_as_a_whole() -> None:
    sources = {"a/x.py": "1\n" * 40, "a/y.py": "1\n" * 11, "b/x.py": "1\n"}

    assert house.lines_of(sources) == {"a": 100, "b": 50, "src": 250}
    assert house.files_of(sources) == {"a": 2, "b": 1, "src": 3}


def test_the_median_file_counts_up_to_its_aim_and_init_files_do_not() -> None:
    sources = {"a/__init__.py": "", "a/x.py": "1\n" * 149, "a/y.py": "1\n" * 300, "b/x.py": "1\n" * 400}

    assert house.medians(sources) == {"a": 140, "b": 150, "src": 150}


def test_the_lists_of_words_do_not_overlap_and_name_no_forbidden_word_instead() -> None:
    assert len(SAY) == len(WORDS) + len(NAMES) + len(MODULES)
    assert [word for word, say in SAY.items() if any(forbidden_words(name) for name in re.split(r"\W+", say))] == []


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("told", ("told",)),
        ("_told_by", ("told",)),
        ("IsBehindPlaces", ("behind", "places")),
        ("retold", ()),
        ("nodestore", ("nodestore",)),
        ("a_nodestore", ()),
        ("_Held", ("Held",)),
        ("pairs", ()),
    ],
)
def test_forbidden_words_are_found_in_identifiers(identifier: str, words: tuple[str, ...]) -> None:
    assert forbidden_words(identifier) == words


def test_forbidden_words_count_as_names_only() -> None:
    source = '"""told"""\ntold = "told"  # told\nprint(told, x.told_by)\n'

    assert house.word_counts({"a/x.py": source}) == {"told": 3}
    assert house.word_counts({"staging/pairs.py": "", "staging/tail.py": "pairs = 1\n"}) == {
        "staging": 1,
        "pairs": 1,
        "tail": 1,
    }


def test_namesakes_are_found_port_and_adapters_aside() -> None:
    ports = ["ports/meta.py", "stores/x/meta.py", "stores/y/meta.py"]

    assert house.namesakes([*ports, "a/__init__.py", "b/__init__.py", "a/one.py", "b/two.py"]) == {}
    assert house.namesakes([*ports, "a/meta.py"]) == {"meta": 4}
    assert house.namesakes(ports[1:]) == {"meta": 2}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (SMALL, ["_g"]),
        (SMALL.replace("_g", "g"), []),
        (SMALL.replace("_g()\n\n", "_g() + _g()\n\n"), []),
        (SMALL.replace("return _g()\n", "return map(_g, [])\n"), []),
        (SMALL.replace("return 1", "x = 1\n    y = 2\n    return x + y"), []),
        (SMALL.replace("def _g", "@cache\ndef _g"), []),
        ("class A:\n    def f(self):\n        return self._g()\n\n    def _g(self):\n        return 1\n", ["_g"]),
    ],
)
def test_small_private_functions_called_once_are_found(source: str, found: list[str]) -> None:
    assert house.small_functions(source) == found


def test_definitions_are_functions_classes_constants_and_methods() -> None:
    source = "A, B = 1, 2\nC: int = 3\n__all__ = []\nclass D:\n    e = 1\n    def f(self): g = 1\n    def __or__(self): ...\n"

    assert list(house.definitions(source)) == ["A", "B", "C", "D", "f"]


def test_touched_files_are_those_whose_functions_run() -> None:
    touched = house.touched_files()

    assert all((PACKAGE / file).is_file() for files in touched.values() for file in files)
    assert len(touched["embedded put"]) < len(touched["embedded epoch"])


def test_a_worse_figure_and_a_better_one_are_told_apart() -> None:
    before = {"lines": {"a": 100, "b": 100, "gone": 50}, house.MEDIANS: {"a": 100, "b": 100, "gone": 50}}
    today = {"lines": {"a": 150, "b": 50, "new": 50}, house.MEDIANS: {"a": 110, "b": 90, "new": 140, "wide": 150}}

    assert ratchet.worse(before, today) == [
        "lines, a: 100 before, 150 now",
        "lines, new: 0 before, 50 now",
        "median lines of a file, b: 100 before, 90 now",
        "median lines of a file, new: 0 before, 140 now",
    ]
    assert len(ratchet.better(before, today)) == 5


def test_the_command_keeps_what_got_worse_as_it_was() -> None:
    before = {"lines": {"a": 100, "b": 100}}
    today = {"lines": {"a": 150, "b": 50, "new": 50}}

    assert ratchet.without_worse(before, today) == {"lines": {"a": 100, "b": 50}}
    assert ratchet.worse(before, ratchet.without_worse(before, today)) == []
