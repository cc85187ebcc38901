"""Claims: the right to run a store's pipeline, as a lease in a cell that its holder renews.

In: beats of the holder. Out: a held claim, or PipelineRunning with who has it. Always: changed by test-and-set alone, so of
several who take it one succeeds. It only keeps pipelines from getting into each other's way: who may write is up to the
epoch record. One whose process is gone, or that has not beaten for a minute, has no claim any more.
"""

from __future__ import annotations

import json
import os
import platform
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass

from viewkeeper.errors import Fenced, PipelineRunning, StoreUnavailable
from viewkeeper.ports.meta import Holder, already_running
from viewkeeper.stores.hbase.metarow import STORE, MetaRows

_LEASE_SECONDS = 60.0
_CLAIM = "claim"


@dataclass(frozen=True, slots=True)
class Lease:
    """The cell as read: its value, who wrote it, and when by HBase's clock."""

    value: bytes
    nonce: str
    holder: Holder
    stamp_ms: int

    @property
    def is_live(self) -> bool:
        """Whether its holder may be alive; clocks of machines are compared, so it is no proof."""
        here = self.holder.host == platform.node()
        if here and not _is_running(self.holder.pid):
            return False
        return time.time() * 1_000 - self.stamp_ms < _LEASE_SECONDS * 1_000


class LeasedClaim:
    """Held from construction to `release`."""

    def __init__(self, rows: MetaRows, *, take_over: bool, instead_of: Holder | None) -> None:
        self._rows = rows
        self._nonce = uuid.uuid4().hex
        self.is_held = True
        found = read_lease(rows)
        if found is not None and (found.is_live or instead_of is not None):
            has_moved = instead_of not in (None, found.holder)
            if has_moved or not take_over:
                raise already_running(found.holder, platform.node())
        self._swap(found)
        if not self._is_ours(read_lease(rows)):
            raise PipelineRunning("another pipeline is taking this store over", "stop it, or try again")

    def beat(self, waits: str = "") -> None:
        found = read_lease(self._rows)
        if found is None or not self._is_ours(found):
            raise Fenced("another pipeline took this store over", "stop this one")
        self._swap(found, waits)

    def release(self) -> None:
        self.is_held = False
        with suppress(StoreUnavailable):  # the lease ends by itself
            found = read_lease(self._rows)
            if found is not None and self._is_ours(found):
                self._rows.swap(STORE, _CLAIM, found.value, {_CLAIM: b""})

    def _is_ours(self, found: Lease | None) -> bool:
        return found is not None and found.nonce == self._nonce

    def _swap(self, found: Lease | None, waits: str = "") -> None:
        """Put our next beat in the place of what was found, if that is still there; whoever must know looks."""
        facts = {
            "nonce": self._nonce,
            "host": platform.node(),
            "pid": os.getpid(),
            "beat": time.time_ns(),
            "waits": waits,
        }
        value = json.dumps(facts).encode()
        with suppress(StoreUnavailable):
            self._rows.swap(STORE, _CLAIM, b"" if found is None else found.value, {_CLAIM: value})


def read_lease(rows: MetaRows) -> Lease | None:
    """The claim as it is now; None when it was given back, or there was none."""
    cell = rows.cells(STORE, _CLAIM).get(_CLAIM)
    if cell is None or not cell.value:
        return None
    facts = json.loads(cell.value)
    holder = Holder(facts["pid"], facts["beat"], facts["waits"], facts["host"])
    return Lease(cell.value, facts["nonce"], holder, cell.timestamp)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
