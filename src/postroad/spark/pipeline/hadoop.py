"""The files of a lake on a file system of Hadoop's, such as HDFS or an object store, by the session's own connectors.

An object store cannot rename a directory in one step. So a directory counts once its last file is there, and that one
is written whole. There is no lock either: a run keeps a lease, a small file that it renews.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from postroad.errors import PipelineError
from postroad.spark.pipeline.files import File, Files, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_S = 60  # without a renewal, the lease of a killed run ends
RENEW_S = 10
SETTLE_S = 1.0  # two runs that start together both see the later one's lease after that
_LOCK = "_lock"
# The packages with the file systems that Hadoop's configuration names but Spark does not bring.
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
            self._system.exists(root)  # the first call to the other end

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
                f"another run of the pipeline has taken {self.root}, because this one did not renew "
                f"its lease for {LEASE_S} s; nothing of this batch counts"
            )
        self.write_text(f"{place}/{mark}", text)

    @contextmanager
    def lock(self) -> Iterator[None]:
        holder = uuid4().hex
        lease = next(iter(self.walk(_LOCK)), None)
        if lease is not None and time.time() < lease.modified_ms / 1000 + LEASE_S:
            raise self._taken()
        self._overwrite(_LOCK, holder)
        time.sleep(SETTLE_S)
        if self.read_text(_LOCK) != holder:
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
                self.delete(_LOCK)

    def _renew(self, holder: str, ended: Event) -> None:
        """A fault is not the end: the next turn tries again, as long as no other run may take the lease."""
        renewed = time.monotonic()
        while not ended.wait(RENEW_S):
            try:
                if self.read_text(_LOCK) == holder:
                    self._overwrite(_LOCK, holder)
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
        except (Py4JError, PySparkException) as fault:  # PySpark translates some faults of Java
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
