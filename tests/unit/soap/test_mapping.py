"""[MC-MQSRM] 3.1.5.1.1 and 3.1.7.2.4: a SOAP message becomes the packet that is its record, and the way back."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from postroad.errors import LocalProtocolError, MalformedSoap
from postroad.message import Composer, Message
from postroad.names import FormatName, PathName, parse_format_name
from postroad.soap.elements import (
    NO_EXPIRY,
    Attachments,
    CommitmentReceiptRequest,
    DeliveryReceiptRequest,
    Envelope,
    Eod,
    Msmq,
    Path,
    Properties,
    Provider,
    Services,
    Stream,
    StreamId,
)
from postroad.soap.envelope import read_envelope, write_envelope
from postroad.soap.packets import identifier_of, packet_of
from postroad.soap.requests import (
    attachments_of,
    commitment_url_of,
    envelope_of,
    received_envelope_of,
    soap_envelope_of,
)
from postroad.wire import MessageView, TxSequenceId, UserMessage
from postroad.wire.constants import INFINITE, MAX_PACKET_SIZE
from postroad.wire.headers import SoapHeader
from postroad.wire.patch import stamp_transaction
from postroad.wire.queue_names import admin_name, destination_name, response_name
from tests.soap_samples import (
    DELIVERY_RECEIPT,
    ORDER,
    RECEIPTS_WANTED,
    SIMPLE,
    STREAM,
    STREAM_RECEIPTS,
    changed,
    read,
)

MANAGER = UUID("32221eda-9376-46df-b6ed-783091123831")
OTHER = UUID("fd74b8eb-2af7-4ac5-9405-074e315df392")
SENT = 1_184_814_700
URL = "http://b/msmq/private$/q"
ADMIN = "http://a/msmq/private$/admin"
MSMQ = Msmq(0, 3, MANAGER, SENT + 60, hash_algorithm=32772)
PLAIN = Envelope(Path("MSMQ:label", URL, f"uuid:7@{MANAGER}"), Properties(SENT + 60, SENT), msmq=MSMQ)


NOTHING = Attachments()


def view_of(envelope: Envelope, attachments: Attachments = NOTHING, now: int = 0) -> MessageView:
    return MessageView(packet_of(envelope, attachments, now))


def with_msmq(**changes: object) -> Envelope:
    return replace(PLAIN, msmq=replace(MSMQ, **changes))  # type: ignore[arg-type]


def with_services(services: Services) -> Envelope:
    return replace(PLAIN, services=services)


# To the packet


@pytest.mark.spec("SRM-2.2.4.1-06", "SRM-3.1.5.1.1-04", "SRM-3.1.5.1.1-05")
def test_the_label() -> None:
    for action, label in (
        ("MSMQ:abc", "abc"),
        ("MSMQ:", ""),
        ("Generic label", ""),
        ("msmq:abc", ""),
        ("MSMQ:MSMQ:日本 \U0001f4ee", "MSMQ:日本 \U0001f4ee"),
    ):
        assert view_of(replace(PLAIN, path=replace(PLAIN.path, action=action))).label == label
    view_of(replace(PLAIN, path=replace(PLAIN.path, action="MSMQ:" + "a" * 249)))
    with pytest.raises(MalformedSoap, match="path/action: a label must have at most 249"):
        view_of(replace(PLAIN, path=replace(PLAIN.path, action="MSMQ:" + "a" * 250)))


@pytest.mark.spec("SRM-2.2.4.2-06", "SRM-3.1.5.1.1-06")
def test_the_destination() -> None:
    view = view_of(PLAIN)
    assert view.destination_queue.direct_name == URL
    assert str(destination_name(view)) == f"DIRECT={URL}"
    with pytest.raises(MalformedSoap, match="path/to"):
        view_of(replace(PLAIN, path=replace(PLAIN.path, to="http://b/elsewhere/q")))


def test_a_multicast_message_is_kept_for_the_queue_it_led_to() -> None:
    envelope = replace(PLAIN, path=replace(PLAIN.path, to="MSMQ:MULTICAST=234.1.1.1:8001"))
    queue = parse_format_name(rf"PRIVATE={OTHER}\4")
    assert destination_name(MessageView(packet_of(envelope, Attachments(), 0, queue))) == queue
    assert destination_name(view_of(envelope)) == parse_format_name("MULTICAST=234.1.1.1:8001")


@pytest.mark.spec("SRM-2.2.4.3-02", "SRM-3.1.5.1.1-08", "SRM-3.1.5.1.1-09", "SRM-3.1.5.1.1-30", "SRM-2.2.6.13-02")
def test_the_identifier() -> None:
    view = view_of(PLAIN)
    assert (view.source_queue_manager, view.message_id) == (MANAGER, 7)
    for text in ("uuid:7@x", f"uuid:7@{MANAGER}", "garbage"):
        bare = replace(PLAIN, path=replace(PLAIN.path, id=text), msmq=None)
        assert (view_of(bare).source_queue_manager, view_of(bare).message_id) == (UUID(int=0), 1)


@pytest.mark.spec("SRM-6-13")
def test_of_two_sources_the_element_is_right() -> None:
    view = view_of(with_msmq(source_qm_guid=OTHER))
    assert (view.source_queue_manager, view.message_id) == (OTHER, 7)
    assert identifier_of(with_msmq(source_qm_guid=OTHER)).guid == OTHER


@pytest.mark.spec("SRM-2.2.4.4-05", "SRM-2.2.4.4-06", "SRM-3.1.5.1.1-10", "SRM-3.1.5.1.1-11")
def test_the_response_queue() -> None:
    def response(via: str | None) -> MessageView:
        return view_of(replace(PLAIN, path=replace(PLAIN.path, via=via)))

    assert response_name(response(None)) is None
    assert response("https://a/MSMQ/private$/Q1").response_queue.direct_name == "https://a/MSMQ/private$/Q1"
    assert response("http://a/anything?at=all").response_queue.direct_name == "http://a/anything?at=all"
    for text in (r"DIRECT=OS:h\q", f"PUBLIC={OTHER}", rf"PRIVATE={OTHER}\1f", rf"PRIVATE={MANAGER}\1f"):
        assert response_name(response(f"MSMQ:{text}")) == parse_format_name(text)
    assert response_name(response("urn:somebody")) is None
    for wrong in ("MSMQ:nonsense", f"MSMQ:MACHINE={OTHER};JOURNAL"):
        with pytest.raises(MalformedSoap, match="path/rev/via"):
            response(wrong)


@pytest.mark.spec("SRM-2.2.5.1.1-04", "SRM-2.2.5.1.2-04", "SRM-3.1.5.1.1-12", "SRM-3.1.5.1.1-13", "SRM-3.1.5.1.1-32")
def test_times() -> None:
    view = view_of(replace(PLAIN, msmq=None, properties=Properties(SENT + 100, SENT)))
    assert (view.time_to_reach_queue, view.sent_time) == (100, SENT)
    view = view_of(replace(PLAIN, properties=Properties(SENT + 100, SENT)))
    assert (view.time_to_reach_queue, view.sent_time) == (60, SENT)
    view = view_of(replace(PLAIN, properties=Properties(NO_EXPIRY)), now=SENT + 20)
    assert (view.time_to_reach_queue, view.sent_time) == (40, SENT + 20)
    assert view_of(with_msmq(ttrq=SENT - 1)).time_to_reach_queue == 0
    assert view_of(with_msmq(ttrq=NO_EXPIRY)).time_to_reach_queue == INFINITE
    assert view_of(with_msmq(ttrq=253402300799)).time_to_reach_queue == INFINITE
    assert view.time_to_be_received == INFINITE
    for sent in (-1, 0x1_0000_0000):
        with pytest.raises(MalformedSoap, match="properties/sentAt"):
            view_of(replace(PLAIN, properties=Properties(NO_EXPIRY, sent)))


@pytest.mark.spec("SRM-2.2.5.2.1-06", "SRM-3.1.5.1.1-14")
def test_the_delivery_guarantee() -> None:
    assert not view_of(PLAIN).recoverable
    assert not view_of(with_services(Services())).recoverable
    assert view_of(with_services(Services(durable=True))).recoverable


@pytest.mark.spec("SRM-2.2.5.2.2-06", "SRM-3.1.5.1.1-15", "SRM-3.1.5.1.1-16")
def test_a_delivery_receipt_request() -> None:
    view = view_of(with_services(Services(delivery_receipt_request=DeliveryReceiptRequest(ADMIN))))
    assert view.ack_flags == 0x01
    assert view.admin_queue.direct_name == ADMIN
    assert str(admin_name(view)) == f"DIRECT={ADMIN}"
    assert view_of(PLAIN).ack_flags == 0
    assert admin_name(view_of(PLAIN)) is None


@pytest.mark.spec("SRM-2.2.5.2.3-08", "SRM-3.1.5.1.1-17", "SRM-3.1.5.1.1-18", "SRM-3.1.5.1.1-19")
def test_a_commitment_receipt_request() -> None:
    stream = Stream(StreamId(MANAGER, TxSequenceId(6, 1)), 1)
    for positive in (False, True):
        for negative in (False, True):
            request = CommitmentReceiptRequest(ADMIN, positive, negative)
            envelope = with_services(Services(commitment_receipt_request=request))
            view = view_of(envelope)
            assert view.ack_flags == 0x02 * positive + 0x08 * negative
            assert view.admin_queue.direct_name == ADMIN
            transaction = view_of(replace(envelope, stream=stream)).transaction_header
            assert transaction is not None
            assert transaction.final_ack_required
    both = Services(True, DeliveryReceiptRequest(ADMIN), CommitmentReceiptRequest("http://a/msmq/other", True))
    assert view_of(with_services(both)).admin_queue.direct_name == ADMIN
    assert view_of(with_services(both)).ack_flags == 0x03


@pytest.mark.spec(
    "SRM-2.2.5.3.1-03",
    "SRM-2.2.5.3.2-03",
    "SRM-2.2.5.3.3-03",
    "SRM-2.2.5.3.4-05",
    "SRM-3.1.5.1.1-20",
    "SRM-3.1.5.1.1-21",
    "SRM-3.1.5.1.1-22",
    "SRM-3.1.5.1.1-28",
)
def test_a_stream() -> None:
    stream = Stream(StreamId(MANAGER, TxSequenceId(6, 0x432B1643)), 42, 40, ADMIN)
    view = view_of(replace(with_msmq(eod=Eod(True, False, OTHER)), stream=stream))
    found = view.transaction_header
    assert found is not None
    assert (found.sequence_id.time_stamp, found.sequence_id.ordinal) == (0x432B1643, 6)
    assert (found.sequence_number, found.previous_sequence_number) == (42, 40)
    assert (found.first_in_transaction, found.last_in_transaction, found.connector_qm_guid) == (True, False, OTHER)
    assert not found.final_ack_required
    assert view.recoverable
    assert view.admin_queue.direct_name == ADMIN
    found = view_of(replace(PLAIN, stream=replace(stream, previous=None))).transaction_header
    assert found is not None
    assert found.previous_sequence_number == 41
    assert (found.first_in_transaction, found.last_in_transaction, found.connector_qm_guid) == (False, False, None)
    wanted = replace(PLAIN, stream=stream, services=Services(True, DeliveryReceiptRequest("http://a/msmq/mine")))
    assert view_of(wanted).admin_queue.direct_name == "http://a/msmq/mine"


@pytest.mark.spec("SRM-3.1.5.1.1-23", "SRM-3.1.5.1.1-26", "SRM-2.2.6.7-01", "SRM-2.2.6.8-01", "SRM-2.2.6.9-02")
def test_numbers_and_identifiers() -> None:
    view = view_of(
        with_msmq(message_class=16384, priority=7, body_type=8, connector_type=OTHER, app=36, hash_algorithm=0x8003)
    )
    assert (view.message_class, view.priority, view.body_type) == (16384, 7, 8)
    assert (view.connector_type, view.application_tag, view.hash_algorithm) == (OTHER, 36, 0x8003)
    view = view_of(with_msmq(hash_algorithm=None))
    assert (view.connector_type, view.application_tag, view.hash_algorithm) == (None, 0, 0x8004)


@pytest.mark.spec("SRM-3.1.5.1.1-24")
def test_flags() -> None:
    for journal in (False, True):
        for dead_letter in (False, True):
            for trace in (False, True):
                view = view_of(with_msmq(journal=journal, dead_letter=dead_letter, trace=trace))
                assert (view.positive_journaling, view.negative_journaling) == (journal, dead_letter)
                assert view.tracing is trace


@pytest.mark.spec("SRM-2.2.6.5-01", "SRM-3.1.5.1.1-25")
def test_the_correlation() -> None:
    assert view_of(PLAIN).correlation_id == bytes(20)
    assert view_of(with_msmq(correlation=bytes(range(20)))).correlation_id == bytes(range(20))


@pytest.mark.spec("SRM-3.1.7.2.4-24")
@pytest.mark.parametrize("provider", [None, Provider(1, "name"), Provider(0, "name"), Provider(1, "")])
def test_a_provider_has_both_its_elements_or_is_not_written(provider: Provider | None) -> None:
    msmq = envelope_of(view_of(with_msmq(provider=provider))).msmq
    assert msmq is not None
    assert msmq.provider == provider
    element = (
        "" if provider is None else f"<Provider><Type>{provider.type}</Type><Name>{provider.name}</Name></Provider>"
    )
    assert f"</HashAlgorithm>{element}<SourceQmGuid>" in write_envelope(with_msmq(provider=provider)).decode()


@pytest.mark.spec("SRM-2.2.6.12-02", "SRM-2.2.6.12-03", "SRM-3.1.5.1.1-29")
def test_the_provider() -> None:
    provider = Provider(24, "Microsoft Enhanced RSA and AES Cryptographic Provider")
    view = view_of(with_msmq(provider=provider))
    assert view.security_header is not None
    assert not view.signed
    found = envelope_of(view).msmq
    assert found is not None
    assert found.provider == provider


@pytest.mark.spec("SRM-3.1.5.1.1-31", "SRM-2.2.6.14-01", "SRM-2.2.6.15-01", "SRM-2.2.6.16-01")
def test_lists_of_queues() -> None:
    urls = tuple(f"http://Machine{number}/msmq/private$/SimpleQ" for number in (1, 2, 3))
    others = (r"MSMQ:DIRECT=OS:h\q", f"MSMQ:PUBLIC={OTHER}", rf"MSMQ:PRIVATE={OTHER}\1f", f"MSMQ:DL={OTHER}")
    view = view_of(with_msmq(destination_mqf=urls, admin_mqf=urls[:1], response_mqf=others))
    lists = view.multi_queue_header
    assert lists is not None
    assert tuple(each.direct_name for each in lists.destination.elements) == urls
    assert tuple(each.direct_name for each in lists.administration.elements) == urls[:1]
    found = envelope_of(view).msmq
    assert found is not None
    assert (found.destination_mqf, found.admin_mqf, found.response_mqf) == (urls, urls[:1], others)
    for wrong in ("nonsense", "MSMQ:nonsense", f"MSMQ:MACHINE={OTHER};JOURNAL"):
        with pytest.raises(MalformedSoap, match="Msmq/AdminMqf"):
            view_of(with_msmq(admin_mqf=(wrong,)))


@pytest.mark.spec("SRM-2.2.2-06", "SRM-3.1.5.1.1-02")
def test_the_payload_is_what_is_attached_and_the_envelope_is_kept() -> None:
    text = ORDER.replace("<se:Body></se:Body>", "<se:Body><not/>the payload</se:Body>")
    view = view_of(read(text), Attachments(b"body", b"extension"))
    assert (view.body, view.extension) == (b"body", b"extension")
    assert attachments_of(view) == Attachments(b"body", b"extension")
    assert attachments_of(view_of(PLAIN)) == Attachments()
    assert soap_envelope_of(view) == text
    assert view.soap_header is not None
    assert view.soap_header.header == text[text.index("<se:Header>") : text.index("<se:Body>")]
    assert view.soap_header.body == "<se:Body><not/>the payload</se:Body>"
    assert received_envelope_of(view) == read(text)
    assert soap_envelope_of(view_of(PLAIN)) is None


@pytest.mark.spec("SRM-6-17")
def test_without_msmq_everything_has_its_default() -> None:
    view = view_of(read(SIMPLE), Attachments(b"First Message"))
    assert (view.message_class, view.priority, view.body_type, view.application_tag) == (0, 3, 0, 0)
    assert (view.correlation_id, view.ack_flags, view.hash_algorithm) == (bytes(20), 0, 0x8004)
    assert not (view.positive_journaling)
    assert not (view.negative_journaling)
    assert not (view.tracing)
    assert not (view.transactional)
    assert (view.connector_type, view.security_header, view.multi_queue_header) == (None, None, None)


def test_the_largest_message() -> None:
    view = view_of(read(ORDER))
    room = MAX_PACKET_SIZE - view.packet_size
    assert soap_envelope_of(view_of(read(ORDER), Attachments(bytes(room)))) == ORDER
    without_text = view_of(read(ORDER), Attachments(bytes(room + 4)))
    assert soap_envelope_of(without_text) is None
    assert len(without_text.body) == room + 4
    with pytest.raises(MalformedSoap, match="entity: the packet must have at most"):
        view_of(read(ORDER), Attachments(bytes(MAX_PACKET_SIZE)))


def test_a_commitment_receipt_goes_to_its_own_address() -> None:
    view = view_of(read(RECEIPTS_WANTED))
    assert commitment_url_of(view) == "http://machine1/MSMQ/private$/deliverydone"
    asked = with_services(Services(commitment_receipt_request=CommitmentReceiptRequest(ADMIN, True)))
    assert commitment_url_of(view_of(asked)) == ADMIN
    assert commitment_url_of(view_of(PLAIN)) is None


# And back


@pytest.mark.parametrize("text", [SIMPLE, ORDER, DELIVERY_RECEIPT, *STREAM, *STREAM_RECEIPTS])
def test_what_came_by_soap_says_the_same_when_it_leaves(text: str) -> None:
    came = read(text)
    left = envelope_of(view_of(came, Attachments(b"body")), came.stream)
    action = came.path.action
    assert left.path == replace(came.path, to=came.path.to.partition("?")[0], id=left.path.id)
    assert identifier_of(left) == identifier_of(came)
    assert action == left.path.action
    assert left.properties.sent_at == came.properties.sent_at
    assert left.stream == came.stream
    if came.msmq is None:
        assert left.msmq is None
        assert left.properties == came.properties
    else:
        assert left.msmq == replace(
            came.msmq,
            app=came.msmq.app or None,
            hash_algorithm=came.msmq.hash_algorithm or None,
            correlation=None if came.msmq.correlation == bytes(20) else came.msmq.correlation,
        )


def test_a_second_trip_changes_nothing() -> None:
    everything = replace(
        with_msmq(
            journal=True,
            dead_letter=True,
            correlation=bytes(range(20)),
            trace=True,
            connector_type=OTHER,
            app=36,
            eod=Eod(True, True, OTHER),
            provider=Provider(1, "x"),
            destination_mqf=("http://b/msmq/q", rf"MSMQ:PRIVATE={OTHER}\4"),
        ),
        path=replace(PLAIN.path, via=rf"MSMQ:PRIVATE={MANAGER}\3"),
        services=Services(True, DeliveryReceiptRequest(ADMIN), CommitmentReceiptRequest(ADMIN, True, True)),
        stream=Stream(StreamId(MANAGER, TxSequenceId(6, 0x432B1643)), 2, 1),
    )
    view = view_of(everything, Attachments(b"body", b"extension"))
    assert envelope_of(view, everything.stream) == everything
    again = view_of(read_envelope(write_envelope(envelope_of(view, everything.stream))), attachments_of(view))
    assert envelope_of(again, everything.stream) == everything
    assert attachments_of(again) == Attachments(b"body", b"extension")


def test_a_signature_goes_on_with_its_message() -> None:
    signature = (
        '<Signature xmlns="http://www.w3.org/2000/02/xmldsig#"> <SignedInfo><SignatureMethod Algorithm="x"/>'
        "</SignedInfo><SignatureValue>AAAA</SignatureValue></Signature>"
    )
    text = changed(ORDER, "</se:Header>", f"{signature}</se:Header>")
    assert signature.encode() in write_envelope(envelope_of(view_of(read(text))))
    assert envelope_of(view_of(read(ORDER))).signature is None
    labelled = changed(ORDER, "MSMQ:", "MSMQ:Signature")
    assert envelope_of(view_of(read(labelled))).signature is None


def composed(message: Message, destination: str = f"DIRECT={URL}", transactional: bool = False) -> MessageView:
    composer = Composer(MANAGER, parse_format_name(destination))
    packet = composer.compose(message, 7, SENT, transactional=transactional)
    if transactional:
        packet = stamp_transaction(packet, TxSequenceId(6, 9), 2, 1, 5, first=True, last=True)
    return MessageView(packet)


@pytest.mark.spec(
    "SRM-2.2.4.1-03",
    "SRM-2.2.4.3-04",
    "SRM-3.1.7.2.4-05",
    "SRM-3.1.7.2.4-06",
    "SRM-3.1.7.2.4-08",
    "SRM-3.1.7.2.4-22",
    "SRM-3.1.7.2.4-26",
    "SRM-6-16",
)
def test_a_message_of_an_application() -> None:
    envelope = envelope_of(composed(Message(b"body", label="label", time_to_reach_queue=60)))
    assert envelope == PLAIN
    assert attachments_of(composed(Message(b"body"))) == Attachments(b"body")
    assert envelope_of(composed(Message(b"body"))).path.action == "MSMQ:"
    default = envelope_of(composed(Message()))
    assert default.properties == Properties(SENT + 345600, SENT)
    endless = envelope_of(composed(Message(time_to_reach_queue=INFINITE)))
    assert endless.properties.expires_at == NO_EXPIRY
    assert endless.msmq is not None
    assert endless.msmq.ttrq == NO_EXPIRY
    tagged = envelope_of(composed(Message(app_tag=36, body_type=8)))
    assert tagged.msmq is not None
    assert (tagged.msmq.app, tagged.msmq.body_type, tagged.msmq.hash_algorithm) == (36, 8, 32772)


@pytest.mark.spec("SRM-3.1.7.2.4-07", "SRM-3.1.7.2.4-20", "SRM-3.1.7.2.4-21", "SRM-2.2.4.4-03")
def test_what_an_application_asks_for_is_told() -> None:
    message = Message(
        journal=True,
        dead_letter=True,
        correlation_id=bytes(range(20)),
        response_queue=r"DIRECT=OS:h\private$\answers",
        connector_type=OTHER,
        trace=OTHER,
    )
    envelope = envelope_of(composed(message))
    assert envelope.path.via == r"MSMQ:DIRECT=OS:h\private$\answers"
    msmq = envelope.msmq
    assert msmq is not None
    assert (msmq.journal, msmq.dead_letter, msmq.trace) == (True, True, True)
    assert (msmq.correlation, msmq.connector_type) == (bytes(range(20)), OTHER)
    assert envelope_of(composed(Message())).path.via is None


@pytest.mark.spec("SRM-3.1.7.2.4-09", "SRM-3.1.7.2.4-10", "SRM-3.1.7.2.4-11", "SRM-2.2.5.2.1-01")
def test_services() -> None:
    assert envelope_of(composed(Message())).services is None
    assert envelope_of(composed(Message(recoverable=True))).services == Services(durable=True)
    for ack, services in (
        ("reach-queue", Services(False, DeliveryReceiptRequest(ADMIN))),
        ("receive", Services(False, None, CommitmentReceiptRequest(ADMIN, True, False))),
        ("nack-receive", Services(False, None, CommitmentReceiptRequest(ADMIN, False, True))),
        ("full", Services(False, DeliveryReceiptRequest(ADMIN), CommitmentReceiptRequest(ADMIN, True, True))),
        ("nack-reach-queue", None),
    ):
        found = envelope_of(composed(Message(ack=ack, admin_queue=f"DIRECT={ADMIN}"))).services
        assert found == services


def test_an_administration_queue_is_told_by_its_path() -> None:
    def resolve(name: FormatName) -> PathName | None:
        return PathName.parse(r"alpha\private$\admin")

    view = composed(Message(ack="reach-queue", admin_queue=rf"PRIVATE={MANAGER}\3"))
    assert envelope_of(view).services is None
    found = envelope_of(view, resolve=resolve).services
    assert found == Services(False, DeliveryReceiptRequest("http://alpha/msmq/private$/admin"))


@pytest.mark.spec("SRM-3.1.7.2.4-12", "SRM-3.1.7.2.4-23", "SRM-2.2.5.2.1-02")
def test_a_transactional_message_is_durable_and_tells_its_place() -> None:
    stream = Stream(StreamId(MANAGER, TxSequenceId(6, 9)), 2, 1)
    envelope = envelope_of(composed(Message(b"x"), transactional=True), stream)
    assert envelope.services == Services(durable=True)
    assert envelope.stream == stream
    assert envelope.msmq is not None
    assert envelope.msmq.eod == Eod(first=True, last=True)


def test_what_xml_cannot_hold_in_a_label_is_shown_as_such() -> None:
    envelope = envelope_of(composed(Message(label="a\x01b\ud800")))
    assert envelope.path.action == "MSMQ:a\ufffdb\ufffd"
    assert read_envelope(write_envelope(envelope)) == envelope


@pytest.mark.spec("SRM-1.3.11-01")
def test_a_group_is_addressed_like_a_queue() -> None:
    view = composed(Message(b"x", label="label"))
    one, all_of_them = parse_format_name(f"DIRECT={URL}"), parse_format_name("MULTICAST=234.1.1.1:8001")
    unicast = write_envelope(envelope_of(view, destination=one)).decode()
    multicast = write_envelope(envelope_of(view, destination=all_of_them)).decode()
    assert changed(unicast, URL, "MSMQ:MULTICAST=234.1.1.1:8001") == multicast


def test_a_packet_that_cannot_leave_by_soap() -> None:
    with pytest.raises(LocalProtocolError, match="a destination that SOAP can name"):
        envelope_of(composed(Message(), r"DIRECT=OS:b\private$\q"))
    url = parse_format_name(f"DIRECT={URL}")
    assert envelope_of(composed(Message(), r"DIRECT=OS:b\private$\q"), destination=url).path.to == URL


def test_a_header_of_an_application_is_no_envelope() -> None:
    message = UserMessage.decode(composed(Message(b"x")).data)
    view = MessageView(replace(message, soap=SoapHeader("<Signature", None)).encode())
    assert received_envelope_of(view) is None
    assert envelope_of(view).signature is None
