"""WAL files: where they are, whose they are, and in which order their bytes are counted.

In: the root folder of an HBase, on any file system that Arrow reads. Out: for each stream its files, oldest first; a
position, one ordered number for a file and an offset in it. Always: a stream is one start of one region server,
"host,port,startcode"; a file keeps its name when HBase moves it: from the server's folder, which is renamed to
`-splitting` when the server dies, to `oldWALs`, where nothing is written any more. Positions of a later file are above
those of an earlier one: a file's first position is its age at `BYTES_PER_MS` bytes a millisecond, which is faster than
a log is written; `check_order` refuses other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from pyarrow import fs

from viewkeeper.errors import InputError, InvariantBroken, PositionLost, StoreError, StoreUnavailable
from viewkeeper.model.positions import Position, Positions, Stream, covers

BYTES_PER_MS = 1 << 25  # leaves room for servers that run for eight years
_SLACK_MS = 86_400_000  # a server's clock may have been set back while it started
_END = 1 << 63


def first_position(name_ms: int, start_ms: int) -> Position:
    """The position before everything in the file of that name time, of the server that started at `start_ms`."""
    age_ms = name_ms - start_ms + _SLACK_MS
    if not 0 < age_ms < _END // BYTES_PER_MS:
        raise InvariantBroken(
            f"a WAL of {name_ms} does not fit a server that started at {start_ms}", "restart that region server"
        )
    return Position(age_ms * BYTES_PER_MS)


def check_order(name: str, size: int, first: Position, next_first: Position) -> None:
    """Raise unless all positions of a file are below the next file's first."""
    if size >= next_first - first:
        raise InvariantBroken(f"the WAL {name} is too large for the time until the next one: {size} bytes")


# Several logs of one server have names of their own between its start code and the file's time. The log of hbase:meta,
# which ends in ".meta", is none of ours.
_NAME = re.compile(r"(?P<stream>(?P<server>.+%2C\d+%2C(?P<start>\d+))(?:\..+)?)\.(?P<time>\d+)")
_TRIES = 5
_TIMED = ("local", "hdfs")  # Arrow's file systems in which a file that comes or goes changes its folder's time
_ID_BYTES_MAX = 1 << 10
_ROOTDIR = "it must be the value of hbase.rootdir, as this machine sees it: file:///var/hbase, hdfs://host:8020/hbase"
_LIBHDFS = (
    "hdfs:// needs Java (JAVA_HOME), libhdfs.so (in HADOOP_HOME/lib/native, or ARROW_LIBHDFS_DIR), and Hadoop's jars in "
    "CLASSPATH: export CLASSPATH=$(hadoop classpath --glob)"
)


@dataclass(frozen=True, slots=True)
class WalFile:
    """A file as last listed or read; `archived`: in `oldWALs`, so that it no longer grows."""

    name: str
    path: str
    size: int
    archived: bool
    server: str
    stream: Stream
    first: Position


@dataclass(frozen=True, slots=True)
class GrowingLogs:
    """Where the streams of running servers ended at a moment; `archived`: when each folder of `oldWALs` had last changed.

    What was written after a moment `since` is covered by the ends of a later one, unless a file was archived between. Its
    server logged it in a file in `WALs`. If that is there still, or a later one of the stream is, the stream's end is not
    before the write. Otherwise it was moved to `oldWALs`, or to the server's folder there: this changed that folder's time,
    or that of `oldWALs`, if the server's folder is new. If anything of this is found, all files are listed: the one with the
    write does not grow any more, and its end covers the write.

    Mostly the stream is gone then, or ends earlier. But its ends are equal where the file was begun after `since` and was
    archived before an older one: only the folder's time shows that. Times may be whole seconds, so that a second change
    does not show; but no file is begun, written to and archived within a second.
    """

    ends: Positions
    archived: dict[str, int | None]  # by path; None where that is not known
    left: dict[str, int | None] = field(default_factory=dict)  # of servers that have no file in `WALs` any more

    def cover_writes(self, since: GrowingLogs) -> bool:
        """Whether the ends cover what was written after `since`, whose folders were looked at again."""
        now, times = self.archived | self.left, since.archived.items()
        return all(time is not None and time == now.get(path) for path, time in times) and covers(self.ends, since.ends)


@dataclass(frozen=True, slots=True)
class WalFolder:
    """The WALs of one HBase."""

    filesystem: fs.FileSystem
    root: str

    @staticmethod
    def at(url: str) -> WalFolder:
        """The folder that `hbase.rootdir` names: a URL of Arrow's file systems, or a local path."""
        try:
            filesystem, root = fs.FileSystem.from_uri(url)
        except ValueError as error:  # Arrow's own, for what it cannot make sense of
            raise InputError(f"rootdir={url} cannot be opened: {_first_line(error)}", _ROOTDIR) from None
        except (OSError, NotImplementedError) as error:
            hint = _LIBHDFS if url.startswith(("hdfs:", "viewfs:")) else _ROOTDIR
            raise StoreError(f"rootdir={url} cannot be opened: {_first_line(error)}", hint) from None
        return WalFolder(filesystem, root)

    def require_cluster(self, cluster: str) -> None:
        """Raise unless the folder has this id: in another HBase's nothing would be found, and views would seem fresh."""
        try:
            with self.filesystem.open_input_stream(f"{self.root}/hbase.id") as opened:
                found = opened.read(_ID_BYTES_MAX)
        except FileNotFoundError:
            raise InputError(
                f"rootdir={self.root} is no folder of an HBase: it has no file hbase.id", _ROOTDIR
            ) from None
        except OSError as error:
            raise StoreError(f"{self.root}/hbase.id cannot be read: {_first_line(error)}", _ROOTDIR) from None
        if cluster.encode() not in found:  # as text, or as protobuf
            raise InputError(
                f"rootdir={self.root} is the folder of another HBase than the URL's servers are of", _ROOTDIR
            )

    def require_folder(self, folder: str) -> None:
        """Raise unless there is such a folder, which the store's HBase has made."""
        if self.filesystem.get_file_info(f"{self.root}/{folder}").type != fs.FileType.Directory:
            raise InputError(
                f"rootdir={self.root} is not of the HBase that has the store: there is no {folder}", _ROOTDIR
            )

    def files(self) -> dict[Stream, list[WalFile]]:
        """All files of every stream, in the order of their positions, except those that are created meanwhile."""
        # Files move from WALs to oldWALs, never back: looked at in this order, none is missed.
        found = {file.name: file for file in self._current()}
        found |= {file.name: file for file in _wal_files(self._tree("oldWALs"), archived=True)}
        streams: dict[Stream, list[WalFile]] = {}
        for file in sorted(found.values(), key=lambda file: file.first):
            streams.setdefault(file.stream, []).append(file)
        return streams

    def growing(self, since: GrowingLogs | None = None) -> GrowingLogs:
        """The logs that may grow, without a look at what is archived; at the folders of `since` too."""
        old, known = f"{self.root}/oldWALs", since.archived if since else {}
        before = known.get(old) or self._changed([old])[old]
        files = sorted(self._current(), key=lambda file: file.first)
        ends = {file.stream: Position(file.first + file.size) for file in files}
        folders = {old, *(f"{old}/{file.server}" for file in files)}
        # after the files: what was moved before it could be listed has changed one of these by now
        times = self._changed(sorted(folders | known.keys()))
        if times[old] != before:  # a server that is not listed may have a folder there by now
            times[old] = None
        archived = {path: times.pop(path) for path in sorted(folders)}
        return GrowingLogs(ends, archived, left=times)

    def _changed(self, folders: Sequence[str]) -> dict[str, int | None]:
        """When folders last changed; None where it is not known that each move of a file into them changes that."""
        if self.filesystem.type_name not in _TIMED:
            return dict.fromkeys(folders)
        infos = self.filesystem.get_file_info(folders)
        times = (0 if info.type == fs.FileType.NotFound else info.mtime_ns for info in infos)
        return dict(zip(folders, times, strict=True))

    def files_between(self, starts: Positions, stops: Positions) -> dict[Stream, list[WalFile]]:
        """The files with (start, stop] of each stream; archived ones are listed only if a range is not all in another one."""
        found = {
            file.stream: [file]
            for file in self._current()
            if file.first <= starts.get(file.stream, -1) and stops[file.stream] <= file.first + file.size
        }
        listed = self.files() if found.keys() != starts.keys() else {}
        more = {stream: [file for file in listed.get(stream, ()) if file.first < stops[stream]] for stream in starts}
        return {stream: files for stream, files in (more | found).items() if files}

    def ended(self) -> set[Stream]:
        """The streams that nothing is added to: their servers are gone, and all their files are archived."""
        # The servers first: a folder that is missing by now has left all its files in oldWALs before.
        servers = {info.base_name.removesuffix("-splitting") for info in self._listed(f"{self.root}/WALs")}
        return {
            stream
            for stream, files in self.files().items()
            if all(file.archived for file in files) and files[0].server not in servers
        }

    def bytes_in(self, folder: str) -> int:
        return sum(info.size or 0 for info in self._tree(folder))

    def newest_in(self, table: str) -> dict[str, list[str]]:
        """The newest file of each family that has one, by region of a table."""
        namespace, _, name = table.rpartition(":")
        folder = f"data/{namespace or 'default'}/{name}"
        newest: dict[tuple[str, str], tuple[int, str]] = {}
        for info in self._tree(folder):
            parts = info.path.removeprefix(f"{self.root}/{folder}/").split("/")
            is_hidden = any(part.startswith(".") or part == "recovered.edits" for part in parts)
            if info.type == fs.FileType.File and len(parts) == 3 and not is_hidden:
                region, family, file = parts
                newest[region, family] = max(newest.get((region, family), (0, "")), (info.mtime_ns or 0, file))
        found: dict[str, list[str]] = {}
        for (region, _), (_, file) in newest.items():
            found.setdefault(region, []).append(file)
        return found

    def read(self, file: WalFile, offset: int, size: int) -> tuple[bytes, WalFile]:
        """Up to `size` bytes of the file from `offset` on, and the file as it was then."""
        for _ in range(_TRIES):
            try:
                with self.filesystem.open_input_file(file.path) as opened:
                    now = replace(file, size=opened.size())
                    return opened.read_at(size, offset), now
            except FileNotFoundError:
                file = self._again(file)
        raise StoreUnavailable(f"the WAL {file.name} moves faster than it can be opened")

    def _again(self, file: WalFile) -> WalFile:
        for found in self.files().get(file.stream, ()):
            if found.name == file.name:
                return found
        raise PositionLost(f"the WAL {file.name} is gone")

    def _current(self) -> list[WalFile]:
        for _ in range(_TRIES):
            try:
                servers = self._listed(f"{self.root}/WALs")
                folders = [info.path for info in servers if info.type == fs.FileType.Directory]
                infos = [info for folder in folders for info in self._listed(folder)]
                return list(_wal_files(infos, archived=False))
            except FileNotFoundError:  # a folder was renamed to `-splitting`: look again
                continue
        raise StoreUnavailable(f"{self.root}/WALs cannot be listed", "is it the folder of hbase.rootdir?")

    def _listed(self, folder: str) -> list[fs.FileInfo]:
        return self.filesystem.get_file_info(fs.FileSelector(folder))

    def _tree(self, folder: str) -> list[fs.FileInfo]:
        """All that is in a folder and in its folders, if it is there: some HBases have folders for servers in oldWALs."""
        selector = fs.FileSelector(f"{self.root}/{folder}", allow_not_found=True, recursive=True)
        return self.filesystem.get_file_info(selector)


def _wal_files(infos: list[fs.FileInfo], *, archived: bool) -> Iterator[WalFile]:
    for info in infos:
        name = _NAME.fullmatch(info.base_name) if info.type == fs.FileType.File else None
        if name:
            server, stream = unquote(name["server"]), Stream(unquote(name["stream"]))
            first = first_position(int(name["time"]), int(name["start"]))
            yield WalFile(info.base_name, info.path, info.size, archived, server, stream, first)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
