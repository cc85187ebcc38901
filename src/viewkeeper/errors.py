"""The error tree: one root, and each branch states who can put it right.

    ViewKeeperError
    ├── InputError            the caller: the statement, row, key or argument is wrong, and was not written
    │   ├── SqlError          the statement's text
    │   │   ├── UnsupportedSql    a clause, function or type ViewKeeper does not maintain
    │   │   └── TypeMismatch      an expression whose types do not fit
    │   ├── UnknownName       a table, view or column that does not exist
    │   ├── DuplicateName     a name that is taken
    │   ├── NameInUse         dropping what others need
    │   ├── NotOffered        something that this kind of store does not do
    │   ├── BadRow            a value of the wrong type, a key missing or NULL, a row too large
    │   ├── TooMuchAtOnce     more bytes than one transaction may write
    │   └── RowsApart         a group of writes whose rows are on several nodes
    ├── StoreError            the operator: the store's place, format or disk
    │   ├── CorruptStore
    │   ├── NewerFormat
    │   ├── StoreFull
    │   ├── StoreInUse        others have the store open, and the operation needs it alone
    │   ├── StoreBusy         another process holds a lock, or all reader slots, for too long
    │   ├── StoreUnavailable  the store did not respond
    │   ├── StoreReplaced     the store's files were removed or replaced while it was open: connect again
    │   ├── DamagedBackup
    │   ├── PipelineRunning   a second pipeline while the first lives
    │   ├── JavaMissing       no Java 17 where Spark is needed
    │   ├── SparkLost         Spark's JVM has ended, or its session was stopped, while it was used
    │   └── SparkUnfit        Spark's Python workers have another Python, or lack packages
    ├── ReadError             the reader: wait, run the pipeline, or ask for less
    │   ├── StaleRead
    │   ├── NotReady
    │   ├── ForeignToken
    │   └── ChangesLost       older than the versions that are kept: scan instead
    └── ProtocolError         the epoch protocol stopped itself before harm was done
        ├── Fenced            a newer epoch or a newer pipeline owns the store
        │   └── LaterRecord       a record that an epoch reads is of a later one
        ├── LogDiverged       the log is not the one the epoch record refers to
        ├── PositionLost      the log was truncated before what was asked for
        ├── RowsMoved         rows have moved to another node since an epoch was planned; it is planned again
        ├── EpochRecordLost   records are newer than the epoch record
        ├── EpochFailed       an epoch could not finish; the next run takes it up again
        │   ├── ViewFailed        the work of one view could not be done; that view is stopped, the others go on
        │   └── EpochTooLarge     the work of one view does not fit in one piece; a smaller epoch's may
        └── InvariantBroken   a bug: wrong data was about to reach the store

A message is a short fact; `hint` is the way out. Every error pickles, because errors cross process borders.
"""

from __future__ import annotations


class ViewKeeperError(Exception):
    """Root of all errors that ViewKeeper raises on purpose."""

    _HINT: str | None = None  # where none is given

    def __init__(self, fact: str, hint: str | None = None) -> None:
        super().__init__(fact, hint)
        self.fact = fact
        self.hint = hint or self._HINT

    def __str__(self) -> str:
        return f"{self.fact}; {self.hint}" if self.hint else self.fact


class InputError(ViewKeeperError):
    """The caller's statement, row, key or argument is wrong, and was not written.

    A list or an Arrow table is checked before its first row is written; of a generator or an Arrow reader the transactions
    before the wrong row are done, and `load` says how many rows that is.
    """


class SqlError(InputError):
    """The statement cannot be understood."""


class UnsupportedSql(SqlError):
    """A clause, function or type that ViewKeeper does not maintain."""


class TypeMismatch(SqlError):
    """An expression whose operand types do not fit."""


class UnknownName(InputError):
    """A table, view or column that does not exist."""


class DuplicateName(InputError):
    """A name that is already taken."""


class NameInUse(InputError):
    """Something others depend on cannot be dropped."""


class NotOffered(InputError):
    """This kind of store cannot do what was asked for; the hint names one that can."""


class BadRow(InputError):
    """A value of the wrong type, or a key that is missing or NULL."""


class TooMuchAtOnce(InputError):
    """More bytes than one transaction may write."""


class RowsApart(InputError):
    """A group of writes whose rows are on several nodes."""


class StoreError(ViewKeeperError):
    """The store's place, format or disk is at fault."""


class CorruptStore(StoreError):
    """The directory is not a readable store."""


class NewerFormat(StoreError):
    """The store was written by a newer version of ViewKeeper."""


class StoreFull(StoreError):
    """No space left; everything acknowledged stays readable."""


class StoreInUse(StoreError):
    """Others have the store open, and the operation needs it alone."""


class StoreBusy(StoreError):
    """Another process holds a lock, or all reader slots, for too long; nothing was written."""


class StoreUnavailable(StoreError):
    """The store did not respond: the request may be done, or be done later, or not."""


class StoreReplaced(StoreError):
    """The store's files were removed or replaced while it was open; nothing was written to the new ones."""


class DamagedBackup(StoreError):
    """The directory is not a backup, or not a whole one."""


class PipelineRunning(StoreError):
    """Another pipeline of this store is alive."""


class JavaMissing(StoreError):
    """Spark needs Java 17 and none was found."""


class SparkLost(StoreError):
    """Spark's JVM has ended, or its session was stopped; the next pipeline takes up the epoch in flight."""


class SparkUnfit(StoreError):
    """Spark's Python workers cannot run epochs: they have another Python, another ViewKeeper, or lack packages."""


class ReadError(ViewKeeperError):
    """The read is not possible as asked, now."""


class StaleRead(ReadError):
    """The view did not become fresh enough in time."""


class NotReady(ReadError):
    """The view has not been filled yet."""


class ForeignToken(ReadError):
    """A token of another store, or of this store before a restore."""


class ChangesLost(ReadError):
    """The changes asked for reach further back than versions are kept."""


class ProtocolError(ViewKeeperError):
    """The epoch protocol stopped itself before harm was done."""


class Fenced(ProtocolError):
    """A newer epoch or a newer pipeline owns the store."""


class LaterRecord(Fenced):
    """A record that an epoch reads, for the view with that table, is of a later epoch; if there was none, it is damaged."""

    def __init__(self, epoch: int, table: int | None = None) -> None:
        of_table = "" if table is None else f" of table {table}"
        super().__init__(
            f"a record{of_table} was written by an epoch later than {epoch}",
            "another pipeline owns this store: stop this one; if there is none, viewkeeper check URL finds the damage",
        )
        self.epoch = epoch
        self.table = table
        self.args = epoch, table  # for pickle


class LogDiverged(ProtocolError):
    """The log is not the one the epoch record refers to."""


class PositionLost(ProtocolError):
    """The log was truncated before what was asked for."""

    _HINT = "the reader or view that needed it cannot go on; viewkeeper rebuild URL VIEW fills the view again"


class RowsMoved(ProtocolError):
    """Rows have moved to another node since an epoch was planned; it is planned again."""


class EpochRecordLost(ProtocolError):
    """Records are newer than the epoch record."""


class EpochFailed(ProtocolError):
    """An epoch could not finish; the next run takes it up again."""


class ViewFailed(EpochFailed):
    """The work of one view could not be done: `table` is the id of the view's table, `name` what users call it."""

    def __init__(self, table: int, reason: str, name: str = "") -> None:
        super().__init__(
            f"{name or f'table {table}'} failed: {reason}",
            "the view is stopped: viewkeeper rebuild URL VIEW fills it again",
        )
        self.table = table
        self.reason = reason
        self.name = name
        self.args = table, reason, name  # for pickle


class EpochTooLarge(EpochFailed):
    """The work of the view with that table does not fit in one piece; a smaller epoch's may."""

    def __init__(self, table: int, reason: str, name: str = "") -> None:
        super().__init__(
            f"one epoch has too much work for {name or f'table {table}'}: {reason}",
            "the pipeline tries again with a smaller epoch",
        )
        self.table = table
        self.reason = reason
        self.name = name
        self.args = table, reason, name  # for pickle


class InvariantBroken(ProtocolError):
    """A bug: wrong data was about to reach the store."""

    _HINT = "this is a bug: please report it; nothing wrong was written, and viewkeeper check URL looks at all views"
