"""HTTP messages and RPC fragments in files and captures: where each begins and ends, also after damage."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.cli.other_packets import OtherPackets
from postroad.describe.capture import CaptureFile, DecodedPacket, Item, Kind, Origin, OtherPacket, Ports, Skipped
from postroad.describe.capture.other_streams import MAX_HEAD_SIZE, StreamCutter
from postroad.errors import RemoteProtocolError
from postroad.remote_read.qm2qm import QM2QM
from postroad.rpc.pdu import NDR, Bind, Fault, PresentationContext, Request, Response, SyntaxId
from tests.captures import SYN, pcap, segment
from tests.frames import FRAME_3
from tests.soap_samples import DELIVERY_RECEIPT, ORDER, ORDER_BODY, SIMPLE, multipart
from tests.vectors import V1

CONTEXT = PresentationContext(3, SyntaxId(QM2QM.uuid, *QM2QM.version), (NDR,))
BIND = Bind(call_id=1, max_xmit_frag=5840, max_recv_frag=5840, assoc_group_id=0, contexts=(CONTEXT,)).encode()
REQUEST = Request(call_id=2, alloc_hint=3, context_id=3, opnum=6, stub=b"abc").encode()
RESPONSE = Response(call_id=2, alloc_hint=3, context_id=3, cancel_count=0, stub=b"xy").encode()
FAULT = Fault(call_id=2, context_id=3, status=0x1C010002).encode()
FRAGMENTS = [BIND, REQUEST, RESPONSE, FAULT]
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


def request(content_type: str, entity: bytes) -> bytes:
    head = f"POST /msmq/private$/q HTTP/1.1\r\nHost: x\r\ncontent-TYPE: {content_type}\r\nContent-Length: {len(entity)}"
    return head.encode() + b"\r\n\r\n" + entity


SOAP = request(*multipart(ORDER.encode(), ORDER_BODY))


def cut(pieces: list[bytes]) -> list[Item]:
    cutter = StreamCutter()
    items = [item for piece in pieces for item in cutter.feed(piece, Origin())]
    return items + cutter.finish()


def sizes(items: list[Item]) -> list[tuple[int, int, object]]:
    return [(each.origin.offset, len(each.data), each.kind) for each in items if isinstance(each, OtherPacket)]


@given(st.integers(1, 200))
def test_a_stream_may_come_in_any_pieces(size: int) -> None:
    for parts, kind in ((FRAGMENTS, Kind.RPC), ([SOAP, ACCEPTED, SOAP], Kind.HTTP)):
        stream = b"".join(parts)
        items = cut([stream[at : at + size] for at in range(0, len(stream), size)])
        assert [each.data for each in items if isinstance(each, OtherPacket)] == parts
        assert {each.kind for each in items if isinstance(each, OtherPacket)} == {kind}


@given(st.lists(st.binary() | st.sampled_from([*FRAGMENTS, SOAP, ACCEPTED, SOAP[:50], V1, b"\5", b"POST "])))
def test_any_bytes_are_items_in_order(pieces: list[bytes]) -> None:
    places = [each.origin.offset for each in cut(pieces)]
    assert places == sorted(places)


@pytest.mark.parametrize("broken", [b"\5\0\0\3\x10\0\0\0\5\0" + bytes(20), b"\5\0" + b"garbage" * 4])
def test_reading_goes_on_with_the_next_segment_that_begins_one(broken: bytes) -> None:
    items = cut([BIND, broken, b"more garbage", REQUEST])
    assert sizes(items) == [(0, len(BIND), Kind.RPC), (len(BIND) + len(broken) + 12, len(REQUEST), Kind.RPC)]
    (skipped,) = (each for each in items if isinstance(each, Skipped))
    assert (skipped.origin.offset, skipped.size) == (len(BIND), len(broken) + 12)


@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        (SOAP[:-1], "the HTTP message is cut off here"),
        (BIND[:-1], "the RPC fragment is cut off here"),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * MAX_HEAD_SIZE, "the head of an HTTP message must have at most 65536 bytes"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "an HTTP message in chunks"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", "an HTTP message must have at most 8388608 bytes"),
    ],
)
def test_what_cannot_be_followed_is_named(stream: bytes, fault: str) -> None:
    (skipped,) = cut([stream])
    assert isinstance(skipped, Skipped)
    assert skipped.reason.startswith(fault)
    assert skipped.size == len(stream)


def test_a_capture_has_every_protocol_on_any_of_its_ports() -> None:
    client, reader, web = ("10.0.0.1", 50000), ("10.0.0.2", 2103), ("10.0.0.2", 80)
    frames = [
        segment(sequence=9, flags=SYN, source=client, destination=reader),
        segment(BIND[:20], 10, source=client, destination=reader),
        segment(FRAME_3, 1),
        segment(REQUEST, 10 + len(BIND), source=client, destination=reader),
        segment(BIND[20:], 30, source=client, destination=reader),
        segment(SOAP, 1, source=client, destination=web),
        segment(b"\x16\3\1 not HTTP" * 5, 1, source=web, destination=client),
    ]
    ports = Ports(frozenset({1801, 2103, 80}))
    items = list(CaptureFile(io.BytesIO(pcap(frames)), ports).items())
    assert [each.kind for each in items if isinstance(each, OtherPacket)] == [Kind.RPC, Kind.RPC, Kind.HTTP]
    assert [each.origin.frame for each in items if isinstance(each, OtherPacket)] == [2, 4, 6]
    assert [len(each.data) for each in items if isinstance(each, DecodedPacket)] == [len(FRAME_3)]
    assert [type(each) for each in items].count(Skipped) == 1


# What is in them


def described(data: bytes) -> list[tuple[str, dict[str, object]]]:
    others = OtherPackets()
    items = list(CaptureFile(io.BytesIO(data)).items())
    found = [others.describe(each) for each in items if isinstance(each, OtherPacket)]
    assert len(found) == len(items), items
    assert json.dumps([dict(each.facts) for each in found])
    return [(each.kind, dict(each.facts)) for each in found]


def test_fragments_name_their_interface_and_operation() -> None:
    (bind, request, response, fault) = described(b"".join(FRAGMENTS))
    assert (bind[0], bind[1]["contexts"]) == (
        "RpcBind",
        [{"context_id": 3, "interface": "qm2qm", "version": "1.0", "transfer_syntaxes": ["NDR"]}],
    )
    assert request[0] == "RpcRequest"
    assert {name: request[1][name] for name in ("call_id", "opnum", "interface", "operation", "stub_size")} == {
        "call_id": 2,
        "opnum": 6,
        "interface": "qm2qm",
        "operation": "RemoteQMPurgeQueue",
        "stub_size": 3,
    }
    assert (response[0], response[1]["stub_base64"]) == ("RpcResponse", "eHk=")
    assert (fault[0], fault[1]["status"]) == ("RpcFault", "0x1c010002")
    ((_, alone),) = described(REQUEST)  # nobody knows what it was bound to
    assert "interface" not in alone
    assert described("".join(f"{byte:02x} " for byte in BIND).encode())[0] == bind


def test_soap_messages_and_receipts_are_messages() -> None:
    (kind, order), (answer, _) = described(SOAP + ACCEPTED)
    assert (kind, answer) == ("SoapMessage", "HttpMessage")
    assert order["start"] == "POST /msmq/private$/q HTTP/1.1"
    assert order["destination_queue"] == "DIRECT=http://machine2/msmq/private$/simpleQ"
    assert order["decoded"] == {
        "body_kind": "xml",
        "body_text": "<Order>\n  <orderId>3</orderId>\n</Order>",
        "headers": {},
        "message_type": "Order",
    }
    ((kind, simple),) = described(SIMPLE.encode())
    assert (kind, simple["label"]) == ("SoapMessage", "mqsender label")
    ((kind, receipt),) = described(DELIVERY_RECEIPT.encode())
    assert (kind, receipt["class_name"]) == ("SoapReceipt", "ack-reach-queue")


def test_a_soap_message_that_breaks_a_rule_says_which() -> None:
    broken = SIMPLE.replace("<sentAt>20", "<sentAt>xx")
    (item,) = CaptureFile(io.BytesIO(broken.encode())).items()
    assert isinstance(item, OtherPacket)
    with pytest.raises(
        RemoteProtocolError, match="a SOAP message that breaks a rule: properties/sentAt: must be a date"
    ):
        OtherPackets().describe(item)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'  {"a": 1}', "json"),
        ('\ufeff{"a": "\u00fc"}'.encode("utf-16-le"), "json"),
        (b"[1, 2]", "json"),
        (b"<a><b>1</b></a>", "xml"),
        (b"<a><b>1</a>", "text"),
        (b'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body/></s:Envelope>', "xml"),
    ],
)
def test_bodies_in_files(body: bytes, kind: str) -> None:
    ((name, facts),) = described(body)
    assert (name, facts["body_kind"], "fault" in facts) == ("Body", kind, kind == "text")


def test_headers_in_a_file() -> None:
    text = b"<ArrayOfHeaderInfo><HeaderInfo><Key>a</Key><Value>b</Value></HeaderInfo></ArrayOfHeaderInfo>"
    assert described(text) == [("Headers", {"system": "nservicebus", "headers": {"a": "b"}})]


def test_web_traffic_is_what_it_is() -> None:
    page = b"<html>hello</html>"
    (found,) = described(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
    assert (found[0], found[1]["start"]) == ("HttpMessage", "HTTP/1.1 200 OK")
