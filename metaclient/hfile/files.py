"""Paths on a file system: local folders and every file system of ``pyarrow.fs`` (hdfs, s3, gs).

>>> staging = StoragePath.of("file:///tmp/x")
>>> staging.child("cf", "f1").uri
'file:///tmp/x/cf/f1'
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from metaclient.errors import ConfigError
from metaclient.hfile.errors import CorruptFile, FileMissing
from metaclient.wire.cell_arrays import libraries

__all__ = ["StoragePath"]


@dataclass(frozen=True, slots=True)
class StoragePath:
    """One path of a file system. It can be pickled, so that tasks of Spark can use it."""

    base: str  # scheme and authority, as in "hdfs://namenode:8020"
    path: str  # absolute

    @classmethod
    def of(cls, text: str) -> StoragePath:
        """Return the path of a url or of an absolute local path; ConfigError for other text."""
        if text.startswith("/"):
            return cls("file://", posixpath.normpath(text))
        parts = urlsplit(text)
        path = posixpath.normpath(parts.path) if parts.path else ""
        if not parts.scheme or not path.startswith("/"):
            raise ConfigError(
                f"{text!r} is no path of a file system: write an absolute path, or a url such as "
                "file:///data/staging or hdfs://namenode:8020/staging"
            )
        return cls(f"{parts.scheme}://{parts.netloc}", path)

    @property
    def uri(self) -> str:
        """The path as a url, which HBase's servers understand, too."""
        return self.base + self.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.path)

    def __str__(self) -> str:
        return self.uri

    def child(self, *names: str) -> StoragePath:
        """Return a path below this one."""
        return StoragePath(self.base, posixpath.join(self.path, *names))

    def _opened(self) -> tuple[Any, str]:
        """Return the file system, and the path on it."""
        libraries()
        from pyarrow import fs

        if self.base == "file://":
            return fs.LocalFileSystem(), self.path
        try:
            system, _ = fs.FileSystem.from_uri(self.base + "/")
        except (OSError, ValueError, NotImplementedError) as error:
            raise ConfigError(
                f"the file system {self.base} cannot be used: {error}; hdfs:// needs libhdfs, which pyarrow finds by "
                "HADOOP_HOME and CLASSPATH"
            ) from error
        netloc = urlsplit(self.base).netloc
        # Object stores name the bucket in the path.
        return system, self.path if self.base.startswith(("hdfs:", "viewfs:")) else netloc + self.path

    @contextmanager
    def input(self) -> Iterator[Any]:
        """Yield the file, opened for reads at any offset (``read_at``, ``size``)."""
        system, path = self._opened()
        try:
            source = system.open_input_file(path)
        except FileNotFoundError as error:
            raise FileMissing(f"there is no file {self}") from error
        except OSError as error:
            raise CorruptFile(f"file {self} cannot be opened: {error}") from error
        with source:
            yield source

    @contextmanager
    def output(self) -> Iterator[Any]:
        """Yield a stream that writes the file; missing folders are created."""
        system, path = self._opened()
        system.create_dir(posixpath.dirname(path), recursive=True)
        with system.open_output_stream(path) as sink:
            yield sink

    def read(self, bytes_max: int) -> bytes:
        """Return the whole content of a file of at most so many bytes."""
        with self.input() as source:
            size = source.size()
            if size > bytes_max:
                raise CorruptFile(f"file {self} has {size} bytes, the largest that is read at once has {bytes_max}")
            data: bytes = source.read_at(size, 0)
            return data

    def is_file(self) -> bool:
        """Return True if there is a file at this path."""
        system, path = self._opened()
        return bool(system.get_file_info(path).is_file)

    def names(self) -> list[str]:
        """Return the names in this folder, sorted; empty if there is no folder."""
        libraries()
        from pyarrow import fs

        system, path = self._opened()
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(one.base_name for one in found)

    def delete(self) -> None:
        """Delete a folder with everything in it; a missing folder is no error."""
        system, path = self._opened()
        try:
            system.delete_dir(path)
        except FileNotFoundError:
            return
