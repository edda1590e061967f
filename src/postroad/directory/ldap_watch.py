"""Follows a domain in Active Directory: reads it, asks for changes, and keeps the last good copy for bad times.

Every call blocks: the event loop calls in a thread. There is no clock here: the caller passes the time.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from postroad.directory.distinguished_names import normal
from postroad.directory.domain_copy import Changes, DomainCopy, Stamp, change_lines, parse_line, stamp_line
from postroad.directory.domain_reader import MAX_COPY_BYTES, DomainReader, encode_request
from postroad.directory.join_check import check_join
from postroad.directory.ldap_connection import LdapConnection, LdapSettings, connect
from postroad.directory.review import review
from postroad.directory.watch import MAX_SENTENCES, UpdateTimers
from postroad.errors import DirectoryError, LdapError, LdapFault
from postroad.reports.enterprise import JoinCheck
from postroad.runtime.private_files import make_private_directory, open_private

log = logging.getLogger(__name__)

COPY_FILE = "directory-copy"  # in the data directory
_READER = "postroad.directory.domain_reader"
_MAX_LINE_BYTES = 64 << 20
_FULL_READ_S = 3600.0  # a controller that sends a little at a time ends here
_PAUSE = 29  # times the processor time of each part of a full read: messages get the rest of it
_COMPARED_AT_ONCE = 1000  # objects that are looked for at each refresh, where the user sees no deleted ones
_STAMP_S = 600.0  # after how long the kept copy says again that it is still true
_OLDEST_COPY_S = 7 * 86_400.0  # deleted objects are forgotten after 60 days or more: [MS-ADTS] 3.1.1.5.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSettings:
    """What to follow, and how. `own` is the name of this queue manager."""

    ldap: LdapSettings
    own: str
    copy_file: Path | None = None  # None: no copy is kept
    poll_s: float = 15.0
    publish: bool = False
    service_keytab: Path | None = None  # of this manager's own services
    online_s: float = 60.0  # [MS-MQDMPR] 3.1.2.5 Directory Online Timer
    timers: UpdateTimers = UpdateTimers()  # noqa: RUF009  (frozen)


class LdapWatch:
    """The domain as it was at the last read. Raises DirectoryError if there is neither a controller nor a copy.

    `online` is the opposite of DirectoryOffline, [MS-MQDMPR] 3.1.1.1: while it is False, everything is answered from
    the copy, and the Directory Online Timer decides when to ask again. `failures` counts failed reads. `last_error`
    says how the last read failed, and is None if it succeeded.
    """

    kind: ClassVar[str] = "ldap"

    def __init__(self, settings: DomainSettings, now: float, *, keep: bool = True) -> None:
        """Without `keep`, nothing is written."""
        self.settings = settings
        self.failures = 0
        self.last_error: str | None = None
        self.online = False
        self.online_at = now
        self.full_reads = 0
        self._keep = keep and settings.copy_file is not None
        self._lock = threading.Lock()
        self._connection: LdapConnection | None = None
        self._sees_deleted = False
        self._comparing: LdapConnection | None = None
        self._comparison: tuple[set[UUID], Iterator[UUID]] | None = None  # what was not found yet, and what is next
        self._stamped_at = now
        self._started = False
        self.sites_update_at = now + settings.timers.sites_update_s
        self.site_gates_update_at = now + settings.timers.site_gates_update_s
        self._copy = self._load_copy(now)
        self.directory, _ = self._copy.snapshot()
        try:
            self._refresh(now)
        except DirectoryError as fault:
            self._disconnect()
            if self._copy.stamp is None:
                raise
            self._fail(fault, now)
        else:
            self._recover(now)
        self._started = True

    @property
    def poll_s(self) -> float:
        return self.settings.poll_s

    @property
    def source(self) -> str:
        """The controller that was asked last."""
        return self.settings.ldap.servers[0] if self._copy.stamp is None else self._copy.stamp.url

    @property
    def read_at_s(self) -> float:
        """When a controller last confirmed that the directory is as it is here."""
        return self._copy.read_at_s

    def check(self) -> None:
        """A reload can always be tried: whatever the controllers answer, the last good copy stays."""

    def reload(self, now: float, *, asked: bool = False) -> bool:
        """Asks for changes. Returns whether there is a new directory.

        `asked` is the forced read of [MS-MQDMPR] 3.1.7.1.20: it asks while offline too, and if it fails, everything is
        as before but the error.
        """
        with self._lock:
            if not self.online and now < self.online_at and not asked:
                return False
            before = self.directory
            try:
                self._refresh(now)
            except DirectoryError as fault:
                self._disconnect()
                self._fail(fault, now, forced=asked)
            else:
                self._recover(now)
            return self.directory is not before

    def join(self, now: float) -> JoinCheck | None:
        return check_domain(self.settings, now)

    def access_lists(self) -> Mapping[UUID, bytes]:
        """It asks over a connection of its own: a manager keeps only the lists of its own queues."""
        with connect(self.settings.ldap) as connection:
            return dict(DomainReader(connection, self.settings.own).access_lists())

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    # One read

    def _refresh(self, now: float) -> None:
        reader = self._reader()
        stamp = reader.stamp()
        copy = self._copy
        everything, configuration = self._due(now)
        if everything or not _continues(copy, stamp, now):
            self._read_everything(stamp, now)
            return
        assert copy.stamp is not None
        changes = reader.changes(copy, stamp) if stamp.usn != copy.stamp.usn else Changes()
        if configuration:
            changes.add(_configuration(reader, copy))
        if not self._sees_deleted:
            changes.gone |= self._missing(reader)
        differs = copy.apply(changes)
        copy.confirm(stamp, now)
        if differs or changes.faults:
            self._use(changes.faults)
            self._append(changes, now)
        elif now - self._stamped_at >= _STAMP_S:
            self._append(changes, now)

    def _missing(self, reader: DomainReader) -> set[UUID]:
        """The copy's objects that no longer exist. It looks at a part of all objects at each refresh, and knows after
        the last part, so that neither messages nor other changes wait for it."""
        if self._comparing is None:
            # Of one connection, a controller remembers only a few answers that have not ended.
            self._comparing = connect(self.settings.ldap)
        if self._comparison is None:
            found = DomainReader(self._comparing, self.settings.own).identifiers()
            self._comparison = self._copy.identifiers(), found
        unseen, entries = self._comparison
        part = list(islice(entries, _COMPARED_AT_ONCE))
        unseen.difference_update(part)
        if len(part) == _COMPARED_AT_ONCE:
            return set()
        self._comparison = None
        gone = {each for each in unseen if self._copy.knows(each) and not reader.exists(each)}
        if gone:  # a domain in which nothing was deleted yet shows no deleted objects to anybody
            self._sees_deleted = reader.sees_deleted()
        return gone

    def _reader(self) -> DomainReader:
        connection = self._connection
        if connection is not None:
            try:
                connection.refresh()
            except LdapError:  # it was idle for too long, or the controller was restarted
                self._disconnect()
                connection = None
        if connection is None:
            self._connection = connection = connect(self.settings.ldap)
            self._sees_deleted = DomainReader(connection, self.settings.own).sees_deleted()
        return DomainReader(connection, self.settings.own)

    def _disconnect(self) -> None:
        for connection in (self._connection, self._comparing):
            if connection is not None:
                connection.close()
        self._connection = self._comparing = self._comparison = None

    def _due(self, now: float) -> tuple[bool, bool]:
        """Whether to read everything, and whether to read all but the queues. Restarts the timers that have run out."""
        timers = self.settings.timers
        sites, gates = now >= self.sites_update_at, now >= self.site_gates_update_at
        if sites:
            self.sites_update_at = now + timers.sites_update_s
        if gates:
            self.site_gates_update_at = now + timers.site_gates_update_s
        return sites, gates

    def _read_everything(self, stamp: Stamp, now: float) -> None:
        """Reads everything, in a process of its own."""
        copy = DomainCopy()
        faults: list[str] = []
        file = self.settings.copy_file if self._keep else None
        new = None if file is None else file.with_name(f"{file.name}.new")
        with _Writer(new) as writer:
            for line in self._lines(stamp):
                started = time.thread_time()
                found = parse_line(line)
                if not isinstance(found, Changes):
                    raise LdapError(LdapFault.BAD_ANSWER, "the process that reads the directory was cut off")
                copy.apply(found)
                faults += found.faults
                writer.write(line)
                if self._started:  # the manager works, and needs the interpreter for its messages
                    time.sleep(_PAUSE * (time.thread_time() - started))
            copy.confirm(stamp, now)
            writer.write(stamp_line(stamp, now))
            writer.finish(file)
        self.full_reads += 1
        self._stamped_at = now
        self._copy = copy
        self._comparison = None
        self._use(faults)

    def _lines(self, stamp: Stamp) -> Iterator[bytes]:
        settings = replace(self.settings.ldap, servers=(stamp.url,))
        process = subprocess.Popen([sys.executable, "-m", _READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        timer = threading.Timer(_FULL_READ_S, process.kill)
        timer.start()
        try:
            with process:
                assert process.stdin is not None
                assert process.stdout is not None
                with suppress(BrokenPipeError):
                    process.stdin.write(encode_request(settings, self.settings.own))
                    process.stdin.close()
                while line := process.stdout.readline(_MAX_LINE_BYTES):
                    if line.startswith(b"["):
                        fault, sentence, code = json.loads(line)
                        raise LdapError(LdapFault[fault], sentence, code)
                    if b' ["stamp"' in line[:40]:  # the child's own, which says that it has sent everything
                        return
                    yield line
            code = process.returncode
            raise LdapError(LdapFault.NO_ANSWER, f"the process that reads the directory ended with code {code}")
        finally:
            timer.cancel()
            process.kill()

    def _use(self, faults: list[str]) -> None:
        """Makes the copy the directory."""
        self.directory, more = self._copy.snapshot()
        counts = {name: len(getattr(self.directory, name)) for name in ("sites", "links", "managers", "queues")}
        log.info("directory read", extra={"source": self.source, **counts})
        sentences = [*faults, *more, *review(self.directory)]
        for sentence in sentences[:MAX_SENTENCES]:
            log.warning("directory", extra={"source": self.source, "fault": sentence})
        if len(sentences) > MAX_SENTENCES:
            more_faults = len(sentences) - MAX_SENTENCES
            log.warning("directory", extra={"source": self.source, "more_faults": more_faults})

    def _fail(self, fault: DirectoryError, now: float, *, forced: bool = False) -> None:
        sentence = str(fault)
        if self.online or sentence != self.last_error:
            log.error(
                "the directory cannot be read, and the last good copy stays in use",
                extra={"reason": sentence, "age_s": round(now - self._copy.read_at_s)},
            )
        self.failures += 1
        self.last_error = sentence
        if not forced:
            self.online = False
            self.online_at = now + self.settings.online_s

    def _recover(self, now: float) -> None:
        if self.last_error is not None:
            log.info("the directory can be read again", extra={"source": self.source})
        self.last_error = None
        self.online = True

    # The last good copy

    def _load_copy(self, now: float) -> DomainCopy:
        """The kept copy; an empty one if there is none, or it is damaged or of another domain."""
        copy, file = DomainCopy(), self.settings.copy_file
        if file is None:
            return copy
        try:
            if file.stat().st_size > 2 * MAX_COPY_BYTES:
                raise DirectoryError("is too large")
            with file.open("rb") as stream:
                copy.read(iter(lambda: stream.readline(_MAX_LINE_BYTES), b""))
            copy.snapshot()
        except FileNotFoundError:
            return DomainCopy()
        except (OSError, DirectoryError) as fault:
            log.warning("the kept copy of the directory is not used", extra={"file": file, "reason": fault})
            return DomainCopy()
        assert copy.stamp is not None
        base = self.settings.ldap.base
        if base is not None and copy.stamp.domain != normal(base):
            return DomainCopy()
        return copy

    def _append(self, changes: Changes, now: float) -> None:
        """Adds changes to the kept copy. The next full read makes it small again."""
        file, stamp = self.settings.copy_file, self._copy.stamp
        if file is None or stamp is None or not self._keep:
            return
        self._stamped_at = now
        lines = b"".join((*change_lines(replace(changes, faults=[])), stamp_line(stamp, now)))
        try:
            with os.fdopen(open_private(file, os.O_WRONLY | os.O_APPEND), "ab") as stream:
                stream.write(lines)
                if stream.tell() > MAX_COPY_BYTES:
                    self.sites_update_at = now
        except OSError as fault:
            log.warning("the copy of the directory cannot be kept", extra={"file": file, "reason": fault.strerror})


class _Writer:
    """A new copy beside the old one, which it replaces once it is complete. A full disk only means no copy."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._stream = None
        if file is not None:
            try:
                make_private_directory(file.parent)  # the first start has none yet
                self._stream = os.fdopen(open_private(file, os.O_WRONLY | os.O_TRUNC), "wb")
            except OSError as fault:
                self._warn(fault)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None and self._file is not None:
            self._stream.close()
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def write(self, line: bytes) -> None:
        if self._stream is not None:
            try:
                self._stream.write(line)
            except OSError as fault:
                self._warn(fault)

    def finish(self, file: Path | None) -> None:
        if self._stream is None or self._file is None or file is None:
            return
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._file.replace(file)
        except OSError as fault:
            self._warn(fault)

    def _warn(self, fault: OSError) -> None:
        log.warning("the copy of the directory cannot be kept", extra={"file": self._file, "reason": fault.strerror})
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(OSError):
                stream.close()


def check_domain(settings: DomainSettings, now: float) -> JoinCheck:
    """Whether this queue manager could join the domain."""
    return check_join(settings.ldap, settings.own, now, publish=settings.publish, keytab=settings.service_keytab)


def _continues(copy: DomainCopy, stamp: Stamp, now: float) -> bool:
    """Whether the changes since the copy's stamp are all that the controller knows more."""
    old = copy.stamp
    return (
        old is not None
        and (old.domain, old.service, old.invocation) == (stamp.domain, stamp.service, stamp.invocation)
        and old.usn <= stamp.usn
        and now - copy.read_at_s < _OLDEST_COPY_S
    )


def _configuration(reader: DomainReader, copy: DomainCopy) -> Changes:
    """Everything but the queues, and what of that is gone."""
    found = reader.configuration()
    found.add(reader.managers())
    seen = {each.identifier for kind in (found.sites, found.links, found.managers) for each in kind}
    found.gone |= {*copy.sites, *copy.links, *copy.managers} - seen
    found.add(reader.own_queues())
    return found
