"""Whom strangers can make a manager call: only those that the owner, the directory or an application names."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from postroad.binary.next_hops import KnownManagers
from postroad.directory.objects import QueueManager, Site
from postroad.directory.snapshot import Directory
from postroad.message import Message
from postroad.names import PrivateName, parse_format_name
from postroad.routing import Router
from postroad.security.relay import ANY_HOST, RelayRule
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId
from postroad.wire.queue_names import destination_name
from tests.unit.binary.network import ACKS, DEADLETTER, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

SEQUENCE = TxSequenceId(3, 7)
VICTIM = "10.0.0.77"


@pytest.fixture(autouse=True)
def strict(network: Network, beta: Station) -> None:
    network.listed = False
    beta.use(relay=())


def asking(admin_queue: str, **properties: object) -> Message:
    return Message(b"body", label="a", ack="full", admin_queue=admin_queue, recoverable=True, **properties)  # type: ignore[arg-type]


def withheld(station: Station) -> int:
    return station.core.delivery.tally.withheld


@pytest.mark.parametrize("name", [f"DIRECT=TCP:{VICTIM}\\{ACKS}", f"PRIVATE={UUID(int=77)}\\9"])
def test_an_administration_queue_makes_nobody_else_be_called(
    network: Network, beta: Station, stranger: Stranger, name: str
) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(ORDERS), asking(name)))
    assert (beta.labels(ORDERS), withheld(beta)) == (["a"], 1)
    beta.restart()
    beta.use(relay=())
    beta.receive(ORDERS)
    network.wait(5)
    assert withheld(beta) == 1
    assert (network.connections, list(beta.core.queues.outgoing)) == ([], [])


@pytest.mark.parametrize("connected", [True, False])
def test_a_computers_name_that_nobody_knows_leads_to_the_address_that_the_message_came_from(
    network: Network, beta: Station, stranger: Stranger, connected: bool
) -> None:
    """The address belongs to the sender, or to nobody. The computer with that name is not called, whatever a name
    service says."""
    network.names["victim"] = VICTIM
    session = stranger.call(beta)
    if not connected:
        beta.core.pause(beta.core.queues.outgoing_queue(beta.core.tick, parse_format_name(stranger.direct(ACKS)), 0))
    stranger.send(session, stranger.compose(beta.direct(ORDERS), asking(f"DIRECT=OS:victim\\{ACKS}")))
    if not connected:
        network.cut(beta, stranger)
        beta.core.resume(beta.queue(stranger.direct(ACKS)), network.now)
    network.wait(5)
    assert [view.message_class for view in stranger.messages] == [MessageClass.ACK_REACH_QUEUE]
    assert destination_name(stranger.messages[0]) == parse_format_name(f"DIRECT=OS:victim\\{ACKS}")
    assert network.connections == ([] if connected else [("beta", stranger.address)])
    assert withheld(beta) == 0


def test_nobody_claims_to_have_come_by_http(network: Network, beta: Station, stranger: Stranger) -> None:
    packet = stranger.compose(beta.direct(ORDERS), asking(f"DIRECT=TCP:{VICTIM}\\{ACKS}"))
    stranger.send(stranger.call(beta), packet[:63] + bytes((packet[63] | 0x02,)) + packet[64:])
    assert (beta.labels(ORDERS), withheld(beta)) == (["a"], 1)
    beta.receive(ORDERS)
    assert (withheld(beta), network.connections) == (2, [])


def test_another_managers_guid_is_no_way_to_call_it(
    network: Network, alpha: Station, beta: Station, stranger: Stranger
) -> None:
    alpha.send(beta.direct(ORDERS), "so that beta knows where alpha is")
    network.cut(alpha, beta)
    del network.connections[:]
    stranger.send(stranger.call(beta), stranger.compose(beta.direct(ORDERS), asking(alpha.private(ACKS))))
    network.wait(5)
    called = [host for name, host in network.connections if name == "beta"]
    assert (called, alpha.classes(ACKS), withheld(beta)) == ([], [], 1)


@pytest.mark.parametrize("by", ["direct", "private"])
def test_the_address_that_the_message_came_from_is_answered(
    network: Network, beta: Station, stranger: Stranger, by: str
) -> None:
    name = stranger.direct(ACKS) if by == "direct" else f"PRIVATE={stranger.identifier}\\9"
    stranger.send(stranger.call(beta), stranger.compose(beta.direct(ORDERS), asking(name)))
    network.cut(beta, stranger)
    beta.restart()
    beta.use(relay=())
    beta.receive(ORDERS)
    network.wait(2)
    classes = list(dict.fromkeys(view.message_class for view in stranger.messages))
    assert classes == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]


def test_what_an_application_here_sends_to_may_be_answered_to(
    network: Network, beta: Station, gamma: Station, stranger: Stranger
) -> None:
    beta.send(gamma.direct(ORDERS), "a")
    stranger.send(stranger.call(beta), stranger.compose(beta.direct(ORDERS), asking(gamma.direct(ACKS))))
    assert gamma.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE]


def test_the_owner_may_allow_more(network: Network, beta: Station, gamma: Station, stranger: Stranger) -> None:
    beta.use(relay=(RelayRule.parse("10.0.0.0/24"),))
    stranger.send(stranger.call(beta), stranger.compose(beta.direct(ORDERS), asking(gamma.direct(ACKS))))
    assert gamma.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE]


def test_messages_of_local_applications_are_not_strangers(network: Network, beta: Station, gamma: Station) -> None:
    beta.send(ORDERS, asking(gamma.direct(ACKS)))
    beta.restart()
    beta.use(relay=())
    beta.receive(ORDERS)
    network.wait(2)
    assert gamma.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]


# Forwarding


@pytest.mark.parametrize("transactional", [False, True])
def test_messages_for_unknown_managers_are_not_stored(
    network: Network, beta: Station, stranger: Stranger, transactional: bool
) -> None:
    session = stranger.call(beta)
    message = Message(b"body", recoverable=True, dead_letter=True)
    for number in range(1, 51):
        place = (SEQUENCE, 1, 0) if transactional else None
        stranger.send(session, stranger.compose(f"PRIVATE={UUID(int=number)}\\9", message, place))
    network.wait(1)
    leads_back = [PrivateName(stranger.identifier, 4)] if transactional else []
    assert list(beta.core.queues.outgoing) == leads_back
    assert (beta.labels(DEADLETTER), withheld(beta), session.closed) == ([], 50, False)
    if transactional:
        assert {ack.final_class for ack in stranger.final_acks} == {MessageClass.NACK_BAD_DST_Q}


def test_star_brings_forwarding_back(network: Network, beta: Station, stranger: Stranger) -> None:
    beta.use(relay=(ANY_HOST,))
    name = f"PRIVATE={uuid4()}\\9"
    stranger.send(stranger.call(beta), stranger.compose(name, "a"))
    assert beta.waiting(name) == ["a"]


def test_acknowledgments_of_unknown_sources_make_no_queues(network: Network, beta: Station, stranger: Stranger) -> None:
    """The sources are named by a manager's GUID, as in messages of a directory's managers."""
    session = stranger.call(beta)
    for number in range(1, 51):
        packet = stranger.compose(beta.private(LEDGER), "x", (SEQUENCE, 1, 0), source=UUID(int=number))
        stranger.send(session, packet)
    network.wait(2)
    assert (list(beta.core.queues.outgoing), beta.labels(LEDGER)) == ([], [])


SITE = Site(identifier=UUID(int=500), name="here")


def manager(number: int, **properties: object) -> QueueManager:
    return QueueManager(
        identifier=UUID(int=number),
        computer_name=f"m{number}",
        address=f"10.1.0.{number}",
        site_identifier_list=(SITE.identifier,),
        **properties,  # type: ignore[arg-type]
    )


def known(own: int, *managers: QueueManager) -> KnownManagers:
    router = Router(UUID(int=own), Directory(sites=[SITE], managers=managers), 0.0)
    return KnownManagers(lambda: router, UUID(int=own))


def nothing(host: str) -> bool:
    return False


class TestWhoForwards:
    """[MS-MQBR] 1.3: routing servers, and in- and out-routing servers for the managers that they serve."""

    def forwards(self, view: KnownManagers, source: int, destination: int, *, trusted: bool = False) -> bool:
        return view.forwards(UUID(int=source), PrivateName(UUID(int=destination), 9), nothing, trusted=trusted)

    def test_a_routing_server_for_those_that_it_knows_a_way_to(self) -> None:
        view = known(1, manager(1, routing_server=True), manager(2))
        assert self.forwards(view, 99, 2)
        assert not self.forwards(view, 99, 98)
        assert self.forwards(view, 2, 98, trusted=True)  # a neighbour's directory may be newer

    def test_a_plain_manager_for_nobody(self) -> None:
        view = known(1, manager(1), manager(2))
        assert not self.forwards(view, 2, 2, trusted=True)
        assert not self.forwards(known(1, manager(2)), 99, 2)

    def test_an_in_routing_server_for_its_own(self) -> None:
        view = known(1, manager(1), manager(2, in_routing_server_identifier_list=(UUID(int=1),)), manager(3))
        assert self.forwards(view, 99, 2)
        assert not self.forwards(view, 99, 3)

    def test_an_out_routing_server_for_its_own(self) -> None:
        view = known(1, manager(1), manager(2, out_routing_server_identifier_list=(UUID(int=1),)), manager(3))
        assert self.forwards(view, 2, 3)
        assert not self.forwards(view, 99, 3)

    def test_anybody_for_hosts_on_the_list(self) -> None:
        view = known(1, manager(1), manager(2))
        name = PrivateName(UUID(int=2), 9)
        assert view.forwards(UUID(int=99), name, lambda host: host == "10.1.0.2", trusted=False)

    def test_who_may_pass_on_messages_of_others(self) -> None:
        served = manager(4, in_routing_server_identifier_list=(UUID(int=3),))
        view = known(1, manager(1), manager(2, routing_server=True), manager(3), served)
        assert [view.routes(f"10.1.0.{number}") for number in (1, 2, 3, 4, 5)] == [False, True, True, False, False]
        assert view.routes("M2")
        assert (view.knows("10.1.0.4"), view.knows("m4"), view.knows("10.1.0.9")) == (True, True, False)
