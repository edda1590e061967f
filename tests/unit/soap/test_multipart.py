"""MIME as SRMP uses it: parts cut by their length, and refusals."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import MalformedSoap
from postroad.soap.elements import Attachments
from postroad.soap.multipart import MAX_ENTITY_SIZE, ContentType, join_entity, split_entity
from tests.soap_samples import BODY_MANAGER, ORDER, multipart

MANAGER = UUID("ff3af301-3196-497a-a918-72147c871a13")
ENVELOPE = ORDER.encode()
RELATED = 'multipart/related; boundary="b"; type=text/xml'


def part(content: bytes, *headers: str, length: bool = True) -> bytes:
    lines = [*headers, f"Content-Length: {len(content)}"] if length else headers
    return b"--b\r\n" + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + content


def envelope_part(length: bool = True) -> bytes:
    return part(ENVELOPE, "Content-Type: text/xml; charset=UTF-8", length=length)


def split(*pieces: bytes, content_type: str = RELATED) -> Attachments:
    envelope, attachments = split_entity(content_type, b"".join(pieces))
    assert envelope == ENVELOPE
    return attachments


def refused(*pieces: bytes, content_type: str = RELATED) -> str:
    with pytest.raises(MalformedSoap) as caught:
        split_entity(content_type, b"".join(pieces))
    return str(caught.value)


@pytest.mark.spec("SRM-4.1-09")
@pytest.mark.parametrize("gap", [b"", b"\r\n", b"\n"])
@pytest.mark.parametrize("end", [b"--b--\r\n", b"--b--", b"--b-- and an epilogue"])
def test_a_line_end_before_a_delimiter_or_none(gap: bytes, end: bytes) -> None:
    pieces = (envelope_part(), gap, part(b"body", "Content-Id: body@x"), gap, end)
    assert split(*pieces) == Attachments(b"body")


@pytest.mark.spec("SRM-4.1-09")
@pytest.mark.parametrize(
    "body", [b"--b", b"--b--\r\n", b"x\r\n--b\r\nContent-Length: 1\r\n\r\ny", b"\r\n", b"\r\n--b--\r\n"]
)
def test_a_body_may_hold_the_delimiter(body: bytes) -> None:
    assert split(envelope_part(), part(body, "Content-Id: body@x"), b"--b--") == Attachments(body)
    content_type, entity = multipart(ENVELOPE, body + b"--MSMQ - SOAP boundary, 53287--\r\n")
    assert split_entity(content_type, entity)[1].body == body + b"--MSMQ - SOAP boundary, 53287--\r\n"


@pytest.mark.parametrize("gap", [b"", b"\r\n", b"\n"])
def test_without_a_length_a_part_ends_at_the_delimiter(gap: bytes) -> None:
    pieces = (envelope_part(length=False), gap, part(b"body --box", "Content-Id: body@x", length=False), gap, b"--b--")
    assert split(*pieces) == Attachments(b"body --box")
    bare = b"--b\r\n\r\n" + ENVELOPE + b"\r\n--b\r\n\r\nbody\r\n--b--"
    assert split(bare) == Attachments(b"body")


def test_the_extension_and_the_order_of_parts() -> None:
    body = part(b"body", f"Content-Id: body@{MANAGER}")
    extension = part(b"more", f"content-id:<Extension@{MANAGER}>")
    assert split(envelope_part(), body, extension, b"--b--") == Attachments(b"body", b"more")
    assert split(envelope_part(), extension, body, b"--b--") == Attachments(b"body", b"more")
    assert split(envelope_part(), extension, b"--b--") == Attachments(None, b"more")
    assert split(envelope_part(), b"--b--") == Attachments()
    start = RELATED + '; start="<soap@x>"'
    root = part(ENVELOPE, "Content-Type: text/xml", "Content-Id: <soap@x>")
    assert split(body, root, b"--b--", content_type=start) == Attachments(b"body")
    assert "no part has the Content-Id" in refused(envelope_part(), b"--b--", content_type=start)


def test_a_payload_by_another_name_is_the_body_and_none_is_dropped() -> None:
    other = part(b"payload", "Content-Id: invoice@x")
    assert split(envelope_part(), other, b"--b--") == Attachments(b"payload")
    assert split(envelope_part(), part(b"payload"), b"--b--") == Attachments(b"payload")
    body = part(b"body", "Content-Id: body@x")
    assert "must have only envelope, body and extension" in refused(envelope_part(), body, other, b"--b--")
    assert "must have only envelope, body and extension" in refused(envelope_part(), body, body, b"--b--")


def test_a_preamble_lines_by_line_feed_and_folded_headers() -> None:
    lines = (envelope_part() + part(b"body", "Content-Id:\r\n body@x")).replace(b"\r\n", b"\n") + b"--b--\n"
    assert split(lines) == Attachments(b"body")
    assert split(b"This is MIME.\r\n", envelope_part(), b"--b--") == Attachments()
    assert split(envelope_part().replace(b"--b\r", b"--b \t\r"), b"--b--") == Attachments()


@pytest.mark.spec("SRM-3.1.5.1.2-02")
@pytest.mark.parametrize(
    ("pieces", "fault"),
    [
        ((b"",), "must start with its boundary"),
        ((b"--b--\r\n",), "must have at least one part"),
        ((envelope_part(),), "a delimiter must follow it"),
        ((envelope_part(length=False),), "a delimiter must follow it"),
        ((b"--b\r\nContent-Length: 5\r\n\r\nabc--b--",), "a delimiter must follow its 5 bytes"),
        ((b"--b\r\nContent-Length: 1\r\n\r\nabc--b--",), "a delimiter must follow its 1 bytes"),
        ((b"--b\r\nContent-Length: -1\r\n\r\nabc--b--",), "must be a number, got '-1'"),
        ((b"--b\r\nContent-Length: 99999999999\r\n\r\nabc--b--",), "must be a number"),
        ((b"--b\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc--b--",), "twice"),
        ((b"--b\r\nnonsense\r\n\r\nabc--b--",), "must be a header"),
        ((b"--b\r\nContent-Type: text/xml\r\n" + b"x" * 20000,), "headers must end"),
        ((b"--bother\r\n\r\nabc--b--",), "a line end must follow its delimiter"),
        ((b"--b\r\nContent-Transfer-Encoding: base64\r\n\r\nabc\r\n--b--",), "'base64' is not supported"),
        ((part(ENVELOPE, "Content-Type: application/json"), b"--b--"), "must be text/xml"),
        ((envelope_part() * 9, b"--b--"), "at most 8 parts"),
    ],
)
def test_entities_that_are_not_multipart(pieces: tuple[bytes, ...], fault: str) -> None:
    assert fault in refused(*pieces)


@pytest.mark.parametrize(
    ("content_type", "fault"),
    [
        ("", "must be a media type"),
        ("xml", "must be a media type"),
        ("application/json", "must be text/xml or multipart/related"),
        ("multipart/mixed; boundary=b", "must be text/xml or multipart/related"),
        ("multipart/related", "a boundary must have"),
        ("multipart/related; boundary=", "a boundary must have"),
        (f"multipart/related; boundary={'b' * 71}", "a boundary must have"),
        ('multipart/related; boundary="b', "must have name=value"),
        ("multipart/related boundary=b", "must have name=value"),
        ("text/xml; " + "x" * 2000, "must be a media type"),
    ],
)
def test_content_types_that_are_refused(content_type: str, fault: str) -> None:
    assert fault in refused(envelope_part(), b"--b--", content_type=content_type)


def test_content_types() -> None:
    assert ContentType.parse('Text/XML ; Charset="utf\\-8";') == ContentType("text/xml", {"charset": "utf-8"})
    assert ContentType.parse("text/xml;charset=UTF-8") == ContentType("text/xml", {"charset": "UTF-8"})
    related = ContentType.parse('multipart/related; boundary="MSMQ - SOAP boundary, 1"; type=text/xml')
    assert related.parameters == {"boundary": "MSMQ - SOAP boundary, 1", "type": "text/xml"}


def test_an_entity_has_a_bound() -> None:
    assert "must have at most" in refused(bytes(MAX_ENTITY_SIZE + 1))


def test_a_boundary_that_a_part_holds_is_not_taken() -> None:
    body = b"MSMQ - SOAP boundary, 7 and MSMQ - SOAP boundary, 8"
    content_type, pieces = join_entity(ENVELOPE, Attachments(body), BODY_MANAGER, 7)
    assert "boundary, 9" in content_type
    assert split_entity(content_type, b"".join(pieces)) == (ENVELOPE, Attachments(body))


@given(
    st.binary(max_size=200), st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=50), st.integers(0, 99)
)
def test_what_is_joined_is_split(envelope: bytes, body: bytes | None, extension: bytes | None, number: int) -> None:
    content_type, pieces = join_entity(envelope, Attachments(body, extension), MANAGER, number)
    assert split_entity(content_type, b"".join(pieces)) == (envelope, Attachments(body, extension))


@pytest.mark.parametrize(
    "spelled",
    [
        (b"Content-Type: ", b"content-type:"),
        (b"Content-Length: ", b"Content-Length:   "),
        (b"Content-Id: ", b"X-Other: 1\r\nContent-Id: "),
        (b"; charset=UTF-8", b"; charset=UTF-8; other=1"),
    ],
)
def test_headers_that_no_queue_manager_writes_say_the_same(spelled: tuple[bytes, bytes]) -> None:
    content_type, pieces = join_entity(ENVELOPE, Attachments(b"body", b"extension"), MANAGER, 1)
    entity = b"".join(pieces)
    found = split_entity(content_type, entity)
    assert found == (ENVELOPE, Attachments(b"body", b"extension"))
    assert split_entity(content_type, entity.replace(*spelled)) == found
    assert split_entity(content_type.replace("; ", ";"), entity) == found


def test_in_the_standard_headers_too_the_envelope_is_xml_and_lengths_are_true() -> None:
    content_type, pieces = join_entity(ENVELOPE, Attachments(b"body"), MANAGER, 1)
    entity = b"".join(pieces)
    with pytest.raises(MalformedSoap, match="must be text/xml"):
        split_entity(content_type, entity.replace(b"text/xml; charset=UTF-8", b"text/plain", 1))
    with pytest.raises(MalformedSoap, match="a delimiter must follow its 3 bytes"):
        split_entity(content_type, entity.replace(b"Content-Length: 4", b"Content-Length: 3"))


@given(st.binary(max_size=50), st.integers(0, 400), st.integers(0, 255))
def test_a_standard_message_is_read_in_one_step_as_it_is_part_by_part(body: bytes, at: int, octet: int) -> None:
    content_type, pieces = join_entity(ENVELOPE, Attachments(body), MANAGER, 1)
    entity = b"".join(pieces)
    for sent in (entity, entity[:at] + bytes([octet]) + entity[at + 1 :], entity[:at] + entity[at + 1 :]):
        found = []
        for kind in (content_type, content_type.replace("; ", ";")):  # the second is not standard
            try:
                found.append(split_entity(kind, sent))
            except MalformedSoap:
                found.append((b"", Attachments()))
        assert found[0] == found[1]


@given(st.binary(max_size=300))
def test_any_bytes_are_parts_or_refused(data: bytes) -> None:
    for entity in (data, b"--b\r\n" + data, envelope_part() + data, b"--b\r\n\r\n" + data + b"--b--"):
        with suppress(MalformedSoap):
            split_entity(RELATED, entity)
