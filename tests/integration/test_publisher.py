"""What a queue manager writes to a real Active Directory: its own object, its public queues, and nothing else."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from postroad.directory import distinguished_names as names
from postroad.directory.ldap_connection import LdapConnection, LdapEntry, LdapSettings, Scope, connect
from postroad.directory.publisher import OwnObject, Publisher, queue_cn, queue_name_extension, queue_name_hash
from postroad.directory.schema_mapping import QUEUE_ATTRIBUTES
from postroad.errors import (
    AccessDenied,
    DirectoryError,
    InvalidArgument,
    LdapError,
    LdapFault,
    QueueExists,
)
from postroad.security.access import AUTHENTICATED_USERS, Token, allowed, default_queue_descriptor
from postroad.security.descriptors import EVERYONE, Ace, AceType, Acl, SecurityDescriptor, Sid
from postroad.security.directory_rights import queue_descriptor
from postroad.security.keys import KeyRing, make_private_key
from postroad.security.rights import QueueRight
from postroad.validation.queue_properties import QueuePrivacy, QueueSettings
from tests.domain import ADMINISTRATOR, BASE, CONFIGURATION, PASSWORD, Controller

NO_TYPE = UUID(int=0)
SITES = f"CN=Sites,{CONFIGURATION}"
COMPUTERS = f"CN=Computers,{BASE}"
RING = KeyRing.make(lambda bits: make_private_key(1024))
OPEN = default_queue_descriptor()


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    return file


@pytest.fixture
def settings(domain_controller: Controller, password: Path) -> LdapSettings:
    return _settings(domain_controller, password)


def _settings(controller: Controller, password: Path, user: str = ADMINISTRATOR) -> LdapSettings:
    return LdapSettings(
        servers=(controller.ldaps,), user=user, password_file=password, ca_certificates=controller.ca_certificates
    )


@pytest.fixture
def directory(settings: LdapSettings) -> Iterator[LdapConnection]:
    with connect(settings) as connection:
        yield connection


@pytest.fixture
def computer(directory: LdapConnection) -> str:
    """The name of a new computer of the domain."""
    return _add_computer(directory)


def _add_computer(directory: LdapConnection, parent: str = COMPUTERS) -> str:
    name = f"pc{uuid4().hex[:8]}"
    values = {"objectClass": ["computer"], "sAMAccountName": [f"{name}$"], "userAccountControl": ["4096"]}
    directory.add(names.child("CN", name, parent), values)
    return name


def _own(**others: object) -> OwnObject:
    keys = {"public_keys": RING.public_keys, "signing_keys": RING.signing_keys}
    own = {**keys, "quota_kb": 1000, "journal_quota_kb": None, **others}
    return OwnObject(**own)  # type: ignore[arg-type]


OWN = _own()


def _publisher(settings: LdapSettings, name: str) -> Publisher:
    return Publisher(settings, name)


def _dn(name: str) -> str:
    return f"CN=msmq,CN={name},{COMPUTERS}"


def _read(directory: LdapConnection, dn: str, *attributes: str) -> LdapEntry:
    entry = directory.read(dn, ["*", *attributes])
    assert entry is not None
    return entry


# The manager's own object


def test_a_join_makes_the_managers_object_and_the_directory_chooses_its_id(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    joined = _publisher(settings, computer).join(OWN, None, empty=True)
    assert (joined.created, joined.computer) == (True, computer)
    entry = _read(directory, _dn(computer))
    assert entry.first("objectguid") == joined.identifier.bytes_le
    assert entry.first("msmqencryptkey") == RING.public_keys
    assert entry.first("msmqsignkey") == RING.signing_keys
    assert entry.first("msmqquota") == b"1000"
    assert entry.first("msmqjournalquota") == b"-1"
    assert entry.first("msmqservicetype") == b"0"
    assert entry.first("msmqroutingservices") == b"FALSE"
    site = _read(directory, f"CN=Default-First-Site-Name,{SITES}")
    assert entry.attributes["msmqsites"] == site.attributes["objectguid"]


def test_a_second_join_changes_nothing_that_is_right(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    publisher = _publisher(settings, computer)
    first = publisher.join(OWN, None, empty=True)
    before = _read(directory, _dn(computer)).first("usnchanged")
    second = publisher.join(OWN, first.identifier, empty=False)
    assert (second.identifier, second.created) == (first.identifier, False)
    assert _read(directory, _dn(computer)).first("usnchanged") == before


def test_new_keys_replace_the_old_ones(directory: LdapConnection, settings: LdapSettings, computer: str) -> None:
    joined = _publisher(settings, computer).join(OWN, None, empty=True)
    ring = KeyRing.make(lambda bits: make_private_key(1024))
    _publisher(settings, computer).join(_own(public_keys=ring.public_keys), joined.identifier, empty=False)
    assert _read(directory, _dn(computer)).first("msmqencryptkey") == ring.public_keys


def test_what_an_administrator_decided_stays(directory: LdapConnection, settings: LdapSettings, computer: str) -> None:
    joined = _publisher(settings, computer).join(OWN, None, empty=True)
    other = f"CN=other-{computer},{SITES}"
    directory.add(other, {"objectClass": ["site"]})
    site = _read(directory, other).first("objectguid")
    assert site is not None
    directory.modify(joined.dn, {"mSMQSites": [site], "mSMQRoutingServices": ["TRUE"], "mSMQServiceType": ["1"]})
    _publisher(settings, computer).join(OWN, joined.identifier, empty=False)
    entry = _read(directory, joined.dn)
    assert entry.attributes["msmqsites"] == (site,)
    assert entry.first("msmqroutingservices") == b"TRUE"


def test_the_site_follows_the_subnet_of_the_address(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    site = f"CN=near-{computer},{SITES}"
    directory.add(site, {"objectClass": ["site"]})
    subnet = f"CN=127.0.0.0/8,CN=Subnets,{SITES}"
    directory.add(subnet, {"objectClass": ["subnet"], "siteObject": [site]})
    try:
        joined = _publisher(settings, computer).join(OWN, None, empty=True)
    finally:
        directory.delete(subnet)
    assert _read(directory, joined.dn).first("msmqsites") == _read(directory, site).first("objectguid")


def test_a_configured_site_must_exist(settings: LdapSettings, computer: str) -> None:
    with pytest.raises(DirectoryError, match="no site nowhere"):
        _publisher(settings, computer).join(_own(site="nowhere"), None, empty=True)


def test_a_computer_must_exist(settings: LdapSettings) -> None:
    with pytest.raises(DirectoryError, match="no computer nobody"):
        _publisher(settings, "nobody").join(OWN, None, empty=True)


@pytest.mark.parametrize("name", ["*", "a)(cn=*", "a\\2a", "(objectClass=*)"])
def test_a_name_cannot_change_the_search(settings: LdapSettings, name: str) -> None:
    with pytest.raises(DirectoryError, match="no computer"):
        _publisher(settings, name).join(OWN, None, empty=True)


def test_an_existing_object_is_adopted_only_by_an_empty_manager(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    directory.add(_dn(computer), {"objectClass": ["mSMQConfiguration"], "mSMQQuota": ["7"]})
    with pytest.raises(DirectoryError, match="empty data directory"):
        _publisher(settings, computer).join(OWN, uuid4(), empty=False)
    assert _read(directory, _dn(computer)).first("msmqquota") == b"7"
    joined = _publisher(settings, computer).join(OWN, uuid4(), empty=True)
    assert joined.identifier.bytes_le == _read(directory, _dn(computer)).first("objectguid")


def test_a_manager_with_messages_gets_no_new_object(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    with pytest.raises(DirectoryError, match="definitions export"):
        _publisher(settings, computer).join(OWN, uuid4(), empty=False)
    assert directory.read(_dn(computer), ["cn"]) is None


def test_an_id_of_something_else_is_not_the_managers(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    site = UUID(bytes_le=_read(directory, f"CN=Default-First-Site-Name,{SITES}").first("objectguid") or b"")
    with pytest.raises(DirectoryError, match="empty data directory"):
        _publisher(settings, computer).join(OWN, site, empty=False)


def test_a_renamed_computer_keeps_its_manager(
    domain_controller: Controller, directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    joined = _publisher(settings, computer).join(OWN, None, empty=True)
    queue = _publisher(settings, computer).create_queue(joined.identifier, "orders", QueueSettings(), NO_TYPE, OPEN)
    _rename(domain_controller, f"CN={computer},{COMPUTERS}", f"{computer}x")
    again = _publisher(settings, computer).join(OWN, joined.identifier, empty=False)
    assert (again.identifier, again.computer) == (joined.identifier, f"{computer}x")
    _publisher(settings, computer).write_queue(joined.identifier, queue, QueueSettings(label="later"))
    assert _read(directory, f"CN=orders,{_dn(computer + 'x')}").first("msmqlabelex") == b"later"


def _rename(controller: Controller, dn: str, name: str) -> None:
    subprocess.run(
        ["ldapmodrdn", "-H", controller.ldaps, "-D", ADMINISTRATOR, "-w", PASSWORD, "-r", dn, f"CN={name}"],
        env=os.environ | {"LDAPTLS_CACERT": str(controller.ca_certificates)},
        check=True,
    )


# A routing server


def test_a_routing_server_has_settings_in_its_site(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    site = f"CN=far-{computer},{SITES}"
    directory.add(site, {"objectClass": ["site"]})  # it has no CN=Servers
    publisher, own = _publisher(settings, computer), _own(routing_server=True, site=f"far-{computer}")
    joined = publisher.join(own, None, empty=True)
    held = f"CN=MSMQ Settings,CN={computer},CN=Servers,{site}"
    entry = _read(directory, held)
    assert entry.first("msmqqmid") == joined.identifier.bytes_le
    assert entry.first("msmqroutingservice") == b"TRUE"
    assert entry.first("msmqservices") == b"1"
    assert _read(directory, joined.dn).first("msmqservicetype") == b"1"
    publisher.join(own, joined.identifier, empty=False)

    _publisher(settings, computer).join(_own(routing_server=False), joined.identifier, empty=False)
    assert directory.read(held, ["cn"]) is None
    assert directory.read(f"CN={computer},CN=Servers,{site}", ["cn"]) is not None


def test_the_settings_of_another_manager_stay(directory: LdapConnection, settings: LdapSettings, computer: str) -> None:
    other = uuid4().bytes_le
    server = f"CN={computer},CN=Servers,CN=Default-First-Site-Name,{SITES}"
    directory.add(server, {"objectClass": ["server"]})
    directory.add(f"CN=MSMQ Settings,{server}", {"objectClass": ["mSMQSettings"], "mSMQQMID": [other]})
    joined = _publisher(settings, computer).join(OWN, None, empty=True)
    with pytest.raises(DirectoryError, match="belongs to another queue manager"):
        _publisher(settings, computer).join(_own(routing_server=True), joined.identifier, empty=False)
    assert _read(directory, f"CN=MSMQ Settings,{server}").first("msmqqmid") == other


# Public queues


def _made(settings: LdapSettings, computer: str) -> tuple[Publisher, UUID]:
    publisher = _publisher(settings, computer)
    return publisher, publisher.join(OWN, None, empty=True).identifier


def test_a_queue_is_written_with_all_its_properties(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    publisher, manager = _made(settings, computer)
    kind = uuid4()
    queue = publisher.create_queue(
        manager,
        "orders",
        QueueSettings(
            label="Orders",
            journal=True,
            quota_kb=3_000_000_000,
            authenticate=True,
            privacy=QueuePrivacy.BODY,
            base_priority=-7,
            multicast_address="234.1.1.1:8001",
        ),
        kind,
        OPEN,
    )
    entry = _read(directory, f"CN=orders,{_dn(computer)}")
    held = {name: values for name, values in entry.attributes.items() if name.startswith("msmq")}
    assert held == {
        "msmqlabelex": (b"Orders",),
        "msmqjournal": (b"TRUE",),
        "msmqqueuequota": (str(3_000_000_000 - (1 << 32)).encode(),),
        "msmqqueuejournalquota": (str(1 << 20).encode(),),
        "msmqauthenticate": (b"TRUE",),
        "msmqprivacylevel": (b"2",),
        "msmqtransactional": (b"FALSE",),
        "msmq-multicastaddress": (b"234.1.1.1:8001",),
        "msmqbasepriority": (b"-7",),
        "msmqqueuetype": (kind.bytes_le,),
    }
    assert entry.first("objectguid") == queue.bytes_le


def test_empty_values_are_left_out_and_removed(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    publisher, manager = _made(settings, computer)
    queue = publisher.create_queue(manager, "plain", QueueSettings(transactional=True), NO_TYPE, OPEN)
    dn = f"CN=plain,{_dn(computer)}"
    entry = _read(directory, dn)
    assert "msmqlabelex" not in entry.attributes
    assert entry.first("msmqtransactional") == b"TRUE"
    publisher.write_queue(manager, queue, QueueSettings(label="x", multicast_address="234.1.1.2:1"))
    assert _read(directory, dn).first("msmqlabelex") == b"x"
    publisher.write_queue(manager, queue, QueueSettings())
    entry = _read(directory, dn)
    assert "msmqlabelex" not in entry.attributes
    assert "msmq-multicastaddress" not in entry.attributes
    assert entry.first("msmqtransactional") == b"TRUE"  # it cannot change


@pytest.mark.parametrize("length", [1, 62, 63, 64, 65, 124])
def test_names_of_all_lengths(directory: LdapConnection, settings: LdapSettings, computer: str, length: int) -> None:
    publisher, manager = _made(settings, computer)
    name = ("q1" * 62)[:length]
    queue = publisher.create_queue(manager, name, QueueSettings(), NO_TYPE, OPEN)
    entry = directory.read(f"<GUID={queue}>", ["cn", "mSMQQueueNameExt"])
    assert entry is not None
    cn = (entry.first("cn") or b"").decode()
    rest = (entry.first("msmqqueuenameext") or b"").decode()
    assert len(cn) <= 64
    assert (cn[:-9] + rest if len(cn) == 64 else cn) == name
    assert (len(cn) == 64) == (length > 63)


def test_long_names_that_differ_at_the_end_are_two_queues(settings: LdapSettings, computer: str) -> None:
    publisher, manager = _made(settings, computer)
    for end in "12":
        publisher.create_queue(manager, "x" * 100 + end, QueueSettings(), NO_TYPE, OPEN)


def test_the_hash_of_a_long_name_is_the_specifications() -> None:
    # the entries 1, 2 and 255 of the table of [MS-MQDSSM] 2.2.5, for names of one character with a high byte of zero
    for index, entry in ((1, 0x82E0FE45), (2, 0x3302DCCD), (239, 0x3D348C2E), (255, 0x93E14A01)):
        assert queue_name_hash(chr(index)) == entry
    assert queue_name_hash("ORDERS") == queue_name_hash("orders")
    assert queue_cn("y" * 64) == f"{'y' * 55}-{queue_name_hash('y' * 64):08x}"
    assert queue_name_extension("y" * 64) == "y" * 9


@pytest.mark.parametrize(
    "name", ["a=b", "a#b", "#a", "a*b", "(a)", "a<b>c", "a/b", "a'b", "a&b|c!", "a\x7fb", "a..b", "$"]
)
def test_names_with_characters_that_ldap_uses(
    directory: LdapConnection, settings: LdapSettings, computer: str, name: str
) -> None:
    publisher, manager = _made(settings, computer)
    queue = publisher.create_queue(manager, name, QueueSettings(), NO_TYPE, OPEN)
    publisher.write_queue(manager, queue, QueueSettings(label="found"))
    entry = directory.read(f"<GUID={queue}>", ["cn", "mSMQLabelEx"])
    assert entry is not None
    assert (entry.first("cn"), entry.first("msmqlabelex")) == (name.encode(), b"found")
    children = list(directory.search(_dn(computer), names.present("objectClass"), ["cn"], scope=Scope.CHILDREN))
    assert len(children) == 1
    publisher.delete_queue(manager, queue)
    assert directory.read(f"<GUID={queue}>", ["cn"]) is None


def test_two_queues_of_one_name(settings: LdapSettings, computer: str) -> None:
    publisher, manager = _made(settings, computer)
    publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, OPEN)
    with pytest.raises(QueueExists, match="ORDERS"):
        publisher.create_queue(manager, "ORDERS", QueueSettings(), NO_TYPE, OPEN)


def test_a_value_that_the_directory_cannot_hold_is_the_callers_fault(settings: LdapSettings, computer: str) -> None:
    publisher, manager = _made(settings, computer)
    with pytest.raises(InvalidArgument, match="LDAP result"):
        publisher.create_queue(manager, "long", QueueSettings(label="x" * 125), NO_TYPE, OPEN)


def test_a_queue_that_is_gone(settings: LdapSettings, computer: str) -> None:
    publisher, manager = _made(settings, computer)
    queue = publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, OPEN)
    publisher.delete_queue(manager, queue)
    publisher.delete_queue(manager, queue)
    assert not publisher.write_queue(manager, queue, QueueSettings())


def test_a_queue_of_another_manager_is_not_touched(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    publisher, manager = _made(settings, computer)
    other, others = _made(settings, _add_computer(directory))
    queue = other.create_queue(others, "orders", QueueSettings(), NO_TYPE, OPEN)
    publisher.delete_queue(manager, queue)
    assert directory.read(f"<GUID={queue}>", ["cn"]) is not None
    assert not publisher.write_queue(manager, queue, QueueSettings(label="mine"))
    entry = directory.read(f"<GUID={queue}>", ["mSMQLabelEx"])
    assert entry is not None
    assert entry.first("msmqlabelex") is None


def test_a_manager_whose_object_is_gone(directory: LdapConnection, settings: LdapSettings, computer: str) -> None:
    publisher, manager = _made(settings, computer)
    directory.delete(_dn(computer))
    with pytest.raises(DirectoryError, match="no object of this queue manager"):
        publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, OPEN)


# Access lists


def _descriptor(directory: LdapConnection, queue: UUID) -> SecurityDescriptor:
    entry = directory.read(f"<GUID={queue}>", [*QUEUE_ATTRIBUTES, "nTSecurityDescriptor"])
    assert entry is not None
    return queue_descriptor(SecurityDescriptor.decode(entry.first("ntsecuritydescriptor") or b""))


def test_the_access_list_comes_back_from_the_directory(
    directory: LdapConnection, settings: LdapSettings, computer: str
) -> None:
    publisher, manager = _made(settings, computer)
    clerk = Sid.parse("S-1-5-21-1-2-3-1234")
    queue = publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, default_queue_descriptor(clerk))
    held = _descriptor(directory, queue)
    assert allowed(held, Token.of_user(clerk), QueueRight.RECEIVE_MESSAGE.value)
    assert allowed(held, Token.everyone(), QueueRight.WRITE_MESSAGE.value)
    for right in (QueueRight.RECEIVE_MESSAGE, QueueRight.SET_QUEUE_PROPERTIES, QueueRight.DELETE_QUEUE):
        assert not allowed(held, Token.everyone(), right.value)
    publisher.write_queue(manager, queue, descriptor=SecurityDescriptor(dacl=Acl()))
    assert not allowed(_descriptor(directory, queue), Token.of_user(clerk), QueueRight.WRITE_MESSAGE.value)


def test_no_access_list_locks_the_publisher_out(
    domain_controller: Controller, password: Path, directory: LdapConnection, computer: str
) -> None:
    publisher, manager = _made(_account(domain_controller, password, directory, computer, create=True), computer)
    closed = SecurityDescriptor(
        dacl=Acl((Ace(AceType.DENY, 0xF003F, EVERYONE), Ace(AceType.DENY, 0xF003F, AUTHENTICATED_USERS)))
    )
    queue = publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, closed)
    publisher.write_queue(manager, queue, QueueSettings(label="mine"), closed)
    publisher.delete_queue(manager, queue)


# Rights


def _account(
    controller: Controller, password: Path, directory: LdapConnection, computer: str, *, create: bool
) -> LdapSettings:
    """An account that may read the domain, and create the queue manager's object if `create`."""
    name = f"u{uuid4().hex[:8]}"
    controller.add_user(name)
    settings = _settings(controller, password, f"{name}@POSTROAD.TEST")
    if create:
        (missing,) = Publisher(settings, computer).missing_rights(None)
        _grant(controller, missing.command)
    return settings


def _grant(controller: Controller, command: str) -> None:
    words = shlex.split(command)
    assert words[0] == "samba-tool"
    controller.tool(*words[1:], "-H", str(controller.sam))


def test_the_right_to_create_the_object_is_enough_for_everything(
    domain_controller: Controller, password: Path, directory: LdapConnection, computer: str
) -> None:
    settings = _account(domain_controller, password, directory, computer, create=True)
    publisher, manager = _made(settings, computer)
    queue = publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, OPEN)
    publisher.write_queue(manager, queue, QueueSettings(label="x"), OPEN)
    publisher.delete_queue(manager, queue)
    ring = KeyRing.make(lambda bits: make_private_key(1024))
    _publisher(settings, computer).join(_own(public_keys=ring.public_keys), manager, empty=False)
    assert publisher.missing_rights(manager) == ()


def test_an_account_without_rights_is_told_what_is_missing(
    domain_controller: Controller, password: Path, directory: LdapConnection, computer: str
) -> None:
    settings = _account(domain_controller, password, directory, computer, create=False)
    publisher = _publisher(settings, computer)
    (missing,) = publisher.missing_rights(None)
    assert "create mSMQConfiguration" in missing.what
    with pytest.raises(AccessDenied, match="directory check"):
        publisher.join(OWN, None, empty=True)
    assert directory.read(_dn(computer), ["cn"]) is None


def test_an_account_without_rights_on_an_object_that_exists(
    domain_controller: Controller, password: Path, settings: LdapSettings, directory: LdapConnection, computer: str
) -> None:
    owner, manager = _made(settings, computer)
    queue = owner.create_queue(manager, "orders", QueueSettings(), NO_TYPE, OPEN)
    stranger = _publisher(_account(domain_controller, password, directory, computer, create=False), computer)
    stranger.join(OWN, manager, empty=False)  # nothing has to be written
    for act in (
        lambda: stranger.create_queue(manager, "more", QueueSettings(), NO_TYPE, OPEN),
        lambda: stranger.write_queue(manager, queue, QueueSettings(label="x")),
        lambda: stranger.write_queue(manager, queue, descriptor=OPEN),
        lambda: stranger.delete_queue(manager, queue),
    ):
        with pytest.raises(AccessDenied, match="does not let"):
            act()
    found = stranger.missing_rights(manager)
    assert [each.what.partition(" ")[2].split()[0] for each in found] == ["create", "write"]
    for each in found:
        _grant(domain_controller, each.command)
    assert stranger.missing_rights(manager) == ()
    stranger.delete_queue(manager, stranger.create_queue(manager, "more", QueueSettings(), NO_TYPE, OPEN))


def test_a_locked_down_unit(
    domain_controller: Controller, password: Path, directory: LdapConnection, settings: LdapSettings
) -> None:
    unit = f"OU=locked{uuid4().hex[:6]},{BASE}"
    directory.add(unit, {"objectClass": ["organizationalUnit"]})
    name = _add_computer(directory, unit)
    account = _account(domain_controller, password, directory, name, create=False)
    domain_controller.tool(
        "dsacl", "set", f"--objectdn={unit}", "--sddl=(D;CI;RPLCLO;;;AU)", "-H", str(domain_controller.sam)
    )
    with pytest.raises(DirectoryError):
        _publisher(account, name).join(OWN, None, empty=True)


def test_a_keytab_and_kerberos(
    domain_controller: Controller, directory: LdapConnection, computer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS: Kerberos seals everything."""
    monkeypatch.setenv("KRB5_CONFIG", str(domain_controller.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", f"MEMORY:{computer}")
    user = f"u{uuid4().hex[:8]}"
    domain_controller.add_user(user)
    keytab = domain_controller.keytab(user)
    settings = LdapSettings(servers=(domain_controller.ldap,), user=f"{user}@POSTROAD.TEST", keytab=keytab)
    (missing,) = Publisher(settings, computer).missing_rights(None)
    _grant(domain_controller, missing.command)
    publisher, manager = _made(settings, computer)
    queue = publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, OPEN)
    publisher.delete_queue(manager, queue)


# A controller that is away


def test_a_controller_that_does_not_answer(
    new_controller: Callable[[], Controller], password: Path, tmp_path: Path
) -> None:
    controller = new_controller()
    controller.start()
    settings = _settings(controller, password)
    with connect(settings) as directory:
        name = _add_computer(directory)
    publisher, manager = _made(settings, name)
    controller.stop()
    with pytest.raises(LdapError) as refused:
        publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, OPEN)
    assert refused.value.fault is LdapFault.NO_ANSWER
    controller.start()
    publisher.create_queue(manager, "orders", QueueSettings(), NO_TYPE, OPEN)
