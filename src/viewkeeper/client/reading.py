"""Which state a read sees: one committed epoch, or the newest of each record.

In: a read mode. Out: a `Moment`: an epoch and the aborted epochs to look through. Always: after reading, the horizon is
checked again; if the floor has passed the epoch the read starts over (R4), so no result mixes states.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from viewkeeper.client.arguments import take_seconds
from viewkeeper.errors import InputError, StaleRead
from viewkeeper.model.horizon import Horizon
from viewkeeper.model.moments import EPOCH_MAX, Moment
from viewkeeper.model.positions import Positions
from viewkeeper.model.reads import LATEST, SNAPSHOT, Bounded
from viewkeeper.model.token import Token

if TYPE_CHECKING:
    from viewkeeper.ports.store import Store

TIMEOUT_SECONDS = 10.0


@runtime_checkable
class Reaching(Protocol):
    """A reader with its own requirements on the state it reads: a session."""

    def reaches(self, horizon: Horizon) -> bool: ...

    def saw(self, epoch: int) -> None: ...


ReadMode: TypeAlias = str | Bounded | Token | Reaching


def moment_of(store: Store, mode: ReadMode, timeout: float) -> Moment:
    """The moment that a read in `mode` sees; waits for it if necessary."""
    if mode == SNAPSHOT:
        return _snapshot(store.read_horizon())
    if mode == LATEST:
        horizon = store.read_horizon()
        return Moment(EPOCH_MAX, horizon.aborted, horizon)
    if isinstance(mode, Bounded):
        return _within(store, mode, timeout)
    if isinstance(mode, Token):
        return _wait(store, lambda horizon: is_at(store, mode, horizon.positions), timeout, "at the token")
    if isinstance(mode, Reaching):
        moment = _wait(store, mode.reaches, timeout, "at the session's writes")
        mode.saw(moment.epoch)
        return moment
    raise InputError(
        f"read={mode!r} is not a read mode", 'use "snapshot", "latest", vk.Bounded(seconds=…), a token or a session'
    )


def take_token(given: object) -> Token:
    """A token, possibly given as text."""
    token = Token.parse(given) if isinstance(given, str) else given
    if not isinstance(token, Token):
        raise InputError(f"{given!r} is not a token", "pass what put, delete or put_many returned")
    return token


def wait_for(store: Store, token: Token, timeout: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Return once the views include the token's writes; `meanwhile` is called with every look, and may raise."""

    def is_there(horizon: Horizon) -> bool:
        meanwhile()
        return is_at(store, token, horizon.positions)

    _wait(store, is_there, timeout, "at the token")


def is_at(store: Store, token: Token, positions: Positions) -> bool:
    """Whether a state at `positions` includes the token's writes."""
    if token.is_covered_by(store.incarnation, positions):
        return True
    return not store.has_changes(positions, token.positions)


def _snapshot(horizon: Horizon) -> Moment:
    return Moment(horizon.committed, horizon.aborted, horizon)


def _within(store: Store, bound: Bounded, timeout: float) -> Moment:
    """A committed state that holds every change older than the bound, counted from the start of the read."""
    oldest = store.now() - int(bound.seconds * 1e9)

    def is_there(horizon: Horizon) -> bool:
        return horizon.stamp >= oldest or not store.has_changes(horizon.positions, store.ends())

    return _wait(store, is_there, timeout, f"within {bound.seconds} s")


def _wait(store: Store, is_there: Callable[[Horizon], bool], timeout: float, goal: str) -> Moment:
    deadline = time.monotonic() + take_seconds("timeout", timeout)
    while True:
        horizon = store.read_horizon()
        if is_there(horizon):
            return _snapshot(horizon)
        if time.monotonic() >= deadline:
            raise StaleRead(
                f"the views are not {goal} after {timeout:g} s (epoch {horizon.committed})",
                "is a pipeline running? Pass a longer timeout, or read a snapshot",
            )
        time.sleep(store.capabilities.poll_seconds)
