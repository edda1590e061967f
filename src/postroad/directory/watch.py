"""Watches the directory for changes: what every source offers, and the watch of a file.

The watch of a file uses a new version only if it is valid.
This has no thread and no clock: the caller of `reload` passes the time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Protocol
from uuid import UUID

from postroad.directory.file import format_enterprise, load_enterprise, read_directory
from postroad.directory.review import review
from postroad.directory.snapshot import Directory
from postroad.errors import ConfigurationError, DirectoryError, PostroadError
from postroad.reports.enterprise import JoinCheck
from postroad.validation.toml import read_file

log = logging.getLogger(__name__)

MAX_SENTENCES = 20  # of a review in the log

Signature = tuple[int, ...] | None  # changes whenever the file is written; None if there is no file


@dataclass(frozen=True, slots=True)
class UpdateTimers:
    """After how many seconds to read the file even if it looks unchanged."""

    sites_update_s: float = 43_200.0  # [MS-MQDMPR] 3.1.2.1 Directory Sites Update Timer
    site_gates_update_s: float = 3_600.0  # [MS-MQDMPR] 3.1.2.2 Directory Site Gates Update Timer


class Watch(Protocol):
    """A source of the directory that can change. `reload`, `check` and `access_lists` block.

    `directory` is the last good one. `read_at_s` is when the source last confirmed it, and `online` is False while the
    source cannot be asked. `poll_s` is how often to call `reload`. `join` checks whether a join of the domain would
    work; None if there is no domain. `access_lists` has Queue.Security of all public queues, by id, where the source
    lets this manager see it; it raises DirectoryError.
    """

    kind: ClassVar[str]
    directory: Directory
    failures: int
    last_error: str | None

    @property
    def online(self) -> bool: ...
    @property
    def source(self) -> str: ...
    @property
    def poll_s(self) -> float: ...
    @property
    def read_at_s(self) -> float: ...

    def check(self) -> None: ...
    def reload(self, now: float, *, asked: bool = False) -> bool: ...
    def join(self, now: float) -> JoinCheck | None: ...
    def access_lists(self) -> Mapping[UUID, bytes]: ...
    def close(self) -> None: ...


class DirectoryWatch:
    """The last valid content of the file. Raises ConfigurationError if the first version is invalid.

    `failures` counts how often the file became invalid, or invalid in another way. `last_error` says how, and is None
    once the file is valid.
    """

    kind: ClassVar[str] = "file"

    def __init__(self, file: Path, now: float, timers: UpdateTimers | None = None, poll_s: float = 5.0) -> None:
        self._file = file
        self.source = str(file)
        self.poll_s = poll_s
        self.read_at_s = now
        self._timers = timers or UpdateTimers()
        self.failures = 0
        self.last_error: str | None = None
        self.sites_update_at = self.site_gates_update_at = now
        self._rearm(now)
        self._seen = _signature(file)
        data = read_file(file)
        self._digest = sha256(data).digest()
        self.directory = read_directory(load_enterprise(file, data))
        self._log_review()

    @property
    def online(self) -> bool:
        """A file that is invalid cannot be asked."""
        return self.last_error is None

    def join(self, now: float) -> None:
        """A file is no domain."""

    def access_lists(self) -> Mapping[UUID, bytes]:
        return {each.identifier: each.security for each in self.directory.queues if each.security}

    def close(self) -> None:
        """There is nothing to close."""

    def check(self) -> None:
        """Raises ConfigurationError if `reload` would refuse the file as it is now."""
        self._read(read_file(self._file))

    def reload(self, now: float, *, asked: bool = False) -> bool:
        """Returns whether there is a new directory: the file was written, is valid, and its content has changed.

        Looking at an unchanged file costs one `stat`, unless `asked` forces a read. If the file is invalid, the last
        valid directory stays in use.
        """
        due = self._rearm(now) or asked
        signature = _signature(self._file)
        if signature == self._seen and not due:
            self.read_at_s = now if self.online else self.read_at_s
            return False
        self._seen = None  # so that a file that cannot be read is tried again at the next call
        try:
            data = read_file(self._file)
            self._seen = signature
            accepted = self._accept(data)
            self.read_at_s = now
            return accepted
        except PostroadError as fault:
            self._fail(str(fault))
            return False

    def _rearm(self, now: float) -> bool:
        """Whether one of the update timers has run out. Restarts those that have."""
        due = False
        if now >= self.sites_update_at:
            self.sites_update_at = now + self._timers.sites_update_s
            due = True
        if now >= self.site_gates_update_at:
            self.site_gates_update_at = now + self._timers.site_gates_update_s
            due = True
        return due

    def _accept(self, data: bytes) -> bool:
        digest = sha256(data).digest()
        if digest == self._digest:
            self._recover()
            return False
        self.directory = self._read(data)
        self._digest = digest
        self._recover()
        log.info("directory read", extra={"file": self._file, "managers": len(self.directory.managers)})
        self._log_review()
        return True

    def _read(self, data: bytes) -> Directory:
        directory = read_directory(load_enterprise(self._file, data))
        if self.directory.managers and not directory.managers:
            # Some editors truncate a file before they write it, which leaves an empty file for a moment.
            fault = "is missing: the file no longer has any; the last valid directory stays in use"
            raise ConfigurationError(str(self._file), "manager", fault)
        return directory

    def _fail(self, sentence: str) -> None:
        if sentence == self.last_error:
            return
        self.failures += 1
        self.last_error = sentence
        log.error(
            "the directory cannot be read, and the last valid one stays in use",
            extra={"reason": sentence, "failures": self.failures},
        )

    def _recover(self) -> None:
        if self.last_error is not None:
            log.info("the directory is valid again", extra={"file": self._file})
        self.last_error = None

    def _log_review(self) -> None:
        sentences = review(self.directory)
        for sentence in sentences[:MAX_SENTENCES]:
            log.warning("directory", extra={"file": self._file, "fault": sentence})
        if len(sentences) > MAX_SENTENCES:
            log.warning("directory", extra={"file": self._file, "more_faults": len(sentences) - MAX_SENTENCES})


def export_enterprise(directory: Directory, watch: Watch | None, *, administrator: bool = True) -> str:
    """The directory as a file, with the access lists of its queues for an administrator. A comment at the top says what
    is left out. Blocks."""
    if watch is None or not administrator:
        comment = "" if watch is None else "# access lists are left out: only administrators may see them\n"
        return comment + format_enterprise(directory)
    try:
        found = watch.access_lists()
    except DirectoryError as fault:
        return f"# access lists are left out: {' '.join(str(fault).split())}\n" + format_enterprise(directory)
    hidden = 0 if watch.kind == DirectoryWatch.kind else sum(each.identifier not in found for each in directory.queues)
    comment = f"# access lists left out, because this account cannot read them: {hidden}\n" if hidden else ""
    return comment + format_enterprise(directory, found)


def _signature(file: Path) -> Signature:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
