"""The class archive: Spark's Java classes, loaded and verified, kept from one start of a JVM to the next.

In: the installed Java and PySpark. Out: options for the JVM. Always: the first JVM writes the archive when it ends, and
later ones map it, which halves the cost of starting Spark. It holds classes and no data, lies in the user's cache
directory, readable only by its owner, and where it cannot be written, or does not fit, Spark starts without it.
"""

from __future__ import annotations

import hashlib
import os
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

_MAGIC = 0xF00BABA8  # of a dynamic archive; the JVM writes it last, so a file that begins with it is whole
_CLAIM_SECONDS = 600
_KEPT_MAX = 3
_QUIET = "-Xlog:cds*=off -Xlog:class+path*=off"


def archive_options(java: str) -> str:
    """Options for a JVM of `java`: to map the archive, to write it where no other process is about to, or none."""
    try:
        archive = _folder() / f"spark-{version('pyspark')}-{_fingerprint(java)}.jsa"
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if archive.parent.stat().st_mode & 0o022:  # a JVM runs what is in it
            return ""
        written = archive.with_suffix(".part")
        if _is_whole(written):
            written.replace(archive)
            _forget_others(archive)
        if archive.exists():
            return f'-XX:SharedArchiveFile="{archive}" {_QUIET}'
        if written.exists() and time.time() - written.stat().st_mtime < _CLAIM_SECONDS:
            return ""
        written.touch(mode=0o600)
        return f'-XX:ArchiveClassesAtExit="{written}" {_QUIET}'
    except (OSError, RuntimeError):  # no home, no space, no permission; or another process was faster
        return ""


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "viewkeeper"


def _fingerprint(java: str) -> str:
    """Identifies what an archive depends on: which Java, and which jars."""
    spark = find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    jars = Path(spark.origin).parent / "jars"
    parts = (Path(java).resolve(), jars.resolve())
    told = [f"{part} {part.stat().st_mtime_ns}" for part in parts]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def _is_whole(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return int.from_bytes(opened.read(4), "little") == _MAGIC
    except FileNotFoundError:
        return False


def _forget_others(archive: Path) -> None:
    """Delete old archives; a few of other Javas and Sparks are kept."""
    found = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in found[_KEPT_MAX:]:
        if file != archive:
            file.unlink()
