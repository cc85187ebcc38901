"""A file that holds one JSON array of objects is loaded as JSON lines are, and its faults have lines."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

import viewkeeper as vk

ARRAY = '\n [{"k": 2, "s": "a, [b]", "n": 5},\n  {\n"n": 7, "k": 1}\n, {"k": 3, "n": 1, "s": null}]\n'


@pytest.fixture
def db() -> vk.Database:
    database = vk.connect("memory:")
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, s STRING, n INT NOT NULL)")
    return database


def _file(folder: Path, content: bytes) -> Path:
    path = folder / "o.json"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "t.json.gz", "t.json.zip"])
@pytest.mark.parametrize("text", [ARRAY.encode(), b"\xef\xbb\xbf" + ARRAY.encode()], ids=["plain", "byte order mark"])
def test_a_json_array_of_objects_is_loaded_as_lines_are(
    db: vk.Database, tmp_path: Path, name: str, text: bytes
) -> None:
    path = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("t.json", text)
    else:
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)

    db.load("t", path)
    db.load("made", path, create=True, key="k")

    assert [(row["k"], row["n"], row["s"]) for row in db.table("t").scan()] == [
        (1, 7, None),
        (2, 5, "a, [b]"),
        (3, 1, None),
    ]
    assert [column.name for column in db.table("made").schema.columns] == ["k", "s", "n"]
    with pytest.raises(vk.BadRow, match="line 3"):
        db.load("other", _file(tmp_path, b'[{"k": 1},\n{"k": 2},\n{"k": 1}]'), create=True, key="k")


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ('[{"k": 1, "n": 1},\n 5]', "line 2: not a JSON object"),
        ('[{"k": 1, "n": 1},\n\n {"k": }]', "line 3: not JSON"),
        ('[{"k": 1, "n": 1}\n {"k": 2, "n": 1}]', "line 1: what follows the object .* is not a comma but"),
        ('[{"k": 1, "n": 1}] {"k": 2, "n": 1}', "line 1: what follows the object .* is not a comma but"),
        ('[{"k": 1, "n": 1}', "line 1: what follows the object"),
        ('[{"k": 1, "n": 1},]', "line 1: not JSON"),
        ('[\n{"k": 1, "n": 1},\n{"n": 2}]', "line 3: column k is NULL"),
        (b'[{"k": 1, "n": 1},\n{"k": 2, "s": "\xff"}]', "line 2: not UTF-8 text"),
        ('[\n{"k": 1, "n": ' + "[" * 200_000 + "]" * 200_000 + "}]", "line 2: not JSON: it is nested too deeply"),
        ('[{"k": 1, "n": 1},\n{"k": 2, "n": ' + "9" * 5_000 + "}]", "line 2: column n is INT, not"),
        ("[]", "no names in it"),
        ("[[]]", "line 1: not a JSON object"),
    ],
)
def test_a_fault_in_an_array_is_told_with_its_line_and_nothing_is_written(
    db: vk.Database, tmp_path: Path, content: str | bytes, fact: str
) -> None:
    with pytest.raises(vk.InputError, match=fact):
        db.load("t", _file(tmp_path, content.encode() if isinstance(content, str) else content))
    assert list(db.table("t").scan()) == []
