"""Objects of Active Directory as ours, [MS-MQDSSM] 3.1.6.11: what each attribute means, its default, and bad ones."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.config import default_configuration
from postroad.directory import schema_mapping as schema
from postroad.directory.domain_copy import Changes, DomainCopy, Stamp
from postroad.directory.objects import NO_QUOTA, DirectoryServerType, QueueManager, RoutingLink, Site
from postroad.errors import DirectoryError
from postroad.message import Composer, Message
from postroad.names import PrivateName
from postroad.security.descriptors import Sid
from postroad.validation.queue_properties import QueuePrivacy
from postroad.wire.records import DsPublicKey, ProviderType, encode_public_keys
from postroad.wire.view import MessageView

BASE = "DC=corp,DC=local"
ALPHA = f"CN=msmq,CN=Alpha,OU=Servers,{BASE}"
OWN, ONE, TWO, THREE = (UUID(int=number << 96 | 7) for number in range(1, 5))


def values(**given: bytes | list[bytes]) -> schema.Values:
    listed = {
        name.replace("_", "-"): tuple(value) if isinstance(value, list) else (value,) for name, value in given.items()
    }
    return {"objectguid": (OWN.bytes_le,), **listed}


def reference(identifier: UUID, dn: str) -> bytes:
    return f"<GUID={identifier}>;<SID=S-1-5-21-1>;{dn}".encode()


def manager(**given: bytes | list[bytes]) -> QueueManager:
    return schema.manager_of(ALPHA, values(**given), {})


class Asked(dict[str, tuple[bytes, ...]]):
    """An entry that notes which of its attributes are read."""

    def __init__(self, **given: bytes | list[bytes]) -> None:
        super().__init__(values(**given))
        self.names: set[str] = set()

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        self.names.add(name)
        return super().get(name, default)


@pytest.mark.spec("DM-3.1.7.1.20-03")
def test_only_attributes_that_were_asked_for_are_used() -> None:
    """The controller is asked for descriptors of this manager's own objects alone."""
    descriptor = [schema.DESCRIPTOR_ATTRIBUTE]
    sites = {"msmqsite1": reference(ONE, "CN=London"), "msmqsite2": reference(TWO, "CN=Paris")}
    entry, computer, queue, site, link, enterprise = (
        Asked(),
        Asked(),
        Asked(msmqqueuenameext=b"bcd"),
        Asked(cn=b"London"),
        Asked(msmqcost=b"3", **sites),
        Asked(),
    )
    found = schema.manager_of(ALPHA, entry, computer)
    schema.queue_of(f"CN={'a' * 64},{ALPHA}", queue, found)
    schema.site_of("CN=London", site)
    schema.link_of("CN=a", link)
    schema.enterprise_of("CN=MsmqServices", enterprise, BASE)
    for read, listed in (
        (entry, schema.MANAGER_ATTRIBUTES + descriptor),
        (computer, schema.COMPUTER_ATTRIBUTES),
        (queue, schema.QUEUE_ATTRIBUTES + descriptor),
        (site, schema.SITE_ATTRIBUTES),
        (link, schema.LINK_ATTRIBUTES),
        (enterprise, schema.ENTERPRISE_ATTRIBUTES),
    ):
        assert read.names
        assert read.names <= {each.lower() for each in listed}


@pytest.mark.spec("MQ-2.3.2.2-01")
def test_the_guid_of_a_manager_is_what_its_messages_name() -> None:
    octets = bytes(range(16))
    composer = Composer(manager(objectguid=octets).identifier, PrivateName(ONE, 1))
    packet = composer.compose(Message(b"a"), 1, 1_700_000_000)
    assert bytes(MessageView(packet).source_queue_manager_bytes) == octets


@pytest.mark.spec("DM-3.1.1.1-03")
def test_a_manager_that_says_nothing_has_the_defaults() -> None:
    for found in (manager(), QueueManager(identifier=OWN, computer_name="Alpha")):
        assert (found.foreign_system, found.remote_access_server, found.supporting_server) == (False, False, False)
        assert found.site_identifier_list == ()
        assert found.in_routing_server_identifier_list == ()
        assert found.out_routing_server_identifier_list == ()
        assert (found.queue_manager_quota, found.journal_quota) == (0x0010_0000, NO_QUOTA)
        assert (found.directory_server, found.directory_server_type, found.public_encryption_keys) == (False, None, b"")
    assert not default_configuration("alpha").security.hardened


@pytest.mark.spec("MQ-2.3.2.7-01", "MQ-2.3.2.8-01", "MQ-2.3.2.21-01")
def test_lists_of_sites_and_routing_servers_are_guids_in_an_order_of_our_own() -> None:
    found = manager(
        msmqsites=[TWO.bytes_le, ONE.bytes_le],
        msmqinroutingservers=[reference(THREE, "CN=msmq,CN=c"), reference(ONE, "CN=msmq,CN=a")],
        msmqoutroutingservers=reference(TWO, "CN=msmq,CN=b"),
    )
    assert found.site_identifier_list == (ONE, TWO)
    assert found.in_routing_server_identifier_list == (ONE, THREE)
    assert found.out_routing_server_identifier_list == (TWO,)


def test_a_reference_to_a_deleted_object_is_passed_over() -> None:
    gone = reference(ONE, rf"CN=msmq\0ADEL:{ONE},CN=Deleted Objects,{BASE}")
    assert manager(msmqinroutingservers=[gone, reference(TWO, "CN=msmq,CN=b")]).in_routing_server_identifier_list == (
        TWO,
    )


@pytest.mark.spec("MQ-2.3.2.9-01")
@pytest.mark.parametrize(
    ("service", "kind", "remote_access"),
    [
        (b"0", DirectoryServerType.STANDALONE, False),
        (b"1", DirectoryServerType.STANDALONE, False),
        (b"2", DirectoryServerType.BACKUP_SITE_CONTROLLER, False),
        (b"4", DirectoryServerType.PRIMARY_SITE_CONTROLLER, False),
        (b"8", DirectoryServerType.PRIMARY_ENTERPRISE_CONTROLLER, False),
        (b"16", DirectoryServerType.STANDALONE, True),
        (b"18", DirectoryServerType.BACKUP_SITE_CONTROLLER, True),
    ],
)
def test_the_service_says_which_server_it_is(service: bytes, kind: DirectoryServerType, remote_access: bool) -> None:
    found = manager(msmqservicetype=service, msmqdsservices=b"TRUE")
    assert (found.directory_server_type, found.remote_access_server) == (kind, remote_access)
    assert manager(msmqservicetype=service).directory_server_type is None


@pytest.mark.spec("MQ-2.3.2.10-01", "MQ-2.3.2.18-01", "MQ-2.3.2.24-01")
def test_quotas_and_switches_of_a_manager() -> None:
    found = manager(msmqquota=b"8192", msmqjournalquota=b"-1", msmqforeign=b"TRUE", msmqroutingservices=b"TRUE")
    assert (found.queue_manager_quota, found.journal_quota) == (8192, NO_QUOTA)
    assert found.foreign_system
    assert found.routing_server
    assert manager(msmqjournalquota=b"4294967295").journal_quota == NO_QUOTA
    assert not manager(msmqroutingservices=b"FALSE").routing_server


@pytest.mark.spec("MQ-2.3.2.32-01")
def test_encryption_keys_must_be_a_list_of_keys() -> None:
    keys = encode_public_keys([DsPublicKey(ProviderType.RSA_FULL, "base", b"\x06\x02\0\0\0\xa4\0\0RSA1" + b"\0" * 20)])
    assert manager(msmqencryptkey=keys).public_encryption_keys == keys
    with pytest.raises(DirectoryError, match="mSMQEncryptKey must be MQDSPUBLICKEYS"):
        manager(msmqencryptkey=keys[:-3])


def test_what_the_computer_says_of_its_manager() -> None:
    sid = Sid.parse("S-1-5-21-1-2-3-1105")
    computer = values(
        objectsid=sid.encode(),
        dnshostname=b"alpha.corp.local",
        msmqsigncertificates=b"certificates",
        operatingsystemversion=b"10.0",
        serviceprincipalname=[b"HOST/alpha", b"MSClusterVirtualServer/alpha"],
    )
    found = schema.manager_of(ALPHA, values(), computer)
    assert (found.computer_name, found.host, found.full_path) == ("Alpha", "alpha.corp.local", ALPHA)
    assert found.security_identifier == str(sid)
    assert (found.public_signing_key_list, found.operating_system_version) == (b"certificates", "10.0")
    assert found.clustered
    assert not manager().clustered


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"objectguid": b"short"}, "objectGUID must have 16 bytes"),
        ({"msmqquota": b"many"}, "msmqquota must be a whole number"),
        ({"msmqforeign": b"1"}, "msmqforeign must be TRUE or FALSE"),
        ({"msmqsites": b"short"}, "msmqsites must have GUIDs of 16 bytes"),
        ({"msmqinroutingservers": b"CN=msmq,CN=b"}, "must name an object with its GUID"),
        ({"whencreated": b"yesterday"}, "whencreated must be a time"),
    ],
)
def test_a_bad_manager_is_refused_with_a_sentence(given: dict[str, bytes], words: str) -> None:
    with pytest.raises(DirectoryError, match=words):
        manager(**given)


def link(**given: bytes | list[bytes]) -> RoutingLink:
    right: dict[str, bytes | list[bytes]] = {
        "msmqcost": b"3",
        "msmqsite1": reference(ONE, "CN=London"),
        "msmqsite2": reference(TWO, "CN=Paris"),
    }
    return schema.link_of("CN=a", values(**right | given))


@pytest.mark.spec("MQ-2.3.7.1-01", "MQ-2.3.7.12-01", "MQ-2.3.7.13-01", "MQ-2.3.3.3-01")
def test_a_link_joins_two_sites_at_a_cost_with_gates() -> None:
    found = link(msmqsitegates=[reference(THREE, "CN=msmq,CN=c"), reference(OWN, "CN=msmq,CN=a")])
    assert (found.site1_identifier, found.site2_identifier, found.actual_cost) == (ONE, TWO, 3)
    assert found.site_gate_identifier_list == (OWN, THREE)


@pytest.mark.spec("MQ-2.3.7.3-01")
@pytest.mark.parametrize("cost", [b"0", b"1000000", b"-1"])
def test_a_cost_must_be_in_its_range(cost: bytes) -> None:
    with pytest.raises(DirectoryError, match="mSMQCost must be from 1 to 999999"):
        link(msmqcost=cost)
    assert [link(msmqcost=each).actual_cost for each in (b"1", b"999999")] == [1, 999_999]


@pytest.mark.parametrize(
    "sites",
    [
        {"msmqsite2": reference(ONE, "CN=London")},
        {"msmqsite1": []},
        {"msmqsite2": reference(TWO, rf"CN=P\0ADEL:{TWO},CN=D")},
    ],
)
def test_a_link_must_join_two_sites_that_exist(sites: dict[str, bytes | list[bytes]]) -> None:
    with pytest.raises(DirectoryError, match="a routing link must join two"):
        link(**sites)


@pytest.mark.spec("MQ-2.3.3.2-01")
def test_a_site_has_its_guid_and_its_name() -> None:
    found = schema.site_of("CN=London", values(cn="Köln".encode()))
    assert found == Site(identifier=OWN, name="Köln", full_path="CN=London")
    assert (found.intra_site_replication_interval_s, found.inter_site_replication_interval_s) == (2, 10)


@pytest.mark.spec("DM-3.1.1.6-01", "MQ-2.3.5.15-01")
def test_the_enterprise_and_its_defaults() -> None:
    found = schema.enterprise_of("CN=MsmqServices", values(), BASE)
    assert (found.name, found.weakened_security, found.default_time_to_live_s, found.old_directory) == (
        BASE,
        False,
        345_600,
        True,
    )
    assert found.non_ldap_capable_queue_manager_notification
    found = schema.enterprise_of(
        "CN=MsmqServices",
        values(
            msmqnamestyle=b"TRUE", msmqcspname=b"N", msmqlonglived=b"600", msmqversion=b"200", ntsecuritydescriptor=b"s"
        ),
        BASE,
    )
    assert (found.weakened_security, found.default_time_to_live_s, found.old_directory) == (True, 600, False)
    assert (found.non_ldap_capable_queue_manager_notification, found.security) == (False, b"s")


def test_a_queue_and_its_properties() -> None:
    queue = schema.queue_of(
        rf"CN=Orders\=\#1,{ALPHA}",
        values(
            msmqlabelex=b"Orders",
            msmqqueuetype=ONE.bytes_le,
            msmqjournal=b"TRUE",
            msmqqueuequota=b"10",
            msmqqueuejournalquota=b"-1",
            msmqauthenticate=b"TRUE",
            msmqprivacylevel=b"2",
            msmqtransactional=b"TRUE",
            msmqbasepriority=b"-5",
            whencreated=b"20261119211435.0Z",
        ),
        manager(),
    )
    assert str(queue.pathname) == r"Alpha\orders=#1"
    assert (queue.queue_manager_identifier, queue.base_priority, queue.type) == (OWN, -5, ONE)
    held = queue.properties
    assert held is not None
    assert (held.label, held.journal, held.quota_kb, held.journal_quota_kb) == ("Orders", True, 10, NO_QUOTA)
    assert (held.authenticate, held.privacy, held.transactional) == (True, QueuePrivacy.BODY, True)
    assert queue.create_time == 1_795_122_875


def test_a_long_name_is_put_together() -> None:
    """[MS-MQDSSM] 3.1.6.11.2.1: of a name of 64 characters, nine are no part of it, and the rest is elsewhere."""
    cn = "a" * 55 + "-12345678"
    found = schema.queue_of(f"CN={cn},{ALPHA}", values(msmqqueuenameext=b"bcd"), manager())
    assert found.pathname.tail.name == "a" * 55 + "bcd"


@pytest.mark.parametrize(
    "name", [r"a\;journal", r"a\;sub", r"system$\;deadletter", r"\;deadxact", "x" * 200, r"a\2Cb\0A", r"a\"b"]
)
def test_a_queue_must_have_the_name_of_a_public_queue(name: str) -> None:
    with pytest.raises(DirectoryError):
        schema.queue_of(f"CN={name},{ALPHA}", values(), manager())


@pytest.mark.parametrize("name", [r"private$\\order_queue$", r"PRIVATE$\5Cadmin_queue$", "order_queue$"])
def test_a_queue_of_the_directory_is_never_an_internal_one(name: str) -> None:
    found = schema.queue_of(f"CN={name},{ALPHA}", values(), manager())
    assert "\\private$\\" not in str(found.pathname).lower()
    assert found.pathname.computer == "Alpha"


def test_of_two_objects_with_one_name_the_lower_guid_counts_and_a_guid_is_one_object() -> None:
    copy = DomainCopy()
    low, high = (
        QueueManager(identifier=each, computer_name=name, full_path=name) for each, name in ((ONE, "a"), (TWO, "A"))
    )
    copy.apply(Changes(managers=[high, low, high]))
    copy.confirm(Stamp("d", "s", "i", 1, "u"), 5.0)
    found, faults = copy.snapshot()
    assert found.managers == (low,)
    assert faults == ["A: another queue manager has the same name, a"]
    again = DomainCopy()
    again.read(iter(list(copy.lines())))
    assert (again.managers, again.stamp, again.read_at_s) == (copy.managers, copy.stamp, 5.0)
