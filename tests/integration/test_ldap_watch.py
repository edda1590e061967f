"""The watch of a real domain: what it reads is what an export says, it sees changes, and it survives bad times."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from postroad.directory import distinguished_names as names
from postroad.directory.domain_reader import DomainReader
from postroad.directory.file import format_enterprise, load_enterprise, read_directory
from postroad.directory.ldap_connection import LdapConnection, LdapSettings, SdFlags, connect
from postroad.directory.ldap_watch import COPY_FILE, DomainSettings, LdapWatch
from postroad.directory.objects import Queue, QueueManager
from postroad.directory.snapshot import Directory
from postroad.directory.watch import export_enterprise
from postroad.errors import LdapError, LdapFault, ManagerNotFound, NoRoute
from postroad.routing import Routes
from postroad.security.access import Token, allowed
from postroad.security.descriptors import EVERYONE, Ace, AceType, Acl, SecurityDescriptor, Sid
from postroad.security.directory_rights import directory_descriptor
from postroad.security.rights import QueueRight
from tests.domain import ADMINISTRATOR, BASE, CONFIGURATION, PASSWORD, Controller, add_enterprise
from tests.enterprises import client, directory, link, queue, server, site

COMPUTERS = f"CN=Computers,{BASE}"


@pytest.fixture
def controller(new_controller: Callable[[], Controller]) -> Controller:
    made = new_controller()
    made.start()
    return made


@pytest.fixture
def settings(controller: Controller, tmp_path: Path) -> DomainSettings:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    ldap = LdapSettings(
        servers=(controller.ldaps,),
        user=ADMINISTRATOR,
        password_file=password,
        ca_certificates=controller.ca_certificates,
    )
    return DomainSettings(ldap=ldap, own="alpha", copy_file=tmp_path / COPY_FILE)


@pytest.fixture
def connection(settings: DomainSettings) -> Iterator[LdapConnection]:
    with connect(settings.ldap) as opened:
        yield opened


@pytest.fixture
def follow(settings: DomainSettings) -> Iterator[Callable[..., LdapWatch]]:
    """Makes watches of the domain."""
    made: list[LdapWatch] = []

    def make(now: float = 0.0, given: DomainSettings = settings) -> LdapWatch:
        made.append(LdapWatch(given, now))
        return made[-1]

    yield make
    for each in made:
        each.close()


def three_sites() -> Directory:
    return directory(
        *(site(name) for name in ("London", "Paris", "Rome")),
        link("London", "Paris", 3, "lon-gate par-gate"),
        link("Paris", "Rome", 2, "par-gate rom-gate"),
        server("lon-gate", "London"),
        server("par-gate", "Paris", address="par-gate.postroad.test"),
        server("rom-gate", "Rome"),
        client("alpha", "London", inward="lon-gate", outward="lon-gate"),
        client("beta", "Rome Paris"),
        queue(r"alpha\orders"),
        queue(r"beta\orders"),
    )


def described(found: Directory) -> object:
    """What matters to routes and names, without what only Active Directory holds and without its order."""
    return (
        {each.name: each.identifier for each in found.sites if each.name != "Default-First-Site-Name"},
        sorted((each.link_sites, each.cost, each.gates) for each in (Named(found, link) for link in found.links)),
        {
            each.computer_name: (
                each.identifier,
                each.host,
                set(each.site_identifier_list),
                each.routing_server,
                set(each.in_routing_server_identifier_list),
                set(each.out_routing_server_identifier_list),
            )
            for each in found.managers
        },
        {each.pathname: (each.identifier, each.queue_manager_identifier, each.base_priority) for each in found.queues},
    )


class Named:
    def __init__(self, found: Directory, each: object) -> None:
        self.link_sites = sorted(site.name for site in found.link_sites(each))  # type: ignore[arg-type]
        self.cost = each.actual_cost  # type: ignore[attr-defined]
        self.gates = sorted(gate.computer_name for gate in found.link_gate_collection(each))  # type: ignore[arg-type]


@pytest.mark.spec("BR-2.3-01", "QB-2.3-01", "SRM-2.3-01", "QP-2.3-01")
def test_a_domain_is_read_as_it_was_written(connection: LdapConnection, follow: Callable[..., LdapWatch]) -> None:
    written = add_enterprise(connection, three_sites())
    watch = follow()
    assert described(watch.directory) == described(written)
    assert watch.directory.enterprise is not None
    own = watch.directory.manager_named("alpha")
    assert own is not None
    assert own.security
    assert own.security_identifier
    assert own.security_identifier.startswith("S-1-5-21-")
    held = {each.pathname.computer: bool(each.security) for each in watch.directory.queues}
    assert held == {"alpha": True, "beta": False}
    other = follow()
    assert format_enterprise(other.directory) == format_enterprise(watch.directory)


def test_changes_renames_and_deletions_are_seen(
    connection: LdapConnection, follow: Callable[..., LdapWatch], controller: Controller
) -> None:
    written = add_enterprise(connection, three_sites())
    watch = follow()
    before = watch.directory
    assert not watch.reload(1.0) or described(watch.directory) == described(before)
    (rome,) = (each for each in watch.directory.links if "CN=" and each.actual_cost == 2)
    connection.modify(rome.full_path, {"mSMQCost": ["7"]})
    beta = names.child("CN", "beta", COMPUTERS)
    connection.add(f"CN=invoices,CN=msmq,{beta}", {"objectClass": ["mSMQQueue"], "mSMQLabelEx": ["Bills"]})
    connection.delete(f"CN=orders,CN=msmq,{beta}")
    connection.modify(beta, {"dNSHostName": ["beta.postroad.test"]})
    assert watch.reload(2.0)
    assert [each.actual_cost for each in watch.directory.links if each.identifier == rome.identifier] == [7]
    assert {str(each.pathname) for each in watch.directory.queues} == {r"alpha\orders", r"beta\invoices"}
    found = watch.directory.manager_named("beta")
    assert found is not None
    assert found.host == "beta.postroad.test"
    rename(controller, f"CN=Rome,CN=Sites,{CONFIGURATION}", "Roma")
    rename(controller, beta, "gamma")
    assert watch.reload(3.0)
    assert {"Roma", "London", "Paris"} < {each.name for each in watch.directory.sites}
    assert watch.directory.manager_named("beta") is None
    renamed = watch.directory.manager_named("gamma")
    assert renamed is not None
    assert renamed.identifier == found.identifier
    assert {str(each.pathname) for each in watch.directory.queues} == {r"alpha\orders", r"gamma\invoices"}
    connection.add(f"CN=new,CN=msmq,CN=gamma,{COMPUTERS}", {"objectClass": ["mSMQQueue"]})
    connection.delete(rome.full_path)
    assert watch.reload(4.0)
    assert len(watch.directory.links) == len(written.links) - 1
    assert watch.full_reads == 1
    assert format_enterprise(follow().directory) == format_enterprise(watch.directory)


def rename(controller: Controller, dn: str, name: str) -> None:
    controller.edit(f"dn: {dn}\nchangetype: modrdn\nnewrdn: CN={name}\ndeleteoldrdn: 1\n")


def generated(seed: int, sites: int, links: int, managers: int, queues: int) -> Directory:
    """A random enterprise: a tree of sites and more links, a gate in each site, some managers in two sites."""
    chance = random.Random(seed)
    names_of = [f"site {number}, with \\=#{chance.choice('äé+')}" for number in range(sites)]
    pairs = [(number, chance.randrange(number)) for number in range(1, sites)]
    while len(pairs) < links:
        one, other = chance.sample(range(sites), 2)
        pairs.append((one, other))
    gates = [f"gate-{number}" for number in range(sites)]
    made = [server(gates[number], f"site{number}") for number in range(sites)]
    for number in range(managers - sites):
        homes = chance.sample(range(sites), chance.choice((1, 1, 1, 2)))
        routers = " ".join(gates[home] for home in homes) if chance.random() < 0.3 else ""
        kind = server if chance.random() < 0.1 else client
        made.append(kind(f"m{number}", " ".join(f"site{home}" for home in homes), inward=routers, outward=routers))
    return directory(
        *(replace(site(f"site{number}"), name=names_of[number]) for number in range(sites)),
        *(
            link(f"site{one}", f"site{other}", chance.choice((1, 1, 2, 3, 999_999)), f"gate-{one} gate-{other}", number)
            for number, (one, other) in enumerate(pairs)
        ),
        *made,
        *(queue(f"{chance.choice(made).computer_name}\\q{number}") for number in range(queues)),
    )


@pytest.mark.parametrize(
    ("seed", "sites", "links", "managers", "queues"), [(1, 3, 4, 10, 20), (2, 12, 30, 60, 200), (3, 40, 100, 300, 1000)]
)
def test_a_generated_domain_routes_like_its_export(
    connection: LdapConnection,
    follow: Callable[..., LdapWatch],
    tmp_path: Path,
    seed: int,
    sites: int,
    links: int,
    managers: int,
    queues: int,
) -> None:
    written = add_enterprise(connection, generated(seed, sites, links, managers, queues))
    watch = follow()
    found = watch.directory
    assert described(found) == described(written)
    chance = random.Random(seed)
    give_lists(connection, chance, found)
    file = tmp_path / "enterprise.toml"
    file.write_text(export_enterprise(found, watch), encoding="utf-8")
    exported = read_directory(load_enterprise(file))
    assert [each.name for each in exported.sites] == [each.name for each in found.sites]
    one, other = Routes(found), Routes(exported)
    for each in chance.sample(found.managers, min(60, managers)):
        assert one.table(each.computer_name) == other.table(each.computer_name)
        for target in chance.sample(found.managers, min(20, managers)):
            assert hops_of(one, each, target) == hops_of(other, each, target)
    assert [(each.identifier, each.pathname, each.queue_manager_identifier) for each in exported.queues] == [
        (each.identifier, each.pathname, each.queue_manager_identifier) for each in found.queues
    ]

    for listed in chance.sample(found.queues, 10):
        held = own_queues(connection, listed.pathname.computer)
        assert decisions(held) == decisions(exported.queues_of(listed.queue_manager_identifier))


PEOPLE = [Sid.parse(f"S-1-5-21-1-2-3-{number}") for number in range(1001, 1006)]
RIGHTS = [right.value for right in (*QueueRight, QueueRight.RECEIVE_MESSAGE | QueueRight.WRITE_MESSAGE)]


def give_lists(connection: LdapConnection, chance: random.Random, found: Directory) -> None:
    """Some queues get an access list of their own; the others have what the domain gives to new objects."""
    for each in chance.sample(found.queues, len(found.queues) // 4):
        entries = [
            Ace(chance.choice((AceType.ALLOW, AceType.ALLOW, AceType.DENY)), chance.choice(RIGHTS), who)
            for who in chance.sample([*PEOPLE, EVERYONE], chance.randint(0, 4))
        ]
        written = directory_descriptor(SecurityDescriptor(dacl=Acl(tuple(entries))))
        connection.modify(each.full_path, {"nTSecurityDescriptor": [written.encode()]}, sd_flags=SdFlags.DACL)


def own_queues(connection: LdapConnection, manager: str) -> Sequence[Queue]:
    """What this manager itself reads."""
    reader = DomainReader(connection, manager)
    reader.managers()
    return reader.own_queues().queues


def decisions(queues: Sequence[Queue]) -> object:
    tokens = [Token.everyone(), Token.anonymous(), *(Token.of_user(user, groups=[PEOPLE[0]]) for user in PEOPLE)]
    lists = {each.identifier: SecurityDescriptor.decode(each.security) for each in queues}
    return {name: [allowed(held, token, mask) for token in tokens for mask in RIGHTS] for name, held in lists.items()}


def hops_of(routes: Routes, one: QueueManager, other: QueueManager) -> object:
    try:
        return routes.route(one.computer_name, other.computer_name)
    except (NoRoute, ManagerNotFound) as fault:
        return str(fault)


def test_bad_objects_are_passed_over_and_the_rest_is_kept(
    connection: LdapConnection, follow: Callable[..., LdapWatch], caplog: pytest.LogCaptureFixture
) -> None:
    add_enterprise(connection, three_sites())
    watch = follow()
    good = format_enterprise(watch.directory)
    services = f"CN=MsmqServices,CN=Services,{CONFIGURATION}"
    london, rome = f"CN=London,CN=Sites,{CONFIGURATION}", f"CN=Rome,CN=Sites,{CONFIGURATION}"
    bad = {"objectClass": ["mSMQSiteLink"], "mSMQCost": ["0"], "mSMQSite1": [london], "mSMQSite2": [rome]}
    connection.add(f"CN=zero,{services}", bad)
    connection.add(f"CN=loop,{services}", bad | {"mSMQCost": ["1"], "mSMQSite2": [london]})
    beta = f"CN=msmq,CN=beta,{COMPUTERS}"
    connection.add(names.child("CN", "a;journal", beta), {"objectClass": ["mSMQQueue"]})
    connection.add(f"OU=Other,{BASE}", {"objectClass": ["organizationalUnit"]})
    twin = f"CN=beta,OU=Other,{BASE}"
    connection.add(twin, {"objectClass": ["computer"], "sAMAccountName": ["OTHERBETA$"]})
    connection.add(f"CN=msmq,{twin}", {"objectClass": ["mSMQConfiguration"]})
    connection.add(f"CN=orders,CN=msmq,{twin}", {"objectClass": ["mSMQQueue"]})
    watch.reload(1.0)
    faults = {str(record.__dict__.get("fault", "")) for record in caplog.records}
    for words in (
        "mSMQCost must be from 1",
        "two different sites",
        "a;journal",
        "another queue manager has the same name",
    ):
        assert any(words in each for each in faults), words
    betas = [each for each in watch.directory.managers if each.computer_name == "beta"]
    assert len(betas) == 1
    if "OU=Other" not in betas[0].full_path:
        assert format_enterprise(watch.directory) == good
    assert format_enterprise(follow().directory) == format_enterprise(watch.directory)


def test_a_target_that_was_deleted_is_no_gate(connection: LdapConnection, follow: Callable[..., LdapWatch]) -> None:
    add_enterprise(connection, three_sites())
    watch = follow()
    gate = f"CN=rom-gate,{COMPUTERS}"
    connection.delete(f"CN=msmq,{gate}")
    connection.delete(gate)
    assert watch.reload(1.0)
    for found in (watch.directory, follow().directory):
        gates = [each.computer_name for link in found.links for each in found.link_gate_collection(link)]
        assert sorted(gates) == ["lon-gate", "par-gate", "par-gate"]


@pytest.mark.spec("DM-3.1.2.5-01", "DM-3.1.7.1.25-01", "DM-3.1.7.1.25-02", "DM-3.1.7.1.20-05")
def test_a_controller_that_is_killed_and_brought_back(
    controller: Controller, connection: LdapConnection, follow: Callable[..., LdapWatch], settings: DomainSettings
) -> None:
    add_enterprise(connection, three_sites())
    watch = follow(now=0.0)
    known = watch.directory
    controller.stop()
    assert not watch.reload(15.0)
    assert (watch.online, watch.failures, watch.directory) == (False, 1, known)
    assert "does not answer" in str(watch.last_error)
    assert watch.online_at == 75.0
    assert not watch.reload(74.0)  # the Directory Online Timer has not run out
    assert watch.failures == 1
    assert not watch.reload(75.0)
    assert (watch.failures, watch.online_at) == (2, 135.0)  # and it starts again
    restarted = follow(now=20.0)
    assert not restarted.online
    assert restarted.read_at_s == 0.0
    assert format_enterprise(restarted.directory) == format_enterprise(known)
    with pytest.raises(LdapError) as caught:
        follow(given=replace(settings, copy_file=None))
    assert caught.value.fault is LdapFault.NO_ANSWER
    controller.start()
    assert not watch.reload(135.0)  # back, and nothing has changed
    assert (watch.online, watch.last_error, watch.full_reads) == (True, None, 1)
    with connect(settings.ldap) as opened:
        opened.delete(f"CN=orders,CN=msmq,CN=beta,{COMPUTERS}")
    assert watch.reload(136.0)
    assert restarted.reload(140.0)
    assert (restarted.full_reads, len(restarted.directory.queues)) == (0, 1)


def test_a_controller_that_stops_answering_does_not_hold_the_manager(
    controller: Controller, connection: LdapConnection, settings: DomainSettings, follow: Callable[..., LdapWatch]
) -> None:
    add_enterprise(connection, three_sites())
    watch = follow(given=replace(settings, ldap=replace(settings.ldap, timeout_s=5.0)))
    controller.pause()
    try:
        assert not watch.reload(1.0)
        assert "no answer in time" in str(watch.last_error)
    finally:
        controller.resume()
    assert not watch.reload(100.0)
    assert watch.online


def test_a_user_who_may_not_see_deleted_objects_notices_deletions_too(
    controller: Controller, connection: LdapConnection, settings: DomainSettings, follow: Callable[..., LdapWatch]
) -> None:
    add_enterprise(connection, three_sites())
    controller.add_user("reader")
    watch = follow(given=replace(settings, ldap=replace(settings.ldap, user="reader@POSTROAD.TEST")))
    assert len(watch.directory.queues) == 2
    connection.delete(f"CN=orders,CN=msmq,CN=beta,{COMPUTERS}")
    watch.reload(10_000.0)
    assert [str(each.pathname) for each in watch.directory.queues] == [r"alpha\orders"]
    assert watch.full_reads == 1


def test_a_round_of_several_parts_finds_what_is_gone(
    controller: Controller,
    connection: LdapConnection,
    settings: DomainSettings,
    follow: Callable[..., LdapWatch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroad.directory.ldap_watch._COMPARED_AT_ONCE", 3)
    add_enterprise(connection, three_sites())
    controller.add_user("reader")
    watch = follow(given=replace(settings, ldap=replace(settings.ldap, user="reader@POSTROAD.TEST")))
    assert not watch.reload(1.0)
    connection.delete(f"CN=orders,CN=msmq,CN=beta,{COMPUTERS}")
    connection.add(f"CN=new,CN=msmq,CN=beta,{COMPUTERS}", {"objectClass": ["mSMQQueue"]})
    for number in range(2, 2 + 2 * len(watch.directory.managers)):
        watch.reload(float(number))
    assert [str(each.pathname) for each in watch.directory.queues] == [r"alpha\orders", r"beta\new"]
    assert format_enterprise(watch.directory) == format_enterprise(follow().directory)
    assert watch.full_reads == 1


def test_another_controller_is_read_from_the_start(
    new_controller: Callable[[], Controller],
    controller: Controller,
    connection: LdapConnection,
    settings: DomainSettings,
    follow: Callable[..., LdapWatch],
) -> None:
    """Two controllers of one domain: a number of one says nothing about the other."""
    add_enterprise(connection, three_sites())
    second = new_controller()
    second.use_certificate(*controller.authority.issue(second.address), controller.ca_certificates)
    second.give_invocation()
    second.start()
    ldap = replace(settings.ldap, servers=(controller.ldaps, second.ldaps))
    watch = follow(given=replace(settings, ldap=ldap))
    assert (watch.source, watch.full_reads) == (controller.ldaps, 1)
    controller.stop()
    assert watch.reload(1.0), watch.last_error
    assert (watch.source, watch.full_reads, watch.directory.queues) == (second.ldaps, 2, ())


@pytest.mark.spec("DM-3.1.3-07")
def test_the_timers_read_again(
    connection: LdapConnection, settings: DomainSettings, follow: Callable[..., LdapWatch]
) -> None:
    add_enterprise(connection, three_sites())
    watch = follow(now=0.0)
    assert (watch.sites_update_at, watch.site_gates_update_at) == (43_200.0, 3_600.0)
    watch.reload(3_600.0)
    assert (watch.site_gates_update_at, watch.full_reads) == (7_200.0, 1)
    watch.reload(43_200.0)
    assert (watch.sites_update_at, watch.full_reads) == (86_400.0, 2)


@pytest.mark.parametrize("damage", ["cut", "changed", "other bytes", "nothing"])
def test_a_damaged_copy_is_not_believed(
    connection: LdapConnection, settings: DomainSettings, follow: Callable[..., LdapWatch], damage: str
) -> None:
    add_enterprise(connection, three_sites())
    watch = follow()
    connection.delete(f"CN=orders,CN=msmq,CN=beta,{COMPUTERS}")
    assert watch.reload(1.0)
    file = settings.copy_file
    assert file is not None
    assert file.stat().st_mode & 0o777 == 0o600
    data = file.read_bytes()
    damaged = {
        "cut": data[:-10],
        "changed": data.replace(b"mSMQ", b"mSMX", 1).replace(b"London", b"Lundun", 1),
        "other bytes": b"\xff" * 1000,
        "nothing": b"",
    }[damage]
    file.write_bytes(damaged)
    offline = replace(settings, ldap=replace(settings.ldap, servers=("ldaps://127.9.9.9",)))
    if damage == "cut":  # what comes before is good
        found = follow(given=offline).directory
        assert {str(each.pathname) for each in found.queues} == {r"alpha\orders", r"beta\orders"}
    else:
        with pytest.raises(LdapError):
            follow(given=offline)
    assert follow().directory.queues == watch.directory.queues
