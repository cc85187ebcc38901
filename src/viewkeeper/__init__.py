"""ViewKeeper: materialized views over key-value stores, kept fresh from the store's own log.

In: `import viewkeeper as vk`. Out: the public names, listed in `__all__` and described in docs/api.md. Always:
importing this module loads no other; a name loads its module on first use, so that a script that only puts and gets
never waits for Spark, DuckDB or the SQL parser.

Layers of the package, lowest first; a module imports only from layers below its own:

    errors, model < ports, events, settings < algebra < sql, codegen < catalog, plan
      < coordinator | operators | stores < engine < client, load, check < cli, testing
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewkeeper.check.report import CheckReport, RepairReport
    from viewkeeper.client.database import connect, restore
    from viewkeeper.client.result import Change, Changes, Result
    from viewkeeper.errors import (
        BadRow,
        ChangesLost,
        CorruptStore,
        DamagedBackup,
        DuplicateName,
        EpochFailed,
        EpochRecordLost,
        EpochTooLarge,
        Fenced,
        ForeignToken,
        InputError,
        InvariantBroken,
        JavaMissing,
        LaterRecord,
        LogDiverged,
        NameInUse,
        NewerFormat,
        NotOffered,
        NotReady,
        PipelineRunning,
        PositionLost,
        ProtocolError,
        ReadError,
        RowsApart,
        RowsMoved,
        SparkLost,
        SparkUnfit,
        SqlError,
        StaleRead,
        StoreBusy,
        StoreError,
        StoreFull,
        StoreInUse,
        StoreReplaced,
        StoreUnavailable,
        TooMuchAtOnce,
        TypeMismatch,
        UnknownName,
        UnsupportedSql,
        ViewFailed,
        ViewKeeperError,
    )
    from viewkeeper.load.loading import Loaded
    from viewkeeper.model.positions import Token
    from viewkeeper.model.read_frontier import Bounded
    from viewkeeper.settings import EngineSettings

__version__ = "0.1.0"

__all__ = [
    "connect",
    "restore",
    "Bounded",
    "Change",
    "Changes",
    "CheckReport",
    "EngineSettings",
    "RepairReport",
    "Loaded",
    "Result",
    "Token",
    # errors, in the order of the tree in errors.py
    "ViewKeeperError",
    "InputError",
    "SqlError",
    "UnsupportedSql",
    "TypeMismatch",
    "UnknownName",
    "DuplicateName",
    "NameInUse",
    "BadRow",
    "TooMuchAtOnce",
    "RowsApart",
    "StoreError",
    "CorruptStore",
    "NewerFormat",
    "StoreFull",
    "StoreInUse",
    "StoreBusy",
    "StoreReplaced",
    "StoreUnavailable",
    "DamagedBackup",
    "PipelineRunning",
    "JavaMissing",
    "LaterRecord",
    "SparkLost",
    "SparkUnfit",
    "ReadError",
    "StaleRead",
    "NotOffered",
    "NotReady",
    "ForeignToken",
    "ChangesLost",
    "ProtocolError",
    "Fenced",
    "LogDiverged",
    "PositionLost",
    "RowsMoved",
    "EpochRecordLost",
    "EpochFailed",
    "ViewFailed",
    "EpochTooLarge",
    "InvariantBroken",
]

_HOMES = {
    "connect": "viewkeeper.client.database",
    "restore": "viewkeeper.client.database",
    "Change": "viewkeeper.client.result",
    "Changes": "viewkeeper.client.result",
    "Bounded": "viewkeeper.model.read_frontier",
    "CheckReport": "viewkeeper.check.report",
    "EngineSettings": "viewkeeper.settings",
    "RepairReport": "viewkeeper.check.report",
    "Loaded": "viewkeeper.load.loading",
    "Result": "viewkeeper.client.result",
    "Token": "viewkeeper.model.positions",
}


def __getattr__(name: str) -> object:
    """Load the module of a public name, and keep the name here for the next use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "viewkeeper.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
