"""What a store in HBase remembers of the logs it reads: where reading began, who looked last, which streams have ended.

In and out: positions and instants. Always: where reading began never changes, whoever tries; the others are written by the
pipeline alone.
"""

from __future__ import annotations

import json

from viewkeeper.model.positions import Positions, positions_from_json, positions_to_json
from viewkeeper.stores.hbase.metarow import LOG, MetaRows

_BEGAN, _LOOKED, _ENDED = "began", "looked", "ended/"


class HBaseLogFacts:
    """`logs.hbase.source.LogFacts`, in a row of the store's facts."""

    def __init__(self, rows: MetaRows) -> None:
        self._rows = rows
        self._began: Positions | None = None

    def began(self) -> Positions | None:
        if self._began is None:
            found = self._rows.read(LOG, _BEGAN).get(_BEGAN)
            self._began = None if found is None else positions_from_json(json.loads(found))
        return self._began

    def begin(self, now: Positions) -> Positions:
        self._rows.swap_surely(LOG, _BEGAN, b"", {_BEGAN: json.dumps(positions_to_json(now)).encode()})
        began = self.began()
        assert began is not None
        return began

    def looked(self) -> int | None:
        found = self._rows.read(LOG, _LOOKED).get(_LOOKED)
        return None if found is None else int(found)

    def look(self, now: int) -> None:
        self._rows.put(LOG, _LOOKED, b"%d" % now)

    def ended(self) -> Positions:
        found = {name: value for name, value in self._rows.read(LOG).items() if name.startswith(_ENDED)}
        return positions_from_json({name.removeprefix(_ENDED): int(value) for name, value in found.items()})

    def end(self, streams: Positions) -> None:
        for stream, position in streams.items():
            self._rows.put(LOG, _ENDED + stream, b"%d" % position)
