"""The catalog as text: what a store keeps of it.

In: the catalog's JSON value, or its bytes. Out: the other. Always: the bytes are those of canonical JSON; each entry is
encoded once, however often the catalog around it is, and bytes that were read or written last are not parsed again. So a
statement costs what it changes, and hardly more with a thousand views than with one. Nobody changes a value that was read.
"""

from __future__ import annotations

import json
from itertools import islice

from viewkeeper.model.identity import OnceForEachOf


def dump(value: object) -> str:
    """Canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class CatalogText:
    """Writes and reads the catalog of one store."""

    def __init__(self) -> None:
        self._dump_each = OnceForEachOf[object, str](dump)
        self._last: tuple[bytes, dict] = (b"{}", {})

    def write(self, catalog: dict) -> bytes:
        lists = {name: value for name, value in catalog.items() if isinstance(value, list)}
        texts = iter(self._dump_each([entry for entries in lists.values() for entry in entries]))
        joined = {name: f"[{','.join(islice(texts, len(entries)))}]" for name, entries in lists.items()}
        whole = ",".join(f"{dump(name)}:{joined.get(name) or dump(value)}" for name, value in sorted(catalog.items()))
        written = f"{{{whole}}}".encode()
        self._last = (written, catalog)
        return written

    def read(self, written: bytes) -> dict:
        known, catalog = self._last
        if known == written:
            return catalog
        found = json.loads(written)
        if not isinstance(found, dict):
            raise TypeError("the catalog is no object of JSON")
        self._last = (written, found)
        return found
