"""The files of a lake, on this machine or on a file system of Hadoop."""

from __future__ import annotations

import os
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from postroad.errors import PipelineError
from postroad.runtime.private_files import make_private_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The files of a lake: on this machine's disk, or on any file system in the session's Hadoop configuration.
#
# Paths are relative to the lake and have slashes. A local lake needs no Spark. Every other lake uses Hadoop's
# FileSystem.


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # a single letter is a Windows drive
_STAGING = "_staging"  # Spark ignores directories whose names start with an underscore
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class File:
    path: str
    size: int
    modified_ms: int


class Files(ABC):
    """Reads and writes the files of a lake. `root` is its address for people, and `url` gives addresses for Spark."""

    root: str

    @abstractmethod
    def url(self, path: str) -> str: ...

    @abstractmethod
    def walk(self, path: str) -> list[File]:
        """All files below a directory, sorted by path. Empty if the directory does not exist."""

    @abstractmethod
    def read_text(self, path: str) -> str | None:
        """The text of a file. None if the file does not exist."""

    @abstractmethod
    def write_text(self, path: str, text: str) -> None:
        """Writes a new file whole and durably, or not at all."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Deletes a file, or a directory with its content, if it exists."""

    @abstractmethod
    def draft(self, place: str) -> str:
        """The path of a new directory for Spark to write to. `publish` turns it into the directory `place`."""

    @abstractmethod
    def publish(self, draft: str, place: str, mark: str, text: str) -> None:
        """Makes the draft visible at `place`, and writes the file `mark` last. A directory without the mark does not
        count.
        """

    @abstractmethod
    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the lake for one run. Raises PipelineError if another run has it, or if the lake cannot be written."""
        yield

    @property
    def is_local(self) -> bool:
        return isinstance(self, LocalFiles)


def open_files(path: Path | str, spark: SparkSession | None) -> Files:
    """Opens the lake at a local path or an address such as `hdfs://host/lake`. Raises PipelineError if Spark cannot
    write there.
    """
    if isinstance(path, Path):
        return LocalFiles(path)
    scheme = scheme_of(path)
    if scheme is None:
        return LocalFiles(Path(path))
    if scheme == "file":
        return LocalFiles(Path(unquote(urlsplit(path).path)))
    if spark is None:
        raise PipelineError(f"{path}: reading a lake on {scheme} needs a Spark session")

    return HadoopFiles(spark, path)


def scheme_of(path: Path | str) -> str | None:
    """The scheme of an address, in lower case. None for a path on this machine."""
    found = _SCHEME.match(str(path))
    return found[1].lower() if found else None


class LocalFiles(Files):
    """A directory on this machine. On a cluster, every worker must see it under the same path."""

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
                except FileNotFoundError:  # another run has just replaced the file
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


# The files of a lake on a file system of Hadoop, such as HDFS or an object store, through the session's connectors.
#
# An object store cannot rename a directory in one step. So a directory counts once its last file exists, which is
# written whole. There is no lock either: a run keeps a lease, which is a small file that it renews.


LEASE_S = 60  # a lease that was not renewed for this long has ended
RENEW_S = 10
SETTLE_S = 1.0  # after that, two runs that started together both see the lease that was written last
_HADOOP_LOCK = "_lock"
# The packages with file systems that Hadoop's configuration names but Spark does not include.
_PACKAGES = {
    "s3a": "hadoop-aws",
    "abfs": "hadoop-azure",
    "abfss": "hadoop-azure",
    "wasb": "hadoop-azure",
    "wasbs": "hadoop-azure",
    "gs": "hadoop-gcp",
    "oss": "hadoop-aliyun",
    "cosn": "hadoop-cos",
}
_ABSENT = ("UnsupportedFileSystemException", "ClassNotFoundException", "NoClassDefFoundError")


class HadoopFiles(Files):
    def __init__(self, spark: SparkSession, url: str) -> None:
        self.root = url.rstrip("/")
        machine: Any = spark._jvm
        self._jvm = machine
        self._lease_is_lost = False
        session: Any = spark._jsparkSession
        with self._faults():
            root = self._jvm.org.apache.hadoop.fs.Path(self.root)
            self._system = root.getFileSystem(session.sessionState().newHadoopConf())
            self._prefix = self._system.makeQualified(root).toUri().getPath().rstrip("/") + "/"
            self._system.exists(root)  # the first call that reaches the file system

    def url(self, path: str) -> str:
        return f"{self.root}/{path}"

    def walk(self, path: str) -> list[File]:
        found = []
        with self._faults():
            if not self._system.exists(self._at(path)):
                return []
            statuses = self._system.listFiles(self._at(path), True)
            while statuses.hasNext():
                status = statuses.next()
                name = status.getPath().toUri().getPath().removeprefix(self._prefix)
                found.append(File(name, status.getLen(), status.getModificationTime()))
        return sorted(found, key=lambda file: file.path)

    def read_text(self, path: str) -> str | None:
        with self._faults():
            if not self._system.exists(self._at(path)):
                return None
            stream = self._system.open(self._at(path))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()

    def write_text(self, path: str, text: str) -> None:
        draft = f"{path}.draft"
        self._overwrite(draft, text)
        with self._faults():
            if not self._system.rename(self._at(draft), self._at(path)):
                raise PipelineError(f"{self.url(path)} already exists")

    def delete(self, path: str) -> None:
        with self._faults():
            self._system.delete(self._at(path), True)

    def draft(self, place: str) -> str:
        return place

    def publish(self, draft: str, place: str, mark: str, text: str) -> None:
        if self._lease_is_lost:
            raise PipelineError(
                f"another run of the pipeline has taken {self.root}, because this run did not renew "
                f"its lease for {LEASE_S} s; this batch was not written"
            )
        self.write_text(f"{place}/{mark}", text)

    @contextmanager
    def lock(self) -> Iterator[None]:
        holder = uuid4().hex
        lease = next(iter(self.walk(_HADOOP_LOCK)), None)
        if lease is not None and time.time() < lease.modified_ms / 1000 + LEASE_S:
            raise self._taken()
        self._overwrite(_HADOOP_LOCK, holder)
        time.sleep(SETTLE_S)
        if self.read_text(_HADOOP_LOCK) != holder:
            raise self._taken()
        ended = Event()
        renewing = Thread(target=self._renew, args=(holder, ended), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            if not self._lease_is_lost:
                self.delete(_HADOOP_LOCK)

    def _renew(self, holder: str, ended: Event) -> None:
        """Renews the lease until `ended`. An error is retried as long as no other run may take the lease."""
        renewed = time.monotonic()
        while not ended.wait(RENEW_S):
            try:
                if self.read_text(_HADOOP_LOCK) == holder:
                    self._overwrite(_HADOOP_LOCK, holder)
                    renewed = time.monotonic()
                    continue
            except PipelineError:
                if time.monotonic() - renewed < LEASE_S - RENEW_S:
                    continue
            self._lease_is_lost = True
            return

    def _taken(self) -> PipelineError:
        return PipelineError(
            f"another run of the pipeline uses {self.root}; wait until it ends, or {LEASE_S} s after it was killed"
        )

    def _overwrite(self, path: str, text: str) -> None:
        with self._faults():
            stream = self._system.create(self._at(path), True)
            try:
                stream.write(bytearray(text.encode()))
                if stream.hasCapability("hsync"):
                    stream.hsync()
            finally:
                stream.close()

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(path))

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as fault:
            raise self._explained(fault.java_exception) from None
        except (Py4JError, PySparkException) as fault:  # PySpark converts some Java exceptions
            raise PipelineError(f"{self.root} cannot be used for tables: {' '.join(str(fault).split())}") from None

    def _explained(self, fault: Any) -> PipelineError:
        causes = [fault]
        while (cause := causes[-1].getCause()) is not None and len(causes) < 10:
            causes.append(cause)
        texts = [str(each.toString()) for each in causes]
        if not any(absent in text for text in texts for absent in _ABSENT):
            reason = " ".join(str(causes[0].getMessage()).split()) or texts[0]
            return PipelineError(f"{self.root} cannot be used for tables: {reason}")
        scheme = scheme_of(self.root) or ""
        if scheme in ("s3", "s3n"):
            return PipelineError(
                f"{self.root}: Hadoop's name for S3 is s3a, as in s3a://{self.root.partition('//')[2]}"
            )
        if scheme not in _PACKAGES:
            return PipelineError(
                f"{self.root}: Spark has no file system for {scheme}; a lake can be a local path, or "
                "on any file system of Spark's Hadoop configuration, such as hdfs or s3a"
            )
        version = self._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        return PipelineError(
            f"{self.root}: Spark has no file system for {scheme} ({texts[-1]}); add "
            f"--conf spark.jars.packages=org.apache.hadoop:{_PACKAGES[scheme]}:{version}"
        )
