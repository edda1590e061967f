r"""Objects of Active Directory, [MS-MQDSSM] 3.1.6.10 and 3.1.6.11: which attributes to ask for, and what they mean.

It maps one entry to one of our objects, and does no I/O. A bad entry raises DirectoryError; the reader passes it over.
References are DNs with their GUIDs, as in `<GUID=...>;CN=...`, so no other entry is needed to resolve them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

from postroad.directory import distinguished_names as names
from postroad.directory.objects import (
    MAX_COST,
    MIN_COST,
    NO_QUOTA,
    NO_TYPE,
    DirectoryServerType,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
)
from postroad.errors import DirectoryError, PostroadError
from postroad.names import PathName, QueueKind
from postroad.security.descriptors import SecurityDescriptor, Sid
from postroad.security.directory_rights import queue_descriptor
from postroad.validation.kinds import HOST, MANAGER_NAME, Kind, checked
from postroad.validation.queue_properties import QUEUE_PROPERTIES, QueuePrivacy, QueueSettings
from postroad.wire.records import decode_public_keys

T = TypeVar("T")
Values = Mapping[str, tuple[bytes, ...]]  # the names of attributes in lower case

CONFIGURATION_CLASS = "mSMQConfiguration"
QUEUE_CLASS = "mSMQQueue"
SITE_CLASS = "site"
LINK_CLASS = "mSMQSiteLink"
ENTERPRISE_CLASS = "mSMQEnterpriseSettings"
SETTINGS_CLASS = "mSMQSettings"

QUEUE_ATTRIBUTES = [
    "objectClass",
    "objectGUID",
    "whenCreated",
    "whenChanged",
    "mSMQLabelEx",
    "mSMQQueueType",
    "mSMQJournal",
    "mSMQQueueQuota",
    "mSMQQueueJournalQuota",
    "mSMQAuthenticate",
    "mSMQPrivacyLevel",
    "mSMQTransactional",
    "MSMQ-MulticastAddress",
    "mSMQBasePriority",
    "mSMQQueueNameExt",
]
MANAGER_ATTRIBUTES = [
    "objectClass",
    "objectGUID",
    "whenCreated",
    "whenChanged",
    "mSMQServiceType",
    "mSMQQuota",
    "mSMQJournalQuota",
    "mSMQForeign",
    "mSMQRoutingServices",
    "mSMQDsServices",
    "mSMQDependentClientServices",
    "mSMQEncryptKey",
    "mSMQSites",
    "mSMQOutRoutingServers",
    "mSMQInRoutingServers",
    "mSMQComputerTypeEx",
    "mSMQOSType",
]
COMPUTER_ATTRIBUTES = [
    "objectClass",
    "objectGUID",
    "objectSid",
    "dNSHostName",
    "mSMQSignCertificates",
    "operatingSystemVersion",
    "servicePrincipalName",
]
SITE_ATTRIBUTES = ["objectClass", "objectGUID", "cn", "mSMQInterval1", "mSMQInterval2", "mSMQSiteForeign"]
LINK_ATTRIBUTES = ["objectClass", "objectGUID", "description", "mSMQCost", "mSMQSite1", "mSMQSite2", "mSMQSiteGates"]
ENTERPRISE_ATTRIBUTES = [
    "objectClass",
    "objectGUID",
    "mSMQNameStyle",
    "mSMQCSPName",
    "mSMQLongLived",
    "mSMQVersion",
    "nTSecurityDescriptor",
]
DESCRIPTOR_ATTRIBUTE = "nTSecurityDescriptor"

LONG_CN = 64  # [MS-MQDSSM] 3.1.6.11.2.1: a name this long is cut, and the rest is in mSMQQueueNameExt
_CUT = 9
_MAX_REFERENCES = 100_000
_SERVICE_REMOTE_ACCESS = 0x10
_EXTENDED_DN = re.compile(r"<GUID=([0-9a-fA-F-]{32,36})>;(?:<SID=[^>]{1,200}>;)?(.*)", re.DOTALL)
_INTEGER = re.compile(rb"-?[0-9]{1,10}")
_PRIVACY = {0: QueuePrivacy.NONE, 1: QueuePrivacy.OPTIONAL, 2: QueuePrivacy.BODY}


def enterprise_of(dn: str, values: Values, root_domain: str) -> Enterprise:
    """[MS-MQDSSM] 3.1.6.11.3. Its name is the root domain's DN."""
    return Enterprise(
        identifier=guid(values),
        name=root_domain,
        weakened_security=_boolean(values, "msmqnamestyle"),  # the schema makes it a boolean
        non_ldap_capable_queue_manager_notification=_text(values, "msmqcspname", "Y") != "N",
        default_time_to_live_s=_integer(values, "msmqlonglived", 345_600) & 0xFFFF_FFFF,
        old_directory=_integer(values, "msmqversion", 3) == 3,
        security=_octets(values, "ntsecuritydescriptor"),
        full_path=dn,
    )


def site_of(dn: str, values: Values) -> Site:
    """[MS-MQDSSM] 3.1.6.11.4. Active Directory has no place for a site's own gates: only links name gates."""
    name = _text(values, "cn")
    if not name.isprintable() or not 1 <= len(name) <= 64:
        raise DirectoryError(f"the name of a site must have 1 to 64 printable characters, got {name[:100]!r}")
    return Site(
        identifier=guid(values),
        name=name,
        full_path=dn,
        foreign_site=_boolean(values, "msmqsiteforeign"),
        intra_site_replication_interval_s=_integer(values, "msmqinterval1", 2),
        inter_site_replication_interval_s=_integer(values, "msmqinterval2", 10),
    )


def link_of(dn: str, values: Values) -> RoutingLink:
    """[MS-MQDSSM] 3.1.6.11.5. A gate that was deleted is passed over, though 3.1.6.11.5.3 makes it an error: one
    deleted gate would take the whole link away."""
    site1, site2 = _references(values, "msmqsite1"), _references(values, "msmqsite2")
    if len(site1) != 1 or len(site2) != 1:
        raise DirectoryError("a routing link must join two sites that exist")
    if site1 == site2:
        raise DirectoryError("a routing link must join two different sites, got one site twice")
    cost = _integer(values, "msmqcost")
    if not MIN_COST <= cost <= MAX_COST:
        raise DirectoryError(f"mSMQCost must be from {MIN_COST} to {MAX_COST}, got {cost}")
    return RoutingLink(
        identifier=guid(values),
        site1_identifier=site1[0],
        site2_identifier=site2[0],
        actual_cost=cost,
        site_gate_identifier_list=_references(values, "msmqsitegates"),
        description=_text(values, "description", ""),
        full_path=dn,
    )


def manager_of(dn: str, values: Values, computer: Values) -> QueueManager:
    """[MS-MQDSSM] 3.1.6.11.1. `computer` has the attributes of the object that contains the mSMQConfiguration."""
    name = _valid(MANAGER_NAME, computer_name(dn), "the name of the computer")
    service = _integer(values, "msmqservicetype", 0)
    directory_server = _boolean(values, "msmqdsservices")
    sid = _octets(computer, "objectsid")
    return QueueManager(
        identifier=guid(values),
        computer_name=name,
        site_identifier_list=_guids(values, "msmqsites"),
        routing_server=_boolean(values, "msmqroutingservices"),
        in_routing_server_identifier_list=_references(values, "msmqinroutingservers"),
        out_routing_server_identifier_list=_references(values, "msmqoutroutingservers"),
        public_encryption_keys=_public_keys(values),
        qualified_computer_name=_host(computer),
        full_path=dn,
        security_identifier=str(Sid.decode(sid)) if sid else None,
        security=_octets(values, "ntsecuritydescriptor"),
        public_signing_key_list=_octets(computer, "msmqsigncertificates"),
        queue_manager_quota=_quota(values, "msmqquota", 0x0010_0000),
        journal_quota=_quota(values, "msmqjournalquota", NO_QUOTA),
        foreign_system=_boolean(values, "msmqforeign"),
        directory_server=directory_server,
        directory_server_type=_server_type(service) if directory_server else None,
        supporting_server=_boolean(values, "msmqdependentclientservices"),
        remote_access_server=bool(service & _SERVICE_REMOTE_ACCESS),
        clustered=any(b"MSClusterVirtualServer" in each for each in computer.get("serviceprincipalname", ())),
        queue_manager_version=_text(values, "msmqcomputertypeex", ""),
        operating_system_type=_integer(values, "msmqostype", 0),
        operating_system_version=_text(computer, "operatingsystemversion", ""),
        create_time=_time(values, "whencreated"),
        modify_time=_time(values, "whenchanged"),
    )


def queue_of(dn: str, values: Values, manager: QueueManager) -> Queue:
    """[MS-MQDSSM] 3.1.6.11.2. The manager is the one whose mSMQConfiguration contains the queue.

    The manager's name stays as it is spelled there, though 3.1.6.11.2.1 makes it lower case: names compare without
    case, and people read them.
    """
    kind, name = names.split(dn)[0]
    if kind.lower() != "cn":
        raise DirectoryError(f"the name of a queue must be a CN, got {kind}")
    if len(name) == LONG_CN:
        name = name[:-_CUT] + _text(values, "msmqqueuenameext", "")
    path = _path(manager.computer_name, name.replace("\\", "").lower())
    properties = _properties(values)
    return Queue(
        identifier=guid(values),
        pathname=path,
        queue_manager_identifier=manager.identifier,
        base_priority=properties.base_priority,
        properties=properties,
        type=(*_guids(values, "msmqqueuetype"), NO_TYPE)[0],
        full_path=dn,
        create_time=_time(values, "whencreated"),
        modify_time=_time(values, "whenchanged"),
    )


def queue_security(values: Values) -> bytes:
    """Queue.Security from nTSecurityDescriptor: with MSMQ's rights, [MS-MQDSSM] 3.1.6.11.2."""
    data = _octets(values, "ntsecuritydescriptor")
    if not data:
        raise DirectoryError("its access list is hidden: let this account read the queue's permissions")
    try:
        return _queue_security(data)
    except PostroadError as fault:
        raise DirectoryError(f"its access list cannot be read: {fault}") from None


@lru_cache(maxsize=1024)  # most queues of a domain have the same list
def _queue_security(data: bytes) -> bytes:
    return queue_descriptor(SecurityDescriptor.decode(data)).encode()


def computer_name(dn: str) -> str:
    """The name of a queue manager: the second part of the DN of its mSMQConfiguration, 3.1.6.11.1.1."""
    parts = names.split(dn)
    if len(parts) < 3:
        raise DirectoryError("an mSMQConfiguration must be a child of a computer")
    return parts[1][1]


def split_extended(text: str) -> tuple[UUID | None, str]:
    """The GUID and the DN of a value such as `<GUID=...>;<SID=...>;CN=...`. No GUID if it is a plain DN."""
    found = _EXTENDED_DN.fullmatch(text)
    if found is None:
        return None, text
    try:
        return UUID(found[1]), found[2]
    except ValueError:
        raise DirectoryError(f"a reference must start with a GUID, got {text[:200]!r}") from None


def guid(values: Values) -> UUID:
    found = _octets(values, "objectguid")
    if len(found) != 16:
        raise DirectoryError(f"objectGUID must have 16 bytes, got {len(found)}")
    return UUID(bytes_le=found)


# Single values


def _octets(values: Values, name: str) -> bytes:
    held = values.get(name)
    return held[0] if held else b""


def _text(values: Values, name: str, default: str | None = None) -> str:
    held = values.get(name)
    if not held:
        if default is None:
            raise DirectoryError(f"{name} is missing")
        return default
    try:
        return held[0].decode()
    except UnicodeDecodeError:
        raise DirectoryError(f"{name} must be UTF-8") from None


def _integer(values: Values, name: str, default: int | None = None) -> int:
    held = values.get(name)
    if not held:
        if default is None:
            raise DirectoryError(f"{name} is missing")
        return default
    if _INTEGER.fullmatch(held[0]) is None:
        raise DirectoryError(f"{name} must be a whole number of 32 bits, got {held[0][:40]!r}")
    return int(held[0])


def _quota(values: Values, name: str, default: int) -> int:
    """A quota is unsigned, and the attribute is signed: -1 is 0xFFFFFFFF."""
    return _integer(values, name, default) & 0xFFFF_FFFF


def _boolean(values: Values, name: str) -> bool:
    held = values.get(name)
    if not held:
        return False
    if held[0] not in (b"TRUE", b"FALSE"):
        raise DirectoryError(f"{name} must be TRUE or FALSE, got {held[0][:40]!r}")
    return held[0] == b"TRUE"


def _time(values: Values, name: str) -> int:
    text = _text(values, name, "")
    try:
        return int(datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()) if text else 0
    except ValueError:
        raise DirectoryError(f"{name} must be a time such as 20261119211435.0Z, got {text[:40]!r}") from None


def _guids(values: Values, name: str) -> tuple[UUID, ...]:
    """A directory promises no order of values. In the order of their GUIDs, all managers agree."""
    held = values.get(name, ())
    _bound(held, name)
    if any(len(each) != 16 for each in held):
        raise DirectoryError(f"{name} must have GUIDs of 16 bytes")
    return tuple(sorted({UUID(bytes_le=each) for each in held}))


def _references(values: Values, name: str) -> tuple[UUID, ...]:
    """The GUIDs of the objects that an attribute names, without those that were deleted: [MS-MQDSSM] 3.1.6.11.1.3."""
    held = values.get(name, ())
    _bound(held, name)
    found: set[UUID] = set()
    for each in held:
        identifier, dn = split_extended(each.decode("utf-8", "replace"))
        if identifier is None:
            raise DirectoryError(f"{name} must name an object with its GUID, got {dn[:200]!r}")
        if not names.is_deleted(dn):
            found.add(identifier)
    return tuple(sorted(found))


def _bound(held: Sequence[bytes], name: str) -> None:
    if len(held) > _MAX_REFERENCES:
        raise DirectoryError(f"{name} must have at most {_MAX_REFERENCES} values, got {len(held)}")


def _server_type(service: int) -> DirectoryServerType:
    kinds: Iterable[DirectoryServerType] = reversed(DirectoryServerType)
    return next((kind for kind in kinds if service & kind.value), DirectoryServerType.STANDALONE)


def _public_keys(values: Values) -> bytes:
    data = _octets(values, "msmqencryptkey")
    if data:
        try:
            decode_public_keys(data)
        except PostroadError as fault:
            raise DirectoryError(f"mSMQEncryptKey must be MQDSPUBLICKEYS: {fault}") from None
    return data


def _host(computer: Values) -> str | None:
    text = _text(computer, "dnshostname", "")
    return _valid(HOST, text, "dNSHostName") if text else None


def _valid(kind: Kind[str], text: str, what: str) -> str:
    return checked(kind, text, what, DirectoryError)


def _path(computer: str, queue: str) -> PathName:
    try:
        path = PathName.parse(f"{computer}\\{queue}")
    except PostroadError as fault:
        raise DirectoryError(str(fault)) from None
    if path.tail.kind is not QueueKind.PUBLIC or path.tail.journal or path.tail.subqueue is not None or path.is_local:
        raise DirectoryError(f"must be the name of a public queue, got {queue[:200]!r}")
    return path


def _properties(values: Values) -> QueueSettings:
    level = _integer(values, "msmqprivacylevel", 1)
    if level not in _PRIVACY:
        raise DirectoryError(f"mSMQPrivacyLevel must be 0, 1 or 2, got {level}")
    quota = _quota(values, "msmqqueuequota", NO_QUOTA)
    journal_quota = _quota(values, "msmqqueuejournalquota", NO_QUOTA)
    return QueueSettings(
        transactional=_boolean(values, "msmqtransactional"),
        label=_property("label", _text(values, "msmqlabelex", ""), "mSMQLabelEx"),
        journal=_boolean(values, "msmqjournal"),
        quota_kb=None if quota == NO_QUOTA else quota,
        journal_quota_kb=journal_quota,  # here, NO_QUOTA is no limit, and None the default
        authenticate=_boolean(values, "msmqauthenticate"),
        privacy=_PRIVACY[level],
        base_priority=_property("base_priority", _integer(values, "msmqbasepriority", 0), "mSMQBasePriority"),
        multicast_address=_multicast(values),
    )


def _multicast(values: Values) -> str | None:
    text = _text(values, "msmq-multicastaddress", "")
    return _property("multicast_address", text, "MSMQ-MulticastAddress") if text else None


def _property(name: str, value: T, attribute: str) -> T:
    kind: Kind[T] = QUEUE_PROPERTIES[name].kind
    return checked(kind, value, attribute, DirectoryError)
