"""Forms: packets that are filled in have the same octets, and pass the same checks, as packets that are made anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.soap.addresses import Redirection, Redirections
from postroad.soap.elements import Attachments, CommitmentReceiptRequest, Envelope, Msmq, Path, Properties, Services
from postroad.soap.envelope import read_envelope, read_fast, write_envelope
from postroad.soap.packets import MAX_FORMS, MAX_TEXT, Form, Forms, packet_of
from postroad.wire.octets import NULL_GUID
from postroad.wire.view import MessageView
from tests.soap_strategies import msmqs, urls
from tests.unit.soap.network import ACKS, DEADLETTER, ORDERS, STRANGER, Network, Station, stranger_message

URL = "http://10.0.0.2/msmq/private$/orders"
ADDRESS = "10.0.0.99"


@pytest.fixture
def network(network: Network) -> Network:
    """The stranger of these tests is in [peers]: tests of others are in test_trust.py."""
    network.peers |= {"stranger", "10.0.0.99"}
    return network


def text_of(number: int, label: str = "note") -> bytes:
    return write_envelope(stranger_message(URL, number, label=label))


def found(forms: Forms, text: bytes, address: str = ADDRESS) -> Form | None:
    pair = forms.find(text, address)
    return None if pair is None else pair[0]


def known(text: bytes) -> tuple[Form, bytes]:
    """An envelope that has a form: it gets one when it comes again."""
    forms = Forms()
    assert forms.find(text, ADDRESS) is None
    pair = forms.find(text, ADDRESS)
    assert pair is not None
    return pair


@given(msmqs, urls, st.booleans(), st.text("aé€😀<&", max_size=20), st.integers(1, 999_999_999), st.binary(max_size=9))
def test_a_filled_packet_has_the_octets_of_one_that_is_made(
    msmq: Msmq, to: str, durable: bool, label: str, number: int, body: bytes
) -> None:
    msmq = replace(msmq, message_class=0, provider=None, eod=None, destination_mqf=(), admin_mqf=(), response_mqf=())
    first = Envelope(
        Path(f"MSMQ:{label}", to, f"uuid:7@{STRANGER}"),
        Properties(1_700_003_600, 1_700_000_000),
        Services(durable=True) if durable else None,
        msmq=replace(msmq, journal=False, trace=False),
    )
    forms = Forms()
    assert forms.find(write_envelope(first), ADDRESS) is None
    text = write_envelope(replace(first, path=replace(first.path, id=f"uuid:{number}@{STRANGER}")))
    pair = forms.find(text, ADDRESS)
    if pair is not None:
        form, digits = pair
        packet = packet_of(read_envelope(text), Attachments(body), 5, form.name, address=ADDRESS)
        assert form.packet(digits, body) == packet
        assert MessageView(packet).body == body
    else:
        assert read_fast(text.decode()) is None or len(text) > MAX_TEXT


def test_messages_that_differ_in_id_and_body_share_a_form() -> None:
    forms = Forms()
    assert found(forms, text_of(1)) is None
    form = found(forms, text_of(2))
    assert form is not None
    assert found(forms, text_of(123_456_789)) is form
    assert found(forms, text_of(2_147_483_648)) is form  # managers count from a random number on
    assert found(forms, text_of(3, label="other")) is None
    assert found(forms, text_of(3), "10.0.0.98") is None


def test_a_form_keeps_no_body() -> None:
    form, _ = known(text_of(1))
    assert form.view.body == b""


@pytest.mark.parametrize(
    "envelope",
    [
        replace(stranger_message(URL), services=Services(True, None, CommitmentReceiptRequest(URL, True, True))),
        replace(stranger_message(URL), properties=Properties(1_700_003_600)),
        stranger_message(URL, journal=True),
        stranger_message(URL, trace=True),
        stranger_message(URL, message_class=2),
        stranger_message(URL, label="x" * 300),  # too long for a label: it is refused
        replace(stranger_message(URL), msmq=None),
    ],
)
def test_what_is_not_plain_has_no_form(envelope: Envelope) -> None:
    forms = Forms()
    text = write_envelope(envelope)
    assert [forms.find(text, ADDRESS) for _ in range(3)] == [None] * 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"uuid:1@", b"uuid:@"),
        (b"uuid:1@", b"uuid:-1@"),
        (b"uuid:1@", b"uuid:+1@"),
        (b"uuid:1@", b"uuid:4000000000@"),
        (b"uuid:1@", b"uuid:12345678901@"),
        (b"<id>uuid:1@", b"<id> uuid:1@"),
        (b"<action>", b"<action a='1'>"),
        (b"MSMQ:note", b"MSMQ:\xff"),
        (b"MSMQ:note", b"<id>uuid:5@"),
        (b"20231114T", b"20231314T"),
    ],
)
def test_what_the_fast_reader_does_not_take_has_no_form(old: bytes, new: bytes) -> None:
    text = text_of(1)
    assert old in text
    forms = Forms()
    assert [forms.find(text.replace(old, new), ADDRESS) for _ in range(3)] == [None] * 3


def test_the_oldest_form_makes_room() -> None:
    forms = Forms()
    for _ in range(2):
        found(forms, text_of(1))
    for number in range(MAX_FORMS):
        assert found(forms, text_of(1, label=f"other {number}")) is None
    assert found(forms, text_of(1)) is None


# At a queue


def send(station: Station, *numbers: int, body: bytes = b"body", address: str = ADDRESS, **words: object) -> list[int]:
    """The statuses of messages of one form. The third message uses it."""
    attachments = Attachments(body)
    return [station.ask(stranger_message(URL, each, **words), attachments, address) for each in numbers]  # type: ignore[arg-type]


def test_messages_of_a_form_get_into_their_queue(network: Network, beta: Station) -> None:
    assert send(beta, 1, 2, 3, 1000, body=b"text", label="hello") == [200] * 4
    views = beta.messages(ORDERS)
    assert [(view.message_id, view.label, view.body) for view in views] == [
        (number, "hello", b"text") for number in (1, 2, 3, 1000)
    ]
    assert {record.arrived_ms for record in beta.records(ORDERS)} == {int(network.now * 1000)}


@pytest.mark.spec("SRM-3.1.5.1.11-02")
def test_a_duplicate_of_a_form_is_known(beta: Station) -> None:
    assert send(beta, 1, 2, 3, 3, 1) == [200] * 5
    assert [view.message_id for view in beta.messages(ORDERS)] == [1, 2, 3]
    assert send(beta, 3, 3, 3, address="10.0.0.98") == [200] * 3  # another's ids
    assert [view.message_id for view in beta.messages(ORDERS)] == [1, 2, 3, 3]


def test_a_durable_duplicate_is_known_after_a_restart(beta: Station) -> None:
    envelopes = [replace(stranger_message(URL, each), services=Services(durable=True)) for each in (1, 2, 3)]
    assert [beta.ask(each) for each in envelopes] == [200] * 3
    beta.restart()
    assert [beta.ask(each) for each in envelopes] == [200] * 3
    assert [view.message_id for view in beta.messages(ORDERS)] == [1, 2, 3]


@pytest.mark.spec("SRM-3.1.5.1.11-01")
def test_messages_without_an_id_are_not_duplicates(beta: Station) -> None:
    assert send(beta, 1, 1, 1, source=NULL_GUID) == [200] * 3
    assert len(beta.messages(ORDERS)) == 3


def test_the_checks_of_a_queue_are_those_of_every_message(network: Network, beta: Station) -> None:
    assert send(beta, 1, 2, 3, dead_letter=True) == [200] * 3
    network.now += 3901
    assert send(beta, 4, now=network.now - 3901, dead_letter=True) == [200]
    assert len(beta.messages(ORDERS)) == 3
    assert [view.message_id for view in beta.messages(DEADLETTER)] == [4]


def test_a_full_manager_takes_no_message_of_a_form(beta: Station) -> None:
    assert send(beta, 1, 2, 3) == [200] * 3
    beta.use(quota_kb=1)
    assert send(beta, 4) == [500]
    beta.use(quota_kb=None)
    assert send(beta, 4) == [200]


def test_a_queue_that_is_deleted_takes_no_message_of_a_form(network: Network, beta: Station) -> None:
    assert send(beta, 1, 2, 3) == [200] * 3
    beta.core.delete_queue(beta.queue(ORDERS), network.now)
    network.run()
    assert send(beta, 4) == [400]
    beta.create(ORDERS, transactional=True)
    assert send(beta, 5) == [400]


def test_a_host_that_is_not_ours_any_more(beta: Station) -> None:
    assert send(beta, 1, 2, 3) == [200] * 3
    beta.core.queues.local_hosts.discard("10.0.0.2")
    assert send(beta, 4) == [400]


def test_a_redirection_applies_to_messages_of_a_form(network: Network) -> None:
    other, acks = "http://10.0.0.2/msmq/private$/other", "http://10.0.0.2/msmq/private$/acks"
    rules = Redirections(inbound=(Redirection(other, URL), Redirection(URL, acks)))
    beta = network.station("beta", 2, redirections=rules)
    assert beta.ask(stranger_message(other, 9)) == 200  # now the queue of the URL is known
    assert send(beta, 1, 2, 3) == [200] * 3
    assert [view.message_id for view in beta.messages(ORDERS)] == [9]
    assert [view.message_id for view in beta.messages(ACKS)] == [1, 2, 3]


def test_a_packet_that_is_too_large_leaves_its_envelope_out(beta: Station) -> None:
    body = bytes((4 << 20) - 1000)
    assert send(beta, 1, 2, 3, body=body) == [200] * 3
    assert [view.soap_header for view in beta.messages(ORDERS)] == [None] * 3
