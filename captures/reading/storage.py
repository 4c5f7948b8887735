"""Files and folders in object stores and HDFS, by the URIs that `pyarrow.fs` knows.

`place` makes a `Path` of a path or a `file://` URI, and a `Remote` of any other (`s3://bucket/folder`, `gs://`, `abfs://`,
`hdfs://`). A `Remote` has the methods of a path that are needed here, under the same names. Credentials come from where the
store's own tools take them (environment, configuration, the machine's role), never from a URI, so that none can be shown.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from ...errors import BarnabasError, install

_AT_ONCE = frozenset({"s3", "gcs", "abfs"})
"""Stores where a file appears when all of it is there. Elsewhere it is written under a hidden name, and moved."""
_CHUNK = 8 << 20
_REMEDIES = {
    "s3": "give the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials or the machine's role, and the "
    "URI ?region=... (&endpoint_override=HOST:PORT for a store that is not Amazon's)",
    "gs": "log in with: gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS; gs://anonymous@BUCKET/... "
    "for public data",
    "abfs": "log in with: az login, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    "hdfs": "set JAVA_HOME, HADOOP_HOME (or ARROW_LIBHDFS_DIR, the folder of libhdfs.so) and "
    "CLASSPATH=$(hadoop classpath --glob)",
}
_ALIKE = {"gcs": "gs", "abfss": "abfs", "viewfs": "hdfs"}
_REFUSED = re.compile(
    r"credential|token|authenti|authori[sz]|access.?denied|forbidden|resolve host|connect|libjvm|libhdfs", re.IGNORECASE
)
_MOST_MESSAGE = 300
_GS_SECONDS = 30
"""How long pyarrow tries to reach Google's store; a quarter of an hour by default."""


class StorageError(BarnabasError, OSError):
    """A place that cannot be used: one line for the user, without credentials."""


class Remote:
    """A file or folder in a store. What its methods raise is an OSError."""

    def __init__(self, uri: str, path: str | None = None) -> None:
        self._uri = uri
        self._path = _opened(uri)[1] if path is None else path

    def __str__(self) -> str:
        """The URI, without its options: so it is in tables and messages."""
        parts = urlsplit(self._uri)
        return f"{parts.scheme}://{parts.netloc}{self._under()}"

    @property
    def uri(self) -> str:
        """The URI by which another process opens the same place."""
        parts = urlsplit(self._uri)
        return parts._replace(path=quote(self._under())).geturl()

    def _under(self) -> str:
        """The path as a URI has it: some stores have the bucket in theirs."""
        top = unquote(urlsplit(self._uri).path).rstrip("/")
        return self._path[len(_opened(self._uri)[1]) - len(top) :]

    def __repr__(self) -> str:
        return f"Remote({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Remote, (self._uri, self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __truediv__(self, name: str) -> Remote:
        return Remote(self._uri, posixpath.join(self._path, name))

    @property
    def name(self) -> str:
        return posixpath.basename(self._path)

    @property
    def stem(self) -> str:
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> Remote:
        return Remote(self._uri, posixpath.dirname(self._path))

    def with_name(self, name: str) -> Remote:
        return self.parent / name

    @property
    def filesystem(self) -> tuple[Any, str]:
        """The `pyarrow.fs.FileSystem`, and the path there."""
        return _opened(self._uri)[0], self._path

    @contextmanager
    def _asking(self) -> Iterator[tuple[Any, str]]:
        """`filesystem`, for one request. Errors that are not OSErrors, as nearly all of Azure's, become `StorageError`; where access
        is refused, with the remedy."""
        try:
            yield self.filesystem
        except FileNotFoundError:
            raise
        except Exception as error:  # pyarrow does not document what its stores raise: nearly all of Azure's are ArrowException
            message = _first(error)
            if isinstance(error, StorageError) or (isinstance(error, OSError) and not _REFUSED.search(message)):
                raise
            raise StorageError(f"{self} cannot be reached: {message}{_remedy(self._uri)}") from error

    def _info(self) -> Any:
        with self._asking() as (store, path):
            return store.get_file_info(path)

    def exists(self) -> bool:
        return str(self._info().type.name) != "NotFound"

    def is_file(self) -> bool:
        return str(self._info().type.name) == "File"

    def is_dir(self) -> bool:
        return str(self._info().type.name) == "Directory"

    @property
    def size(self) -> int:
        """Bytes of the file. Raises FileNotFoundError."""
        return self.stamp[0]

    @property
    def stamp(self) -> tuple[int, int]:
        """Its size and its time, as they are listed. Raises FileNotFoundError."""
        info = self._info()
        if info.size is None:
            raise FileNotFoundError(f"{self}: no such file")
        return int(info.size), info.mtime_ns or 0

    def files(self, deep: bool = True) -> Iterator[Listed]:
        """The files in this folder, by their names; with `deep`, those of its folders, too."""
        from pyarrow import fs

        with self._asking() as (store, path):
            found = store.get_file_info(fs.FileSelector(path, recursive=deep, allow_not_found=True))
        for info in sorted(found, key=lambda each: str(each.path)):
            if info.type == fs.FileType.File:
                yield Listed(Remote(self._uri, info.path), info.size, info.mtime_ns or 0)

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """`size` bytes from `start`; None: to the end."""
        with self._asking() as (store, path), store.open_input_file(path) as file:
            file.seek(min(start, file.size()))
            return bytes(file.read() if size is None else file.read(size))

    def chunks(self) -> Iterator[bytes]:
        """All of its bytes, a piece at a time."""
        with self._asking() as (store, path), store.open_input_stream(path, compression=None) as file:
            while data := file.read(_CHUNK):
                yield data

    def fetch(self, target: Path) -> None:
        """Copy it to a file of this machine."""
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for data in self.chunks():
                file.write(data)

    def put(self, source: Path) -> None:
        """Make it a copy of a file of this machine; it is there as a whole or not at all."""
        from pyarrow import memory_map

        if not source.stat().st_size:
            return self.write(b"")
        with memory_map(str(source)) as file:
            return self.write(file.read_buffer())

    def write(self, data: Any) -> None:
        """Make it these bytes; they are there as a whole or not at all."""
        with self._asking() as (store, path):
            self._put(store, path, data)

    @staticmethod
    def _put(store: Any, path: str, data: Any) -> None:
        at_once = store.type_name in _AT_ONCE
        folder, name = posixpath.split(path)
        there = path if at_once else posixpath.join(folder, f".{name}.{os.getpid()}-{os.urandom(4).hex()}")
        if not at_once:
            store.create_dir(folder, recursive=True)
        # One call with all of it: an interrupt cannot close, and so put in place, a file of which a part was written.
        file = store.open_output_stream(there, compression=None)
        try:
            file.write(data)
        finally:
            file.close()
        if not at_once:
            store.move(there, path)

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok or self.exists():
            with self._asking() as (store, path):
                store.delete_file(path)


class Listed(NamedTuple):
    """A file as it was listed; `modified_ns` since the epoch."""

    path: Path | Remote
    size: int
    modified_ns: int


Place = Path | Remote
_SETTLED_SECONDS = 60.0


def settled(files: Iterable[Listed]) -> list[Listed]:
    """Files that were not written to for a minute: others may still grow."""
    before = time.time_ns() - int(_SETTLED_SECONDS * 1e9)
    return [file for file in files if file.modified_ns < before]


def place(text: str | Path | Remote) -> Place:
    """The place that a path or URI names. Raises StorageError."""
    if isinstance(text, (Path, Remote)):
        return text
    scheme, sign, rest = text.partition("://")
    if not sign or not scheme.isalnum():
        return Path(text)
    if scheme == "file":
        host, _, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise StorageError(f"file://{host.rpartition('@')[2]}/...: a file:// URI has no host: file:///folder")
        return Path("/" + unquote(path))
    return Remote(text)


def text(where: Place) -> str:
    """The text from which `place` makes the same place, also in another process."""
    return where.uri if isinstance(where, Remote) else str(where)


def list_files(folder: Place, deep: bool = True, suffixes: tuple[str, ...] = ("",)) -> Iterator[Listed]:
    """The files in a folder whose names end so, with `deep` those of its folders, too; nothing if it is not there."""
    if isinstance(folder, Remote):
        yield from (each for each in folder.files(deep) if each.path.name.endswith(suffixes))
    else:
        yield from (Listed(Path(name), *about) for name, *about in _scanned(str(folder), deep, suffixes))


def stamps(folder: Place, suffixes: tuple[str, ...] = ("",)) -> Iterator[tuple[str, int, int]]:
    """As `list_files`: paths below the folder, sizes and times, without an object for each of very many files."""
    found: Iterator[tuple[str, int, int]]
    if isinstance(folder, Remote):
        found = ((str(each.path), each.size, each.modified_ns) for each in list_files(folder, suffixes=suffixes))
    else:
        found = _scanned(str(folder), True, suffixes)
    below = len(str(folder).rstrip("/")) + 1
    return ((name[below:], size, modified_ns) for name, size, modified_ns in found)


def stamp(path: Place) -> tuple[int, int]:
    """Size and time of a file, as they are listed. Raises FileNotFoundError."""
    if isinstance(path, Remote):
        return path.stamp
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _scanned(folder: str, deep: bool, suffixes: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=_name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if deep:
                    yield from _scanned(entry.path, deep, suffixes)
            elif entry.name.endswith(suffixes) and entry.is_file():
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
        except FileNotFoundError:  # it went meanwhile
            continue


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def open_filesystem(where: Place) -> tuple[Any, str]:
    """The `pyarrow.fs.FileSystem` and the path in it."""
    if isinstance(where, Remote):
        return where.filesystem
    from pyarrow import fs

    return fs.LocalFileSystem(), str(where)


@cache
def _opened(uri: str) -> tuple[Any, str]:
    parts = urlsplit(uri)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    user, at, _ = parts.netloc.rpartition("@")
    if at and (":" in user or parts.scheme == "s3") and user != "anonymous":
        raise StorageError(
            f"{shown}: a URI must not contain credentials, as others can see it; put them where the store's own tools look "
            "(for s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials)"
        )
    try:
        from pyarrow import fs
    except ImportError as error:
        raise StorageError(f"{shown}: reading from stores needs pyarrow: {install('report')}") from error
    asked = uri
    if _kind(uri) == "gs" and "retry_limit_seconds" not in parts.query:
        asked += f"{'&' if parts.query else '?'}retry_limit_seconds={_GS_SECONDS}"
    try:
        store, path = fs.FileSystem.from_uri(asked)
    except Exception as error:  # as above
        message = _first(error).replace(asked, shown).replace(uri, shown)
        raise StorageError(f"{shown} cannot be opened: {message}{_remedy(uri)}") from error
    return store, str(path).rstrip("/")


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:_MOST_MESSAGE]


def _kind(uri: str) -> str:
    scheme = urlsplit(uri).scheme
    return _ALIKE.get(scheme, scheme)


def _remedy(uri: str) -> str:
    """The remedy for a store that cannot be reached, to be appended to its message."""
    known = ", ".join(f"{kind}://" for kind in _REMEDIES)
    return f"; {_REMEDIES.get(_kind(uri), f'supported: {known} and file://')}"
