"""Reads a domain from a controller: everything, or what has changed. `main` reads everything in a process of its own.

A bad object becomes a sentence in `Changes.faults`, and the rest is read.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from uuid import UUID

from postroad.directory import distinguished_names as names
from postroad.directory import schema_mapping as schema
from postroad.directory.domain_copy import Changes, DomainCopy, Stamp, change_lines, stamp_line
from postroad.directory.ldap_connection import LdapConnection, LdapEntry, LdapSettings, Scope, connect
from postroad.directory.objects import QueueManager
from postroad.errors import DirectoryError, LdapError, LdapFault, PostroadError
from postroad.security.access import ADMINISTRATORS
from postroad.security.descriptors import Acl, SecurityDescriptor

MAX_FAULTS = 1000  # sentences of one read; bad objects beyond are passed over in silence
MAX_COPY_BYTES = 2 << 30  # of all objects of a domain, as lines
_NAMES_OF_A_FILTER = 100
_QUEUES_AT_ONCE = 1000
_MOST_NUMBERS = 500  # of changes in a filter
_CLOSED = SecurityDescriptor(owner=ADMINISTRATORS, dacl=Acl()).encode()

_Values = Mapping[str, tuple[bytes, ...]]


class DomainReader:
    """Reads by one connection. `own` is the name of this queue manager: only its own objects are read with their
    descriptors."""

    def __init__(self, connection: LdapConnection, own: str) -> None:
        self._connection = connection
        self._own = own.lower()
        self._managers: dict[str, QueueManager] = {}  # by the normal DN

    def stamp(self) -> Stamp:
        """How far a read that starts now will go."""
        root = self._connection.root
        entry = self._connection.read(root.service, ["invocationId"])
        found = (entry.first("invocationid") if entry else None) or b""
        return Stamp(
            names.normal(self._connection.base), root.service, found.hex(), root.highest_usn, self._connection.url
        )

    # Everything

    def everything(self) -> Iterator[Changes]:
        """All objects, in parts: first all but queues, then some queues at a time."""
        yield self.configuration()
        yield self.managers()
        yield from self._queues(self._connection.base, names.equals("objectClass", schema.QUEUE_CLASS))
        yield self.own_queues()

    def configuration(self) -> Changes:
        """The enterprise, sites and routing links."""
        return self._configuration(())

    def managers(self) -> Changes:
        """All queue managers, with what their computers say of them."""
        found = Changes()
        entries = list(
            self._connection.search(
                self._connection.base,
                names.equals("objectClass", schema.CONFIGURATION_CLASS),
                schema.MANAGER_ATTRIBUTES,
                extended=True,
            )
        )
        self._map_managers(entries, found)
        return found

    def own_queues(self) -> Changes:
        """This manager's own queues once more, with their descriptors, and the manager itself with its own."""
        found = Changes()
        for manager in [each for each in self._managers.values() if each.computer_name.lower() == self._own]:
            with_descriptor = [*schema.MANAGER_ATTRIBUTES, schema.DESCRIPTOR_ATTRIBUTE]
            text = names.equals("objectClass", schema.CONFIGURATION_CLASS)
            entries = self._connection.search(manager.full_path, text, with_descriptor, scope=Scope.BASE, extended=True)
            self._map_managers(list(entries), found)
            queues = names.equals("objectClass", schema.QUEUE_CLASS)
            for part in self._queues(manager.full_path, queues, scope=Scope.CHILDREN, descriptors=True):
                found.add(part)
        return found

    def access_lists(self) -> Iterator[tuple[UUID, bytes]]:
        """Queue.Security of all queues whose lists the user can read."""
        text = names.equals("objectClass", schema.QUEUE_CLASS)
        wanted = ["objectGUID", schema.DESCRIPTOR_ATTRIBUTE]
        for entry in self._connection.search(self._connection.base, text, wanted):
            with suppress(DirectoryError):
                yield schema.guid(entry.attributes), schema.queue_security(entry.attributes)

    # What has changed

    def changes(self, copy: DomainCopy, stamp: Stamp) -> Changes:
        """All changes after the copy's stamp and up to another, with the objects that are gone, as far as the user sees
        them."""
        assert copy.stamp is not None
        self._managers = {names.normal(each.full_path): each for each in copy.managers.values()}
        newer = changed_between(copy.stamp.usn + 1, stamp.usn)
        found = self._configuration((newer,))
        self._changed_managers(copy, newer, found)
        for part in self._queues(
            self._connection.base, names.all_of(newer, names.equals("objectClass", schema.QUEUE_CLASS)), copy=copy
        ):
            found.add(part)
        found.gone |= self._deleted(copy, newer)
        if any(self._is_own(queue.queue_manager_identifier) for queue in found.queues) or any(
            self._is_own(manager.identifier) for manager in found.managers
        ):
            found.add(self.own_queues())
        return found

    def sees_deleted(self) -> bool:
        """Whether this user sees deleted objects. By default, only administrators of the domain do."""
        place = names.child("CN", "Deleted Objects", self._connection.root.domain)
        with suppress(LdapError):
            found = self._connection.search(place, "(objectClass=*)", ["1.1"], scope=Scope.CHILDREN, deleted=True)
            return next(found, None) is not None
        return False

    def exists(self, identifier: UUID) -> bool:
        return self._connection.read(f"<GUID={identifier}>", ["objectGUID"]) is not None

    def identifiers(self) -> Iterator[UUID]:
        """Those of all objects of a copy, page by page: other questions may come in between."""
        classes = (schema.CONFIGURATION_CLASS, schema.QUEUE_CLASS)
        text = names.any_of(*(names.equals("objectClass", each) for each in classes))
        for entry in self._connection.search(self._connection.base, text, ["objectGUID"]):
            yield schema.guid(entry.attributes)
        for place, kind in (self._sites_place, schema.SITE_CLASS), (self._links_place, schema.LINK_CLASS):
            for entry in self._search_place(place, names.equals("objectClass", kind), ["objectGUID"]):
                yield schema.guid(entry.attributes)

    def _deleted(self, copy: DomainCopy, newer: str) -> set[UUID]:
        text = names.all_of(newer, names.equals("isDeleted", "TRUE"))
        found: set[UUID] = set()
        for base in {self._connection.root.domain, self._connection.root.configuration}:
            place = names.child("CN", "Deleted Objects", base)
            try:
                for entry in self._connection.search(place, text, ["objectGUID"], deleted=True):
                    found.add(schema.guid(entry.attributes))
            except LdapError as fault:
                if fault.fault is not LdapFault.NOT_FOUND:
                    raise
        return {each for each in found if copy.knows(each)}

    # One kind at a time

    @property
    def _sites_place(self) -> str:
        return names.child("CN", "Sites", self._connection.root.configuration)

    @property
    def _links_place(self) -> str:
        return names.child("CN", "MsmqServices", names.child("CN", "Services", self._connection.root.configuration))

    def _search_place(self, place: str, text: str, attributes: Sequence[str]) -> Iterator[LdapEntry]:
        """The children of a place that may be missing."""
        try:
            yield from self._connection.search(place, text, attributes, scope=Scope.CHILDREN, extended=True)
        except LdapError as fault:
            if fault.fault is not LdapFault.NOT_FOUND:
                raise

    def _configuration(self, more: tuple[str, ...]) -> Changes:
        found = Changes()
        for entry in self._search_place(self._sites_place, _filter(schema.SITE_CLASS, more), schema.SITE_ATTRIBUTES):
            dn = _plain(entry)
            with _passing_over(dn, entry, found):
                found.sites.append(schema.site_of(dn, entry.attributes))
        for entry in self._search_place(self._links_place, _filter(schema.LINK_CLASS, more), schema.LINK_ATTRIBUTES):
            dn = _plain(entry)
            with _passing_over(dn, entry, found):
                found.links.append(schema.link_of(dn, entry.attributes))
        place = self._links_place
        enterprise = self._connection.read(place, schema.ENTERPRISE_ATTRIBUTES, _filter(schema.ENTERPRISE_CLASS, more))
        if enterprise is not None:
            with _passing_over(place, enterprise, found):
                root = self._connection.root.root_domain
                found.enterprise = schema.enterprise_of(place, enterprise.attributes, root)
        return found

    def _changed_managers(self, copy: DomainCopy, newer: str, found: Changes) -> None:
        wanted = names.equals("objectClass", schema.CONFIGURATION_CLASS)
        base = self._connection.base
        entries = {
            names.normal(_plain(entry)): entry
            for entry in self._connection.search(
                base, names.all_of(newer, wanted), schema.MANAGER_ATTRIBUTES, extended=True
            )
        }
        # A computer that is renamed, or gets another address, does not change the object of its queue manager.
        for computer in self._connection.search(
            base, names.all_of(newer, names.equals("objectClass", "computer")), ["objectGUID"]
        ):
            manager = copy.computers.get(schema.guid(computer.attributes))
            if manager is not None:
                for entry in self._connection.search(
                    f"<GUID={manager}>", wanted, schema.MANAGER_ATTRIBUTES, scope=Scope.BASE, extended=True
                ):
                    entries[names.normal(_plain(entry))] = entry
        self._map_managers(list(entries.values()), found)

    def _map_managers(self, entries: list[LdapEntry], found: Changes) -> None:
        computers = self._computers([_plain(entry) for entry in entries])
        for entry in entries:
            dn = _plain(entry)
            with _passing_over(dn, entry, found):
                identifier, computer = computers.get(names.normal(names.parent(dn)), (None, {}))
                manager = schema.manager_of(dn, entry.attributes, computer)
                found.managers.append(manager)
                self._managers[names.normal(dn)] = manager
                if identifier is not None:
                    found.computers[identifier] = manager.identifier

    def _computers(self, managers: list[str]) -> dict[str, tuple[UUID | None, _Values]]:
        """The computers of managers, by their normal DNs."""
        found: dict[str, tuple[UUID | None, _Values]] = {}
        wanted: list[str] = []
        for dn in managers:
            with suppress(DirectoryError):
                wanted.append(schema.computer_name(dn))
        for place in range(0, len(wanted), _NAMES_OF_A_FILTER):
            part = names.any_of(*(names.equals("cn", name) for name in wanted[place : place + _NAMES_OF_A_FILTER]))
            text = names.all_of(names.equals("objectClass", "computer"), part)
            for entry in self._connection.search(
                self._connection.base, text, schema.COMPUTER_ATTRIBUTES, extended=True
            ):
                with suppress(DirectoryError):
                    found[names.normal(_plain(entry))] = schema.guid(entry.attributes), entry.attributes
        return found

    def _queues(
        self,
        base: str,
        text: str,
        *,
        scope: Scope = Scope.SUBTREE,
        descriptors: bool = False,
        copy: DomainCopy | None = None,
    ) -> Iterator[Changes]:
        """Queues of known managers. With a copy, managers that have moved are read again."""
        attributes = [*schema.QUEUE_ATTRIBUTES, *([schema.DESCRIPTOR_ATTRIBUTE] if descriptors else [])]
        found = Changes()
        read_again = False
        for entry in self._connection.search(base, text, attributes, scope=scope):
            with _passing_over(entry.dn, entry, found):
                place = names.normal(names.parent(entry.dn))
                if place not in self._managers and copy is not None and not read_again:
                    read_again = True
                    found.add(self.managers())
                manager = self._managers.get(place)
                if manager is None:
                    raise DirectoryError("its queue manager is not among those of the directory")
                queue = schema.queue_of(entry.dn, entry.attributes, manager)
                if descriptors:
                    queue = replace(queue, security=_security(entry, found))
                found.queues.append(queue)
            if len(found.queues) >= _QUEUES_AT_ONCE:
                yield found
                found = Changes()
        yield found

    def _is_own(self, identifier: UUID) -> bool:
        return any(
            each.identifier == identifier and each.computer_name.lower() == self._own
            for each in self._managers.values()
        )


@contextmanager
def _passing_over(dn: str, entry: LdapEntry, found: Changes) -> Iterator[None]:
    """Makes a fault of one object a sentence, and goes on with the next object. An earlier version of it goes."""
    try:
        yield
    except LdapError:
        raise
    except PostroadError as fault:
        if len(found.faults) < MAX_FAULTS:
            found.faults.append(f"{dn}: {fault}")
        with suppress(DirectoryError):
            found.gone.add(schema.guid(entry.attributes))


def changed_between(first: int, last: int) -> str:
    """Samba has no index for "at least": to find a few changes, it would look at all objects."""
    if last - first < _MOST_NUMBERS:
        return names.any_of(*(names.equals("uSNChanged", str(number)) for number in range(first, last + 1)))
    return names.at_least("uSNChanged", first)


def _security(entry: LdapEntry, found: Changes) -> bytes:
    try:
        return schema.queue_security(entry.attributes)
    except DirectoryError as fault:
        found.faults.append(f"{entry.dn}: only administrators may use this queue: {fault}")
        return _CLOSED


def _plain(entry: LdapEntry) -> str:
    return schema.split_extended(entry.dn)[1]


def _filter(kind: str, more: tuple[str, ...]) -> str:
    wanted = names.equals("objectClass", kind)
    return names.all_of(*more, wanted) if more else wanted


# In a process of its own: decoding 100,000 objects would hold the interpreter, and with it the event loop.


def encode_request(settings: LdapSettings, own: str) -> bytes:
    return json.dumps({"own": own, "settings": asdict(settings)}, default=str).encode()


def main() -> None:
    """Reads a request from standard input, and writes lines: all objects and a stamp, or one line with an error."""
    if sys.platform != "win32":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the manager has stopped, and nobody reads any longer
    request = json.load(sys.stdin.buffer)
    given = request["settings"]
    paths = {name: Path(given[name]) for name in ("password_file", "keytab", "ca_certificates") if given[name]}
    settings = LdapSettings(**given | paths | {"servers": tuple(given["servers"])})
    assert set(given) == {each.name for each in fields(LdapSettings)}
    output = sys.stdout.buffer
    try:
        with connect(settings) as connection:
            reader = DomainReader(connection, request["own"])
            stamp = reader.stamp()
            size = 0
            for changes in reader.everything():
                for line in change_lines(changes):
                    size += len(line)
                    if size > MAX_COPY_BYTES:
                        raise LdapError(LdapFault.SIZE_LIMIT, f"{connection.url} has over {MAX_COPY_BYTES >> 30} GiB")
                    output.write(line)
            output.write(stamp_line(stamp, 0.0))
    except LdapError as fault:
        output.write(json.dumps([fault.fault.name, str(fault), fault.code]).encode() + b"\n")
    except PostroadError as fault:
        output.write(json.dumps([LdapFault.BAD_ANSWER.name, str(fault), None]).encode() + b"\n")
    output.flush()


if __name__ == "__main__":
    main()
