"""Any envelope that is accepted can be read, described, passed on and acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroad.describe.packets import message_json, packet_json
from postroad.soap.addresses import Redirections
from postroad.soap.elements import Attachments, Envelope, Stream
from postroad.wire.constants import MessageClass
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView
from tests.soap_strategies import envelopes
from tests.unit.soap.network import LEDGER, ORDERS, STARTED, Network, Station, stream_message

HELD = r"private$\held"
TX_HELD = r"private$\txheld"


class Anybody(dict[str, int | None]):
    """Every host answers 200."""

    def __contains__(self, host: object) -> bool:
        return True

    def __missing__(self, host: str) -> int:
        return 200


def expire(beta: Station, path: str) -> None:
    for record in beta.records(path):
        beta.core.delivery.expire(beta.queue(path), record, beta.network.now)


def delete(beta: Station, path: str) -> None:
    beta.core.delete_queue(beta.queue(path), beta.network.now)


def die(beta: Station, path: str) -> None:
    for record in beta.records(path):
        view = MessageView(record.packet)
        beta.core.delivery.dead_letter(record.packet, view, MessageClass.NACK_Q_PURGED, beta.network.now)


def move(beta: Station, path: str) -> None:
    target = TX_HELD if path == LEDGER else HELD
    beta.core.move(beta.queue(path), beta.queue(target), beta.records(path), beta.network.now)
    beta.network.run()
    beta.receive(target)


FATES: dict[str, Callable[[Station, str], object]] = {
    "received": lambda beta, path: beta.receive(path),
    "purged": lambda beta, path: beta.purge(path),
    "expired": expire,
    "queue deleted": delete,
    "dead": die,
    "moved": move,
}


def managers() -> tuple[Network, Station, Station]:
    network = Network(answers=Anybody())
    beta = network.station("beta", 2)
    beta.core.delivery.insecure_nacks = True
    beta.create(HELD)
    beta.create(TX_HELD, transactional=True)
    return network, beta, network.station("gate", 7, redirections=Redirections(store_and_forward=True))


def to(envelope: Envelope, url: str) -> Envelope:
    return replace(envelope, path=replace(envelope.path, to=url))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(envelopes, st.binary(max_size=20), st.binary(max_size=20), st.sampled_from(sorted(FATES)), st.booleans())
def test_what_is_accepted_can_be_answered(
    envelope: Envelope, body: bytes, extension: bytes, fate: str, usual: bool
) -> None:
    network, beta, gate = managers()
    attachments = Attachments(body or None, extension or None)
    path = ORDERS if envelope.stream is None else LEDGER
    if usual:  # else few would be messages of a known kind, and few streams would begin
        msmq = envelope.msmq and replace(envelope.msmq, message_class=0)
        envelope = replace(envelope, msmq=msmq, delivery_receipt=None, commitment_receipt=None, stream_receipt=None)
    if usual and envelope.stream is not None:
        stream = replace(envelope.stream, current=1, previous=None)
        envelope = replace(envelope, stream=replace(stream, send_receipts_to="http://far/msmq/private$/order_queue$"))
    beta.ask(to(envelope, beta.url(path)), attachments)
    for record in beta.records(path):
        view = MessageView(record.packet)
        assert UserMessage.decode(record.packet).encode() == record.packet
        assert message_json(view)["id"]
        assert packet_json(record.packet, view)
        for message_class in MessageClass:
            beta.core.delivery.acknowledge(view, message_class, network.now)
    if beta.records(path):
        FATES[fate](beta, path)
    network.wait(2)
    for queue in beta.core.queues:
        for record in queue.everything():
            UserMessage.decode(record.packet)
    network.exchanges.clear()
    if gate.ask(to(envelope, "http://elsewhere/msmq/private$/q"), attachments) == 200:
        assert [each.status for each in network.posts("gate") if each.target.endswith("/q")] in ([200], [])


@pytest.mark.parametrize(("current", "previous"), [(0, None), (1, 1), (2, 2), (2, 9), (0, 1)])
def test_a_place_in_a_stream_that_nobody_could_acknowledge_is_refused(
    beta: Station, current: int, previous: int | None
) -> None:
    envelope = stream_message(beta.url(LEDGER), 1, now=STARTED)
    assert isinstance(envelope.stream, Stream)
    broken = replace(envelope.stream, current=current, previous=previous)
    assert beta.ask(replace(envelope, stream=broken)) == 400
    assert beta.labels(LEDGER) == []
