"""The catalog as JSON text: what a store keeps of it.

In: the catalog's JSON value, or its bytes. Out: the other. Always: the bytes are those of canonical JSON. Each entry is
encoded once, and bytes that were read or written last are not parsed again, so a statement costs hardly more with a
thousand views than with one. Lists are the caller's own; nobody changes the entries in them.
"""

from __future__ import annotations

import json
from itertools import islice

from viewkeeper.model.memo import OnceForEachOf


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
        self._last = (written, _copied(catalog))
        return written

    def read(self, written: bytes) -> dict:
        known, catalog = self._last
        if known != written:
            catalog = json.loads(written)
            if not isinstance(catalog, dict):
                raise TypeError("the catalog is no object of JSON")
            self._last = (written, catalog)
        return _copied(catalog)


def _copied(catalog: dict) -> dict:
    """The same entries in lists of their own."""
    return {name: list(value) if isinstance(value, list) else value for name, value in catalog.items()}
