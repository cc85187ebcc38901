"""The project's texts as data for the style tests: Markdown pages, and what source files say in docstrings and comments.

In: a text. Out: its links and headings, and what it names of the project: tests, files, folders, modules with what they
define, members of classes, targets of make. Always: what stands in a code block is no link and no heading.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.source_tree import PACKAGE, ROOT, modules, nodes_of, parsed, text_files

_FENCE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
_FILE = re.compile(r"(?<![\w/.*-])((?:[\w.-]+/)*[\w-]+\.(?:py|sh|thrift))\b")
_COMMENT = re.compile(r"(?:^|\s)#:? (.*)$", flags=re.MULTILINE)
_PATH = re.compile(r"(?<![\w/.*:-])((?:src|tests|docs|benchmarks|scripts)/(?!decisions/N+-)[\w./-]*\w)(?![\w*<{…])")
_ROOM = re.compile(r"`((?:\w+/)+\w+)/?`")
_DOTTED = re.compile(r"(?<![\w/.:-])viewkeeper((?:\.\w+)+)")
_IMPORT = re.compile(r"^ *from viewkeeper((?:\.\w+)*) import (\([^)]*\)|[^(\n]*)", flags=re.MULTILINE)
_MEMBER = re.compile(r"`([A-Z]\w+)\.(\w+)(?![\w*…])")
_TARGET = re.compile(r"`(?:[A-Z_]+=\S+ )*make ([a-z][a-z-]*)")
_TEST = re.compile(r"(tests/[\w/.-]+\.py)(?:::((?:\w+::)?\w+))?")


def pages() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


def documents() -> list[Path]:
    """Files that tell people about the project: pages, and code with its docstrings and comments."""
    return [path for path in text_files() if path.suffix in (".md", ".py", ".sh", ".toml") or path.name == "Makefile"]


def documentation_in(path: Path) -> str:
    """What a file tells: of Python, the docstrings and comments; of any other, all of it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    return "\n".join([*_docstrings(parsed(text)), *_COMMENT.findall(text)])


def missing_things(path: Path, text: str) -> list[str]:
    """All that a text names of the project and that is not there, as it names it."""
    return [
        *missing_files(text, path.parent),
        *missing_paths(text),
        *missing_tests(text),
        *missing_names(text),
        *missing_members(text),
        *missing_targets(text),
    ]


def missing_paths(text: str) -> list[str]:
    """Paths from the root that do not exist, and folders or modules in a package that do not."""
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    rooms = [room for room in _ROOM.findall(text) if room.split("/")[0] in packages]
    gone = [room for room in rooms if not (PACKAGE / room).exists() and not (PACKAGE / f"{room}.py").exists()]
    return gone + [path for path in _PATH.findall(text) if not (ROOT / path).exists()]


def missing_names(text: str) -> list[str]:
    """Dotted names below `viewkeeper` that lead to no module and to nothing that a module defines."""
    return [f"viewkeeper{name}" for name in _DOTTED.findall(text) if not _is_defined(name.split(".")[1:])]


def missing_imports(text: str) -> list[str]:
    """What imports from `viewkeeper` that is not there, in scripts within strings too, which no type checker reads."""
    return [
        f"viewkeeper{module}.{name}"
        for module, names in _IMPORT.findall(text)
        for name in re.findall(r"\w+", re.sub(r"#.*| as \w+", "", names))
        if not _is_defined([*module.split(".")[1:], name])
    ]


def missing_members(text: str) -> list[str]:
    """Each `Class.member` where the package has the class and the class does not have the member."""
    members = _members()
    return [
        f"{owner}.{name}" for owner, name in _MEMBER.findall(text) if owner in members and name not in members[owner]
    ]


def missing_targets(text: str) -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))
    return [f"make {target}" for target in _TARGET.findall(text) if target not in targets]


def prose(page: str) -> str:
    return _FENCE.sub("", page)


def headings(page: str) -> list[str]:
    return [match.strip() for match in re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)]


def anchors(page: str) -> set[str]:
    """The fragment that each heading gets on the usual hosts: lower case, no punctuation, dashes for spaces."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


def dead_links(path: Path, page: str) -> list[str]:
    """Relative links whose file or heading does not exist."""
    return [link for link in _LINK.findall(prose(page)) if not _leads_somewhere(path, page, link)]


def named_tests(page: str) -> list[tuple[str, str]]:
    """Every `tests/….py::test_name` of a page, as (file, name); the name is empty where only a file is named."""
    return _TEST.findall(page)


def missing_tests(page: str) -> list[str]:
    return [f"{path}::{name}" for path, name in named_tests(page) if not _test_exists(path, name)]


def missing_files(page: str, folder: Path = ROOT) -> list[str]:
    """The files of code that a page in `folder` names and that do not exist: by a path from there, from the root or in
    the package, or by name."""
    known = _file_names()
    return [name for name in _FILE.findall(page) if name not in known and not (folder / name).exists()]


def _docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    yield ast.get_docstring(node, clean=False) or ""
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(inner)


@cache
def _file_names() -> frozenset[str]:
    paths = [path.relative_to(ROOT).as_posix() for path in text_files()]
    package = [path.removeprefix("src/") for path in paths]
    inside = [path.removeprefix("viewkeeper/") for path in package]
    return frozenset((*paths, *package, *inside, *(path.rpartition("/")[2] for path in paths)))


@cache
def _sources() -> dict[str, str]:
    return {module.name: module.source for module in modules()}


def _is_defined(parts: list[str]) -> bool:
    """Whether names in turn lead to a module, and then to a definition in it, and to a member of that."""
    sources = _sources()
    depth = max(at for at in range(len(parts) + 1) if ".".join(["viewkeeper", *parts[:at]]) in sources)
    rest, source = parts[depth:], sources[".".join(["viewkeeper", *parts[:depth]])]
    body: list[ast.stmt] = parsed(source).body
    for name in rest:
        found = [node for node in body if name in _names_of(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def _names_of(node: ast.stmt) -> set[str]:
    """What a statement gives a name to; the strings in an assignment to `__all__` or of lazy exports are names too."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name for alias in names}
    parts = list(ast.walk(node))
    strings = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    imported = {part.asname or part.name for part in parts if isinstance(part, ast.alias)}
    return {part.id for part in parts if isinstance(part, ast.Name)} | imported | strings


@cache
def _members() -> dict[str, set[str]]:
    """The members of each class of the package, with those of its bases; classes of one name count as one."""
    found: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for source in _sources().values():
        for node in nodes_of(source):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(_members_of(node))
                bases.setdefault(node.name, set()).update(ast.unparse(base).split("[")[0] for base in node.bases)
    return {
        name: own.union(*(found.get(base, set()) for base in _ancestors(name, bases))) for name, own in found.items()
    }


def _members_of(owner: ast.ClassDef) -> set[str]:
    """What the body of a class defines, and the attributes that its methods set."""
    set_ones = (
        part.attr for part in ast.walk(owner) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
    )
    return {name for node in owner.body for name in _names_of(node)}.union(set_ones)


def _ancestors(name: str, bases: dict[str, set[str]]) -> set[str]:
    reached, waiting = {name}, [name]
    while waiting:
        new = bases.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


def _leads_somewhere(path: Path, page: str, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    file, _, fragment = link.partition("#")
    target = (path.parent / file) if file else path
    if not target.exists():
        return False
    return not fragment or fragment in anchors(target.read_text(encoding="utf-8") if file else page)


def _test_exists(path: str, name: str) -> bool:
    if not (ROOT / path).is_file():
        return False
    return not name or name.split("::")[-1] in _functions_of(path)


@cache
def _functions_of(path: str) -> frozenset[str]:
    tree = parsed((ROOT / path).read_text(encoding="utf-8"))
    named = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, named))
