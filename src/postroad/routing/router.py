"""The routing of one running queue manager: its table, the timer that renews it, and a cache of answers.

This does no I/O: the owner of the clock and the directory calls `run_timers` and `initialize`.
"""

from __future__ import annotations

from uuid import UUID

from postroad.directory.objects import signing_certificates
from postroad.directory.snapshot import Directory
from postroad.errors import NoRoute
from postroad.names import ConnectorName, DirectName, FormatName, MachineName, PathName, PrivateName, PublicName
from postroad.routing.hops import NextHops, get_next_hops
from postroad.routing.routes import Routes

QUERY_S = 3_600.0  # [MS-MQBR] 3.1.3, QueueManager Query Timer


class Router:
    """Answers from one snapshot of the directory, until `initialize` brings another one.

    `due_at` is when the QueueManager Query Timer fires.
    """

    def __init__(self, identifier: UUID, directory: Directory, now: float, query_s: float = QUERY_S) -> None:
        self._identifier = identifier
        self._query_s = query_s
        self.initialize(directory, now)

    def initialize(self, directory: Directory, now: float) -> None:
        """[MS-MQBR] 3.1.3.1: makes a new table, even if this is no longer a site gate, and starts the timer."""
        self.directory = directory
        self.routes = Routes(directory)
        self.table = self.routes.table_of(self._identifier)
        self.due_at = now + self._query_s
        self._answers: dict[UUID, NextHops | str] = {}  # a text says why there are none

    def run_timers(self, directory: Directory, now: float) -> bool:
        """[MS-MQBR] 3.1.6.1: returns whether the timer fired and the table was made again from `directory`."""
        if now < self.due_at:
            return False
        self.initialize(directory, now)
        return True

    # What queues ask of the directory

    def locate(self, name: PublicName) -> UUID | None:
        """The manager that has the public queue; None if the directory does not know it."""
        try:
            return self.destination(name)
        except NoRoute:
            return None

    def public_name(self, path: PathName) -> PublicName | None:
        """The format name of a public queue of another manager; None if the directory does not know it."""
        manager = self.directory.manager_named(path.computer)
        queues = () if manager is None else self.directory.queues_of(manager.identifier)
        found = next((each for each in queues if each.pathname.tail == path.tail), None)
        return None if found is None else PublicName(found.identifier)

    def base_priority(self, name: FormatName) -> int:
        """[MS-MQMQ] 2.3.1.6: only a public format name has one; private queues and direct names count as 0."""
        queue = self.directory.queue(name.guid) if isinstance(name, PublicName) else None
        return 0 if queue is None else queue.base_priority

    def public_keys(self, identifier: UUID) -> bytes:
        """What encrypts messages to a manager; empty if the directory does not know it."""
        entry = self.directory.manager(identifier)
        return b"" if entry is None else entry.public_encryption_keys

    def certificates(self, identifier: UUID) -> tuple[bytes, ...]:
        """Those with which a manager signs for itself, [MS-MQDMPR] 3.1.1.1 PublicSigningKeyList; none if they cannot be
        read. Another thread may ask."""
        entry = self.directory.manager(identifier)
        return () if entry is None else signing_certificates(entry.public_signing_key_list)

    def manager_name(self, identifier: UUID) -> str | None:
        entry = self.directory.manager(identifier)
        return None if entry is None else entry.computer_name

    # Routes

    def next_hops(self, destination_id: UUID) -> NextHops:
        """The next hops of a message for this queue manager. Raises NoRoute if there are none. Cached until
        `initialize`."""
        answer = self._answers.get(destination_id)
        if answer is None:
            try:
                answer = get_next_hops(self.directory, self.table, self._identifier, destination_id)
            except NoRoute as fault:
                answer = str(fault)
            # do not cache unknown managers, of which there could be any number
            if self.directory.manager(destination_id) is not None:
                self._answers[destination_id] = answer
        if isinstance(answer, str):
            raise NoRoute(answer)
        return answer

    def next_hops_to(self, name: FormatName) -> NextHops | None:
        """The next hops for a queue's name. None for a direct name, which itself says where to connect."""
        destination_id = self.destination(name)
        return None if destination_id is None else self.next_hops(destination_id)

    def destination(self, name: FormatName) -> UUID | None:
        """[MS-MQQB] 3.1.7.4: the queue manager that has the queue. None for a direct name. Raises NoRoute if it is
        unknown.

        For a public name, the specification returns the identifier of the queue object, but means that of its queue
        manager.
        """
        match name:
            case DirectName():
                return None
            case PrivateName() | MachineName():
                return name.guid
            case PublicName() | ConnectorName():
                queue = self.directory.queue(name.guid)
                if queue is None:
                    raise NoRoute(f"{name} is not a queue of the directory ([MS-MQQB] 3.1.7.4)")
                return queue.queue_manager_identifier
        raise NoRoute(f"a routed name must be the name of one queue, got {name} ([MS-MQBR] 1.4)")
