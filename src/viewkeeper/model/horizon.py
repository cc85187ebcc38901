"""The horizon: the few facts of the epoch record and the catalog that every read needs.

In: both records' JSON. Out: a frozen value, parsed once for each state of it. Always: written together with the record it
is taken from, so a reader that checks it before and after has seen one state of the views (R4).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from viewkeeper.errors import CorruptStore
from viewkeeper.model.plain import reading
from viewkeeper.model.positions import Positions, positions_from_json


@dataclass(frozen=True, slots=True)
class Horizon:
    """What readers may see."""

    committed: int
    floor: int
    aborted: tuple[int, ...]
    stamp: int
    positions: Positions
    filled: dict[int, int]
    stopped: frozenset[int]  # tables of nodes: a view that needs one is not readable
    catalog_version: int
    indexed_from: int | None = None  # epochs from here on have an index of the records they wrote


def horizon_bytes(record: dict, catalog_version: int) -> bytes:
    """The horizon of an epoch record, as a JSON value, and of the catalog of that version."""
    facts = {name: record[name] for name in ("committed", "floor", "aborted", "stamp", "positions", "filled")}
    facts["stopped"] = sorted(map(int, record["stopped"]))
    more = {"catalog": catalog_version, "indexed_from": record.get("keeping", {}).get("indexed_from")}
    return json.dumps(facts | more, sort_keys=True).encode()


@lru_cache(maxsize=64)
def parse_horizon(value: bytes) -> Horizon:
    """The horizon that `horizon_bytes` wrote; cached, because most reads meet the same one as the read before."""
    if not value:
        raise CorruptStore("the store has no epoch record", "restore it from a backup")
    with reading("horizon"):
        facts = json.loads(value)
        return Horizon(
            facts["committed"],
            facts["floor"],
            tuple(facts["aborted"]),
            facts["stamp"],
            positions_from_json(facts["positions"]),
            {int(backfill): epoch for backfill, epoch in facts["filled"].items()},
            frozenset(facts["stopped"]),
            facts["catalog"],
            facts.get("indexed_from"),
        )
