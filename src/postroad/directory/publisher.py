"""Writes to Active Directory what one queue manager may write there: its own object and its public queues.

[MS-MQDSSM] 3.1.6.1, 3.1.6.2 and 3.1.6.7. Every call blocks, connects anew, and raises a PostroadError that says what
the directory refused; one call at a time. Nothing is deleted but queues that the manager has made, and the settings of
a routing server that is none any longer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Final, TypeAlias
from uuid import UUID

from postroad.directory import distinguished_names as names
from postroad.directory.ldap_connection import LdapConnection, LdapEntry, LdapSettings, SdFlags, connect
from postroad.directory.schema_mapping import CONFIGURATION_CLASS, LONG_CN, QUEUE_CLASS, SETTINGS_CLASS, guid
from postroad.errors import (
    AccessDenied,
    DirectoryError,
    InvalidArgument,
    LdapError,
    LdapFault,
    QueueExists,
    WrongIdentity,
)
from postroad.runtime.version import RELEASE
from postroad.security.descriptors import Ace, AceType, Acl, SecurityDescriptor, Sid
from postroad.security.directory_rights import DirectoryRight, directory_descriptor
from postroad.validation.queue_properties import MAX_QUOTA_KB, QueuePrivacy, QueueSettings

Values: TypeAlias = Mapping[str, Sequence[bytes | str]]

_MSMQ: Final = "msmq"  # the name of the object of every queue manager, below its computer
_SETTINGS: Final = "MSMQ Settings"
_OTHER_SYSTEM: Final = 0  # mSMQOSType, 3.1.6.1.1.4: not Windows
_ROUTING_SERVICE: Final = 1  # mSMQServiceType, 3.1.6.1.1.5
_HASH_POLYNOMIAL: Final = 0x9B619023
_HEAD: Final = 55  # 3.1.6.1.2.5
_MOST_SUBNETS: Final = 10_000
_PRIVACY: Final = {QueuePrivacy.NONE: "0", QueuePrivacy.OPTIONAL: "1", QueuePrivacy.BODY: "2"}
_FULL: Final = DirectoryRight.FULL.value
# who may do what with a new object of a queue manager, besides the account that makes it: the schema's own default
_ADMINISTRATION: Final = (("S-1-5-18", _FULL), ("S-1-5-11", 0x20094))
# of a configuration that exists, what the account must be able to write
_OWN_ATTRIBUTES: Final = (
    "mSMQEncryptKey",
    "mSMQSignKey",
    "mSMQServiceType",
    "mSMQRoutingServices",
    "mSMQQuota",
    "mSMQSites",
)
_CONSTRAINTS: Final = {19, 20, 21, 64, 65, 71}  # the LDAP results about a value, and not about a right or a state


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnObject:
    """What a queue manager says of itself. `routing_server` and `site` are None to keep what the directory has."""

    public_keys: bytes  # MQDSPUBLICKEYS
    signing_keys: bytes
    quota_kb: int | None
    journal_quota_kb: int | None
    routing_server: bool | None = None
    site: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A manager's object in the directory. `computer` is the name that the domain has for the manager."""

    identifier: UUID
    dn: str
    computer: str
    created: bool


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right that publishing needs and the account does not have, and the command that grants it."""

    what: str
    dn: str
    command: str


class Publisher:
    """For the manager of this name. `known` is the id that it had at its last start, or None."""

    def __init__(self, settings: LdapSettings, name: str) -> None:
        self._settings = settings
        self._name = name

    # The manager's own object

    def check(self, known: UUID | None, *, empty: bool) -> Joined | None:
        """The manager's object as it is. None if `join` would make it. Raises what `join` would raise, as far as
        reading can tell, and writes nothing."""
        with connect(self._settings) as directory:
            joined = self._find(directory, known)
            _check_identity(known, joined, empty=empty)
            return joined

    def join(self, own: OwnObject, known: UUID | None, *, empty: bool) -> Joined:
        """Makes the manager's object, or brings it up to date. A `known` object stays the manager's, wherever the
        domain has moved or renamed its computer. Only a manager whose data directory is `empty` may get another id:
        ids of messages, names of queues and other managers' memory contain it."""
        with connect(self._settings) as directory:
            joined = self._find(directory, known)
            _check_identity(known, joined, empty=empty)
            if joined is None:
                joined = self._create_own(directory, own)
            else:
                self._update_own(directory, joined, own)
            self._write_settings(directory, joined)
            return joined

    def _find(self, directory: LdapConnection, known: UUID | None) -> Joined | None:
        wanted = ["objectGUID", "objectClass"]
        if known is not None:
            entry = directory.read(f"<GUID={known}>", wanted, names.equals("objectClass", CONFIGURATION_CLASS))
            if entry is not None and not names.is_deleted(entry.dn):
                joined = _joined(entry)
                self._refuse_copy(directory, joined)
                return joined
        entry = directory.read(names.child("CN", _MSMQ, self._computer(directory)), wanted)
        return None if entry is None else _joined(entry)

    def _refuse_copy(self, directory: LdapConnection, joined: Joined) -> None:
        """A computer may be renamed. If there is another computer of the manager's name, its data directory is a copy
        of somebody else's, and two computers must not be one manager."""
        if joined.computer.lower() == self._name.lower():
            return
        others = [names.normal(each) for each in self._computers(directory)]
        if others and names.normal(names.parent(joined.dn)) not in others:
            raise WrongIdentity(
                f"the id in the data directory, {joined.identifier}, is that of another computer, {joined.computer}: "
                f"the data directory is a copy. Start {self._name} with an empty one"
            )

    def _computer(self, directory: LdapConnection) -> str:
        """The DN of the manager's computer."""
        name, found = self._name, self._computers(directory)
        if not found:
            raise DirectoryError(
                f"the domain has no computer {name} under {directory.base}: join this computer to the domain, create "
                "the computer there, or set manager.name to the computer's name"
            )
        if len(found) > 1:
            listed = "; ".join(found[:5])
            raise DirectoryError(f"the domain must have one computer {name}, but has {len(found)}: {listed}")
        return found[0]

    def _computers(self, directory: LdapConnection) -> list[str]:
        """The DNs of the computers that have the manager's name."""
        name = self._name
        domain = ".".join(value for kind, value in names.split(directory.root.domain) if kind.lower() == "dc")
        text = names.all_of(
            names.equals("objectClass", "computer"),
            names.any_of(
                names.equals("sAMAccountName", f"{name}$"),
                names.equals("cn", name),
                names.equals("dNSHostName", f"{name}.{domain}"),
            ),
        )
        return [each.dn for each in directory.search(directory.base, text, ["objectGUID"], limit=100)]

    def _create_own(self, directory: LdapConnection, own: OwnObject) -> Joined:
        dn = names.child("CN", _MSMQ, self._computer(directory))
        site = _site(directory, own.site)
        values = {
            "objectClass": [CONFIGURATION_CLASS],
            **_configuration(own),
            **_services(routing_server=bool(own.routing_server)),
            "mSMQSites": [site.bytes_le],
        }
        values["nTSecurityDescriptor"] = [_own_descriptor(_account(directory)).encode()]
        with _explained("create", f"the queue manager's object {dn}", self._settings):
            directory.add(dn, values, SdFlags.DACL)
        entry = directory.read(dn, ["objectGUID"])
        if entry is None:
            raise DirectoryError(f"{directory.url} created {dn}, but does not find it")
        return _joined(entry, created=True)

    def _update_own(self, directory: LdapConnection, joined: Joined, own: OwnObject) -> None:
        """Writes what differs, so that a start without changes needs no right to write."""
        wanted = _configuration(own)
        if own.routing_server is not None:
            wanted |= _services(routing_server=own.routing_server)
        read = [*wanted, "mSMQSites"]
        entry = directory.read(joined.dn, read)
        if entry is None:
            raise DirectoryError(f"{directory.url} does not find {joined.dn} any longer")
        if own.site is not None or not entry.attributes.get("msmqsites"):
            wanted["mSMQSites"] = [_site(directory, own.site).bytes_le]
        changes = {name: values for name, values in wanted.items() if _bytes(values) != _held(entry, name)}
        if changes:
            with _explained("change", f"the queue manager's object {joined.dn}", self._settings):
                directory.modify(joined.dn, changes)

    # Routing servers, 3.1.6.1.1.3 and 3.1.6.7.1.9

    def _write_settings(self, directory: LdapConnection, joined: Joined) -> None:
        """The mSMQSettings of a routing server in each of its sites. Those of a manager that is none are removed."""
        entry = directory.read(joined.dn, ["mSMQSites", "mSMQRoutingServices", "mSMQServiceType"])
        if entry is None:
            return
        routing = entry.first("msmqroutingservices") == b"TRUE"
        for raw in entry.attributes.get("msmqsites", ()):
            site = None if len(raw) != 16 else directory.read(f"<GUID={UUID(bytes_le=raw)}>", ["cn"])
            if site is not None:
                server = names.child("CN", joined.computer, names.child("CN", "Servers", site.dn))
                self._write_site_settings(directory, joined, server, entry if routing else None)

    def _write_site_settings(
        self, directory: LdapConnection, joined: Joined, server: str, entry: LdapEntry | None
    ) -> None:
        dn = names.child("CN", _SETTINGS, server)
        held = directory.read(dn, ["mSMQQMID", "mSMQServices", "mSMQRoutingService"])
        if held is not None and held.first("msmqqmid") != joined.identifier.bytes_le:
            if entry is not None:
                raise DirectoryError(f"{dn} belongs to another queue manager: remove it, or rename one of the two")
            return
        with _explained("write", f"the settings of the routing server, {dn},", self._settings):
            if entry is None:
                if held is not None:
                    directory.delete(dn)
                return
            values: dict[str, Sequence[bytes | str]] = {
                "mSMQQMID": [joined.identifier.bytes_le],
                "mSMQServices": [entry.first("msmqservicetype") or str(_ROUTING_SERVICE)],
                "mSMQRoutingService": ["TRUE"],
            }
            if held is None:
                for parent, kind in ((names.parent(server), "serversContainer"), (server, "server")):
                    if directory.read(parent, ["objectClass"]) is None:
                        with _existing():
                            directory.add(parent, {"objectClass": [kind]})
                more = {"mSMQDsService": ["FALSE"], "mSMQDependentClientService": ["FALSE"]}
                directory.add(dn, {"objectClass": [SETTINGS_CLASS], **values, **more})
            elif any(_bytes(given) != _held(held, name) for name, given in values.items()):
                directory.modify(dn, values)

    # Public queues

    def create_queue(
        self, manager: UUID, name: str, settings: QueueSettings, type_id: UUID, descriptor: SecurityDescriptor
    ) -> UUID:
        """Create Directory Object, 3.1.6.1.2. Returns the id that the directory chose."""
        with connect(self._settings) as directory:
            parent = self._manager_dn(directory, manager)
            dn = names.child("CN", queue_cn(name), parent)
            written = directory_descriptor(descriptor, _account(directory)).encode()
            values = {
                "objectClass": [QUEUE_CLASS],
                **queue_values(settings, new=True),
                "mSMQQueueType": [type_id.bytes_le],
                "mSMQQueueNameExt": [queue_name_extension(name)] if queue_name_extension(name) else [],
                "nTSecurityDescriptor": [written],
            }
            with _explained("create", f"the queue {name}", self._settings, exists=name):
                directory.add(dn, values, SdFlags.DACL)
            entry = directory.read(dn, ["objectGUID"])
            if entry is None:
                raise DirectoryError(f"{directory.url} created {dn}, but does not find it")
            return guid(entry.attributes)

    def write_queue(
        self,
        manager: UUID,
        queue: UUID,
        settings: QueueSettings | None = None,
        descriptor: SecurityDescriptor | None = None,
    ) -> bool:
        """Write Directory, 3.1.6.7.2: the properties of a queue, its access list, or both. False if the directory has
        no such queue of this manager."""
        with connect(self._settings) as directory:
            dn = self._queue_dn(directory, manager, queue)
            if dn is None:
                return False
            values: dict[str, Sequence[bytes | str]] = {}
            if settings is not None:
                values |= queue_values(settings, new=False)
            if descriptor is not None:
                written = directory_descriptor(descriptor, _account(directory))
                values["nTSecurityDescriptor"] = [written.encode()]
            with _explained("change", f"the queue {dn}", self._settings):
                directory.modify(dn, values, sd_flags=None if descriptor is None else SdFlags.DACL)
            return True

    def delete_queue(self, manager: UUID, queue: UUID) -> None:
        """Delete Directory Object, 3.1.6.2.2. A queue that the directory does not have any longer is deleted."""
        with connect(self._settings) as directory:
            dn = self._queue_dn(directory, manager, queue)
            if dn is not None:
                with _explained("delete", f"the queue {dn}", self._settings), _existing(LdapFault.NOT_FOUND):
                    directory.delete(dn)

    def _manager_dn(self, directory: LdapConnection, manager: UUID) -> str:
        entry = directory.read(f"<GUID={manager}>", ["objectGUID"], names.equals("objectClass", CONFIGURATION_CLASS))
        if entry is None or names.is_deleted(entry.dn):
            raise DirectoryError(
                f"the directory has no object of this queue manager ({manager}) any longer: restore it from the "
                "directory's recycle bin or a backup, or begin with an empty data directory"
            )
        return entry.dn

    def _queue_dn(self, directory: LdapConnection, manager: UUID, queue: UUID) -> str | None:
        """The DN of a queue of this manager. An object elsewhere is nobody's to change, whatever its id."""
        parent = self._manager_dn(directory, manager)
        entry = directory.read(f"<GUID={queue}>", ["objectGUID"], names.equals("objectClass", QUEUE_CLASS))
        if entry is None or names.normal(names.parent(entry.dn)) != names.normal(parent):
            return None
        return entry.dn

    # Rights

    def missing_rights(self, known: UUID | None) -> tuple[MissingRight, ...]:
        """Which rights the account lacks for publishing. Raises DirectoryError if there is no computer."""
        with connect(self._settings) as directory:
            joined = self._find(directory, known)
            dn = self._computer(directory) if joined is None else joined.dn
            entry = directory.read(dn, ["allowedChildClassesEffective", "allowedAttributesEffective"])
            assert entry is not None
            children = {each.decode().lower() for each in entry.attributes.get("allowedchildclasseseffective", ())}
            writable = {each.decode().lower() for each in entry.attributes.get("allowedattributeseffective", ())}
            account = str(_account(directory))
        if joined is None:
            if CONFIGURATION_CLASS.lower() in children:
                return ()
            return (
                _missing(f"to create {CONFIGURATION_CLASS} below the computer", dn, "CC", _CONFIGURATION_GUID, account),
            )
        found = []
        if QUEUE_CLASS.lower() not in children:
            found.append(_missing("to create and delete public queues", dn, "CCDC", _QUEUE_GUID, account))
        lacking = [each for each in _OWN_ATTRIBUTES if each.lower() not in writable]
        if lacking:
            found.append(_missing(f"to write {', '.join(lacking)}", dn, "WP", None, account))
        return tuple(found)


# schemaIDGUID of the classes, for commands
_CONFIGURATION_GUID: Final = "9a0dc344-c100-11d1-bbc5-0080c76670c0"
_QUEUE_GUID: Final = "9a0dc343-c100-11d1-bbc5-0080c76670c0"


def _missing(what: str, dn: str, rights: str, kind: str | None, account: str) -> MissingRight:
    ace = f"(A;CI;{rights};;;{account})" if kind is None else f"(OA;CI;{rights};{kind};;{account})"
    return MissingRight(what, dn, f"samba-tool dsacl set --objectdn='{dn}' --sddl='{ace}'")


def _check_identity(known: UUID | None, joined: Joined | None, *, empty: bool) -> None:
    if empty or known is None or (joined is not None and joined.identifier == known):
        return
    found = "has no object for it" if joined is None else f"knows {joined.dn} as {joined.identifier}"
    raise WrongIdentity(
        f"this queue manager has the id {known} and queues or messages under it, but the directory {found}: the "
        "directory chooses ids, so a manager can join with an empty data directory only. Let its messages be received, "
        "keep its queues with `postroad definitions export`, start with an empty data directory, and import them"
    )


# Values


def queue_cn(name: str) -> str:
    """The cn of a queue, 3.1.6.1.2.5: at most 64 characters, of which a long name uses the last 9 for a hash.

    Backslashes are for DNs, and the connection adds them; they count for no length and no hash.
    """
    return name if len(name) < LONG_CN else f"{name[:_HEAD]}-{queue_name_hash(name):08x}"


def queue_name_extension(name: str) -> str:
    """mSMQQueueNameExt: what a long name has beyond its cn."""
    return "" if len(name) < LONG_CN else name[_HEAD:]


def queue_name_hash(name: str) -> int:
    """2.2.5: a CRC of the lower-cased UTF-16 units, each with its high byte first."""
    value, table = 0, _hash_table()
    for byte in name.lower().encode("utf-16-be"):
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    return value


@lru_cache(maxsize=1)
def _hash_table() -> tuple[int, ...]:
    found = []
    for index in range(256):
        value = index
        for _ in range(8):
            value = (value >> 1) ^ (_HASH_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return tuple(found)


def queue_values(settings: QueueSettings, *, new: bool) -> dict[str, Sequence[bytes | str]]:
    """3.1.6.1.2.2 and 3.1.6.7.2.2. A directory keeps no empty values: they are left out, and a change removes them."""
    values: dict[str, Sequence[bytes | str]] = {
        "mSMQLabelEx": [settings.label] if settings.label else [],
        "mSMQJournal": [_boolean(settings.journal)],
        "mSMQQueueQuota": [_quota(settings.quota_kb)],
        "mSMQQueueJournalQuota": [_quota(settings.journal_quota_kb)],
        "mSMQAuthenticate": [_boolean(settings.authenticate)],
        "mSMQPrivacyLevel": [_PRIVACY[settings.privacy]],
        "MSMQ-MulticastAddress": [settings.multicast_address] if settings.multicast_address else [],
        "mSMQBasePriority": [str(settings.base_priority)],
    }
    if new:
        values["mSMQTransactional"] = [_boolean(settings.transactional)]
    return values


def _configuration(own: OwnObject) -> dict[str, Sequence[bytes | str]]:
    """3.1.6.1.1.2, without what an administrator of the domain decides."""
    return {
        "mSMQEncryptKey": [own.public_keys] if own.public_keys else [],
        "mSMQSignKey": [own.signing_keys] if own.signing_keys else [],
        "mSMQQuota": [_quota(own.quota_kb)],
        "mSMQJournalQuota": [_quota(own.journal_quota_kb)],
        "mSMQForeign": [_boolean(False)],
        "mSMQOSType": [str(_OTHER_SYSTEM)],
        "mSMQComputerTypeEx": [f"Postroad {RELEASE}"],
    }


def _services(*, routing_server: bool) -> dict[str, Sequence[bytes | str]]:
    return {
        "mSMQServiceType": [str(_ROUTING_SERVICE if routing_server else 0)],
        "mSMQRoutingServices": [_boolean(routing_server)],
        "mSMQDsServices": [_boolean(False)],
        "mSMQDependentClientServices": [_boolean(False)],
    }


def _boolean(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _quota(quota_kb: int | None) -> str:
    """The attribute is signed, and the quota is not: 0xFFFFFFFF, no limit, is -1."""
    value = MAX_QUOTA_KB if quota_kb is None else quota_kb
    return str(value - (1 << 32) if value >= 1 << 31 else value)


def _bytes(values: Sequence[bytes | str]) -> tuple[bytes, ...]:
    return tuple(each.encode() if isinstance(each, str) else each for each in values)


def _held(entry: LdapEntry, name: str) -> tuple[bytes, ...]:
    return entry.attributes.get(name.lower(), ())


def _joined(entry: LdapEntry, *, created: bool = False) -> Joined:
    return Joined(guid(entry.attributes), entry.dn, names.split(entry.dn)[1][1], created)


def _own_descriptor(account: Sid) -> SecurityDescriptor:
    """3.1.6.1.1.8 in the directory's own rights: the account that publishes keeps them all, users see the object. What
    the computer's list lets its children inherit comes on top."""
    entries = ((str(account), _FULL), *_ADMINISTRATION)
    return SecurityDescriptor(dacl=Acl(tuple(Ace(AceType.ALLOW, mask, Sid.parse(sid)) for sid, mask in entries)))


def _account(directory: LdapConnection) -> Sid:
    """The SID of the account that is logged in: the first of the root DSE's tokenGroups, [MS-ADTS] 3.1.1.3.2.18."""
    entry = directory.read("", ["tokenGroups"])
    first = None if entry is None else entry.first("tokengroups")
    if first is None:
        raise DirectoryError(f"{directory.url} does not say which account is logged in")
    return Sid.decode(first)


# Sites


def _site(directory: LdapConnection, configured: str | None) -> UUID:
    """The id of the manager's site: the configured one, else that of the subnet of this computer's address, else that
    of the domain controller."""
    sites = names.child("CN", "Sites", directory.root.configuration)
    if configured is not None:
        entry = directory.read(
            names.child("CN", configured, sites), ["objectGUID"], names.equals("objectClass", "site")
        )
        if entry is None:
            raise DirectoryError(f"the domain has no site {configured}: set directory.site to a site of {sites}")
        return guid(entry.attributes)
    dn = _site_by_subnet(directory, sites) or names.parent(directory.root.service, 3)
    entry = directory.read(dn, ["objectGUID"], names.equals("objectClass", "site"))
    if entry is None:
        raise DirectoryError(f"the site of this computer is not known: set directory.site to a site of {sites}")
    return guid(entry.attributes)


def _site_by_subnet(directory: LdapConnection, sites: str) -> str | None:
    """The site of the smallest subnet with the address that this computer uses towards the domain controller."""
    try:
        family, kind, _, _, server = socket.getaddrinfo(directory.host, 389, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(server)  # sends nothing
            address = ip_address(probe.getsockname()[0])
    except (OSError, ValueError):
        return None
    best: tuple[int, str] | None = None
    subnets = names.child("CN", "Subnets", sites)
    with _existing(LdapFault.NOT_FOUND):
        for entry in directory.search(subnets, names.present("siteObject"), ["cn", "siteObject"], limit=_MOST_SUBNETS):
            with suppress(ValueError):
                network = ip_network((entry.first("cn") or b"").decode())
                if address in network and (best is None or network.prefixlen > best[0]):
                    best = network.prefixlen, (entry.first("siteobject") or b"").decode()
    return None if best is None else best[1]


# Refusals


@contextmanager
def _explained(verb: str, what: str, settings: LdapSettings, *, exists: str | None = None) -> Iterator[None]:
    """Turns a refusal into the error that a caller of MSMQ would see."""
    try:
        yield
    except LdapError as fault:
        if fault.fault is LdapFault.NO_PERMISSION:
            who = settings.user or "this account"
            raise AccessDenied(
                f"the directory does not let {who} {verb} {what}: `postroad directory check` names the right that is "
                f"missing ({fault})"
            ) from None
        if fault.fault is LdapFault.EXISTS and exists is not None:
            raise QueueExists(f"the directory has a queue {exists} of this manager already ({fault})") from None
        if fault.code in _CONSTRAINTS:
            raise InvalidArgument(f"the directory refuses to {verb} {what}: {fault}") from None
        raise


@contextmanager
def _existing(passed: LdapFault = LdapFault.EXISTS) -> Iterator[None]:
    """Passes over one kind of refusal: another manager was faster."""
    try:
        yield
    except LdapError as fault:
        if fault.fault is not passed:
            raise
