"""Packets header by header: every field by name, and as much as possible of a damaged packet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.describe import describe_headers, packet_json, sections_json
from postroad.errors import RemoteProtocolError
from postroad.wire import Ping, decode_packet
from tests.frames import EVERY_HEADER, FINAL_ACK, FRAME_1, FRAME_3, FRAME_5, ORDER_ACK
from tests.packets import patched
from tests.strategies import damaged_packets
from tests.strategies import packets as whole_packets
from tests.vectors import FRAME_7, FRAME_8, V1, V2


def described(packet: bytes) -> dict[str, Any]:
    return packet_json(packet, decode_packet(packet))


def shown(packet: bytes) -> dict[str, Any]:
    """The headers of bytes that are not a packet, described with the fault that the decoder finds."""
    with pytest.raises(RemoteProtocolError) as caught:
        decode_packet(packet)
    return sections_json(describe_headers(packet, caught.value))


def test_every_header_with_every_field() -> None:
    headers = described(EVERY_HEADER)["headers"]
    assert list(headers) == [
        "base_header",
        "user_header",
        "transaction_header",
        "security_header",
        "message_properties_header",
        "debug_header",
        "soap_header",
        "multi_queue_format_header",
        "session_header",
    ]
    assert headers["base_header"] == {
        "version": 0x10,
        "reserved": 0xEE,
        "flags": 0x0130,
        "flag_names": ["session-header", "debug-header", "tracing"],
        "signature": 0x524F494C,
        "packet_size": 448,
        "time_to_reach_queue": 345600,
    }
    user = headers["user_header"]
    assert user["flags"] == 0x11FCDFA2
    assert user["destination_queue"] == {"code": 7, "kind": "direct", "direct_name": "TCP:1\\q"}
    assert user["admin_queue"] == {
        "code": 6,
        "kind": "private-on-other",
        "guid": "b3b2b1b0-b5b4-b7b6-b8b9-babbbcbdbebf",
        "number": 9,
    }
    assert user["response_queue"] == {"code": 4, "kind": "private-on-admin", "number": 10}
    assert user["connector_type"] == "c3c2c1c0-c5c4-c7c6-c8c9-cacbcccdcecf"
    assert headers["transaction_header"] == {
        "flags": 0x0012345F,
        "flag_names": ["connector-qm-guid", "final-ack", "first", "last"],
        "transaction_id": 0x12345,
        "sequence_id": {"ordinal": 7, "time_stamp": 9},
        "sequence_number": 2,
        "previous_sequence_number": 1,
        "connector_qm_guid": "d3d2d1d0-d5d4-d7d6-d8d9-dadbdcdddedf",
    }
    security = headers["security_header"]
    assert (security["sender_id"], security["signature_base64"]) == ("S-1-1-0", "UVJTVFU=")
    properties = headers["message_properties_header"]
    assert (properties["label"], properties["extension_size"], properties["message_size"]) == ("L", 2, 3)
    assert headers["debug_header"]["queue_identifier"] == "e3e2e1e0-e5e4-e7e6-e8e9-eaebecedeeef"
    assert (headers["soap_header"]["header"], headers["soap_header"]["body"]) == ("<", "<>")
    assert headers["multi_queue_format_header"] == {
        "destination": [
            "DIRECT=a",
            "PUBLIC=f3f2f1f0-f5f4-f7f6-f8f9-fafbfcfdfeff",
            "PRIVATE=f3f2f1f0-f5f4-f7f6-f8f9-fafbfcfdfeff\\b",
            "DL=f3f2f1f0-f5f4-f7f6-f8f9-fafbfcfdfeff",
        ],
        "administration": ["DIRECT=b"],
        "response": [],
        "signature_base64": "qrvM",
    }
    assert headers["session_header"] == {
        "ack_sequence_number": 3,
        "recoverable_msg_ack_seq_number": 1,
        "recoverable_msg_ack_flags": 5,
        "user_msg_sequence_number": 2,
        "recoverable_msg_seq_number": 2,
        "window_size": 64,
        "reserved": 0,
    }


def test_where_the_headers_start() -> None:
    sections = describe_headers(FRAME_7)
    assert [(section.name, section.offset) for section in sections] == [
        ("BaseHeader", 0),
        ("UserHeader", 16),
        ("SecurityHeader", 92),
        ("MessagePropertiesHeader", 136),
    ]


def test_the_packets_that_open_a_session() -> None:
    request = described(FRAME_3)
    assert request["packet"] == "EstablishConnection"
    assert request["headers"]["internal_header"]["packet_type"] == 2
    assert request["headers"]["establish_connection_header"] == {
        "client_guid": "557358d1-9150-9595-4997-b6e611ea26c6",
        "server_guid": "43cd8907-394c-8f11-4445-9078909ea0fc",
        "time_stamp": 0x1DDECA4E,
        "operating_system": 0x0310,
        "operating_system_names": ["no-ping", "server"],
        "reserved": 0,
    }
    parameters = described(FRAME_5)
    assert parameters["packet"] == "ConnectionParameters"
    assert parameters["headers"]["connection_parameters_header"] == {
        "recoverable_ack_timeout_ms": 1496,
        "ack_timeout_ms": 120000,
        "window_size": 64,
        "reserved": 0,
    }


def test_a_session_acknowledgment() -> None:
    ack = described(FRAME_8)
    assert ack["packet"] == "SessionAck"
    assert list(ack["headers"]) == ["base_header", "internal_header", "session_header"]
    assert ack["headers"]["session_header"]["ack_sequence_number"] == 1


def test_ordering_acknowledgments_are_messages_with_more_to_say() -> None:
    order = described(ORDER_ACK)
    assert (order["packet"], order["label"], order["class_name"]) == ("OrderAck", "QM Ordering Ack", "order-ack")
    assert order["ordering"] == {
        "sequence_id": {"ordinal": 7, "time_stamp": 9},
        "sequence_number": 5,
        "previous_sequence_number": 4,
    }
    final = described(FINAL_ACK)
    assert (final["packet"], final["class_name"]) == ("FinalAck", "ack-receive")
    assert final["ordering"]["source_guid"] == "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"
    assert final["ordering"]["acknowledged_message_id"] == 6


def test_a_ping() -> None:
    assert packet_json(FRAME_1, Ping.decode(FRAME_1)) == {
        "packet": "Ping",
        "headers": {
            "ping": {
                "flags": 0x7D01,
                "flag_names": ["independent-client"],
                "cookie": 4,
                "queue_manager": "557358d1-9150-9595-4997-b6e611ea26c6",
            }
        },
    }


def test_a_fault_hides_what_comes_after_its_header_and_nothing_before() -> None:
    headers = shown(patched(V1, 89, b"\xfb"))  # LabelLength
    assert list(headers) == ["base_header", "user_header", "message_properties_header"]
    assert headers["user_header"]["admin_queue"]["direct_name"] == "OS:hh\\a"
    assert headers["message_properties_header"]["message_size"] == 3
    assert "label" not in headers["message_properties_header"]


def test_a_fault_in_the_flags_of_the_names() -> None:
    headers = shown(patched(V2, 61, b"\x18"))  # DQ 6
    assert list(headers) == ["base_header", "user_header"]
    assert headers["user_header"]["message_id"] == 1


def test_a_name_that_breaks_off_leaves_the_fields_before_it() -> None:
    headers = shown(patched(V1, 68, b"\xff\x7f"))  # the count of the administration queue's name
    assert list(headers) == ["base_header", "user_header"]
    assert "destination_queue" in headers["user_header"]
    assert "admin_queue" not in headers["user_header"]


def test_a_fault_in_the_first_header() -> None:
    assert list(shown(patched(V1, 3, b"\x01"))) == ["base_header"]  # tracing, but no DebugHeader


def test_a_fault_without_a_place_hides_nothing() -> None:
    fault = RemoteProtocolError("somewhere")
    assert describe_headers(V1, fault) == describe_headers(V1)


@pytest.mark.parametrize("packet", [FRAME_3, FRAME_7, FRAME_8, V1, V2, ORDER_ACK, EVERY_HEADER])
def test_a_packet_cut_off_anywhere_is_shown_as_far_as_it_goes(packet: bytes) -> None:
    entire = describe_headers(packet)
    counts = []
    for size in range(len(packet)):
        sections = describe_headers(packet[:size])
        assert [section.name for section in sections] == [section.name for section in entire][: len(sections)]
        for section, whole in zip(sections, entire, strict=False):
            assert section.fields == whole.fields[: len(section.fields)]
        counts.append(sum(len(section.fields) for section in sections))
    assert counts == sorted(counts)
    assert counts[0] == 0


@given(whole_packets)
def test_every_packet_can_be_written(packet: bytes) -> None:
    assert json.loads(json.dumps(described(packet)))["packet"]


@given(st.one_of(damaged_packets, st.binary(max_size=200)))
def test_whatever_the_bytes_are_something_can_be_shown(data: bytes) -> None:
    for section in describe_headers(data):
        assert section.fields
        assert 0 <= section.offset < len(data)
