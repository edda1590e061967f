"""The files of a lake: on this machine's disk, or on any file system that the session's Hadoop configuration has.

Paths are relative to the lake, with slashes. A local lake needs no Spark; any other goes through Hadoop's FileSystem.
"""

from __future__ import annotations

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from postroad.errors import PipelineError
from postroad.runtime.private_files import make_private_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # a single letter is a drive of Windows
_STAGING = "_staging"  # Spark reads no directory whose name starts like this
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class File:
    path: str
    size: int
    modified_ms: int


class Files(ABC):
    """`root` is the address for people, and `url` the one for Spark."""

    root: str

    @abstractmethod
    def url(self, path: str) -> str: ...

    @abstractmethod
    def walk(self, path: str) -> list[File]:
        """All files below a directory, sorted by path; none if it does not exist."""

    @abstractmethod
    def read_text(self, path: str) -> str | None:
        """None if there is no such file."""

    @abstractmethod
    def write_text(self, path: str, text: str) -> None:
        """Writes a new file whole and durably, or not at all."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Deletes a file, or a directory with its content. One that does not exist is no error."""

    @abstractmethod
    def draft(self, place: str) -> str:
        """A new directory for Spark to write into; `publish` makes it the directory `place`."""

    @abstractmethod
    def publish(self, draft: str, place: str, mark: str, text: str) -> None:
        """Makes the directory visible, with a last file `mark`. Without the mark it does not count."""

    @abstractmethod
    @contextmanager
    def lock(self) -> Iterator[None]:
        """One holder at a time. PipelineError if there is another, or the lake cannot be written."""
        yield

    @property
    def is_local(self) -> bool:
        return isinstance(self, LocalFiles)


def open_files(path: Path | str, spark: SparkSession | None) -> Files:
    """The lake at a local path or an address such as `hdfs://host/lake`. PipelineError if Spark cannot write there."""
    if isinstance(path, Path):
        return LocalFiles(path)
    scheme = scheme_of(path)
    if scheme is None:
        return LocalFiles(Path(path))
    if scheme == "file":
        return LocalFiles(Path(unquote(urlsplit(path).path)))
    if spark is None:
        raise PipelineError(f"{path}: reading a lake on {scheme} needs a Spark session")
    from postroad.spark.pipeline.hadoop import HadoopFiles

    return HadoopFiles(spark, path)


def scheme_of(path: Path | str) -> str | None:
    """The scheme of an address, in lower case; None for a path of this machine."""
    found = _SCHEME.match(str(path))
    return found[1].lower() if found else None


class LocalFiles(Files):
    """A directory of this machine. On a cluster, every worker must see it under the same path."""

    def __init__(self, root: Path) -> None:
        self.path = root.absolute()
        self.root = str(self.path)

    def url(self, path: str) -> str:
        return str(self.path / path)

    def walk(self, path: str) -> list[File]:
        found = []
        for directory, _, names in os.walk(self.path / path):
            for name in names:
                file = Path(directory, name)
                try:
                    status = file.stat()
                except FileNotFoundError:  # a run has replaced it in the meantime
                    continue
                relative = file.relative_to(self.path).as_posix()
                found.append(File(relative, status.st_size, status.st_mtime_ns // 1_000_000))
        return sorted(found, key=lambda file: file.path)

    def read_text(self, path: str) -> str | None:
        try:
            return (self.path / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise self._unusable(fault) from None

    def write_text(self, path: str, text: str) -> None:
        file = self.path / path
        draft = file.with_name(f"{file.name}.draft")
        try:
            make_private_directory(self.path)
            file.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("w", encoding="utf-8") as output:
                output.write(text)
                output.flush()
                os.fsync(output.fileno())
            os.rename(draft, file)
            _sync(file.parent)
        except OSError as fault:
            raise self._unusable(fault) from None

    def delete(self, path: str) -> None:
        place = self.path / path
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)

    def draft(self, place: str) -> str:
        return (Path(place).parent / _STAGING / uuid4().hex).as_posix()

    def publish(self, draft: str, place: str, mark: str, text: str) -> None:
        for file in self.walk(draft):
            _sync(self.path / file.path)
        self.write_text(f"{draft}/{mark}", text)
        target = self.path / place
        if target.exists():
            raise PipelineError(f"{target} already exists")
        os.rename(self.path / draft, target)
        _sync(target.parent)
        self.delete(str(Path(draft).parent))

    @contextmanager
    def lock(self) -> Iterator[None]:
        import fcntl

        try:
            make_private_directory(self.path)
            lock = (self.path / _LOCK).open("a")
        except OSError as fault:
            raise PipelineError(f"{self.root} cannot be written: {fault.strerror}") from None
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PipelineError(f"another run of the pipeline uses {self.root}; wait until it ends") from None
            yield

    def _unusable(self, fault: OSError) -> PipelineError:
        return PipelineError(f"{self.root} cannot be used for tables: {fault.strerror}")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
