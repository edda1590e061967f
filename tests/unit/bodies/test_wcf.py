"""Frames of netMsmq: one envelope or the several of a session, in every encoding that the framing names."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.bodies import decode, message_type
from postroad.bodies.bounds import MOST_BYTES
from postroad.bodies.wcf import is_framed, read_framed
from postroad.errors import RemoteProtocolError

VIA = "net.msmq://a/private/q"
TEXT = '<s:Envelope xmlns:s="urn:s"><s:Body><Create><name>Ada</name></Create></s:Body></s:Envelope>'
BINARY = bytes.fromhex("5602 0b017304 560e 40064372656174 65 4004 6e616d65 9903416461 01 01 01".replace(" ", ""))
READ = (
    '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><Create><name>Ada</name></Create></s:Body>'
)
READ += "</s:Envelope>"


def sized(data: bytes) -> bytes:
    size, out = len(data), b""
    while size >= 0x80:
        out += bytes([size & 0x7F | 0x80])
        size >>= 7
    return out + bytes([size]) + data


def preamble(mode: int, encoding: int | str) -> bytes:
    known = b"\x03" + bytes([encoding]) if isinstance(encoding, int) else b"\x04" + sized(encoding.encode())
    return b"\x00\x01\x00\x01" + bytes([mode]) + b"\x02" + sized(VIA.encode()) + known


@pytest.mark.parametrize(
    ("encoding", "payload", "text"),
    [
        (0, TEXT.encode(), TEXT),
        (1, TEXT.encode("utf-16-le"), TEXT),
        (1, TEXT.encode("utf-16"), TEXT),
        (2, TEXT.encode("utf-16-be"), TEXT),
        (3, b"\xef\xbb\xbf" + TEXT.encode(), TEXT),
        (4, TEXT.encode("utf-16-be"), TEXT),
        (5, TEXT.encode("utf-16-le"), TEXT),
        (7, BINARY, READ),
        (8, b"\x00" + BINARY, READ),
        ("application/soap+msbin1", BINARY, READ),
        ("application/soap+msbin1+gzip", gzip.compress(BINARY, mtime=0), READ),
        ("application/soap+msbin1+deflate", zlib.compress(BINARY)[2:-4], READ),
        ("text/xml; charset=utf-16BE", TEXT.encode("utf-16-be"), TEXT),
    ],
)
def test_one_envelope_in_every_encoding(encoding: int | str, payload: bytes, text: str) -> None:
    body = preamble(4, encoding) + payload
    framed = read_framed(body)
    assert (framed.via, framed.envelopes) == (VIA, (text,))
    found = decode(body)
    assert (found.kind, found.system, found.message_type) == ("wcf", "wcf", "Create")
    assert message_type(body) == "Create"
    assert found.value["Body"] == {"Create": {"name": "Ada"}}


def test_a_session_shares_its_strings() -> None:
    """[MC-NBFSE] 2.1: the second envelope names the string that the first one has brought."""
    first = sized(sized(b"Create")) + bytes.fromhex("420199 0178".replace(" ", ""))
    second = sized(b"") + bytes.fromhex("4201990179")
    body = preamble(3, 8) + b"\x0c" + b"\x06" + sized(first) + b"\x06" + sized(second) + b"\x07"
    assert read_framed(body).envelopes == ("<Create>x</Create>", "<Create>y</Create>")
    found = decode(body)
    assert found.text == "<Create>x</Create>\n<Create>y</Create>"
    assert found.value == [{"$type": "Create", "value": "x"}, {"$type": "Create", "value": "y"}]
    assert decode(body, limit=25).text_cut


def test_an_envelope_in_chunks() -> None:
    body = preamble(1, 0) + b"\x0c\x05" + sized(TEXT[:10].encode()) + sized(TEXT[10:].encode()) + b"\x00\x07"
    assert read_framed(body).envelopes == (TEXT,)


def test_the_parts_of_mtom_are_put_in_their_places() -> None:
    root = '<a><b><xop:Include href="cid:1%40x" xmlns:xop="urn:xop"/></b><c><Include href="cid:none"/></c></a>'
    parts = [
        b'MIME-Version: 1.0\r\nContent-Type: multipart/related; type="application/xop+xml"; boundary="uuid:1"\r\n\r\n',
        b"--uuid:1\r\nContent-ID: <0@x>\r\nContent-Type: application/xop+xml\r\n\r\n" + root.encode() + b"\r\n",
        b"--uuid:1\r\nContent-ID: <1@x>\r\n\r\n\x00\x01\x02\r\n",
        b"--uuid:1--\r\n",
    ]
    expected = '<a><b>AAEC</b><c><Include href="cid:none"/></c></a>'
    assert read_framed(preamble(4, 6) + b"".join(parts)).envelopes == (expected,)
    assert read_framed(preamble(4, 6) + b"".join(parts[1:])).envelopes == (expected,)


def test_an_envelope_without_a_frame() -> None:
    found = decode(BINARY)
    assert (found.kind, found.message_type, message_type(BINARY)) == ("wcf", "Create", "Create")
    assert decode(BINARY[:-1]).kind == "bytes"


def test_text_that_xml_cannot_say_is_shown_as_it_is() -> None:
    body = preamble(4, 7) + b"\x02\x02--\x40\x01a\x01"
    assert decode(body).text == "<!------><a></a>"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"\x00\x01\x00\x01\x04\x03", "must have an address"),
        (preamble(4, 9), "an encoding that is known"),
        (preamble(4, "application/json") + b"{}", "of a type that is known"),
        (preamble(4, 0) + b"\xff", "must be text in utf-8"),
        (preamble(3, 0) + b"\x0c\x07", "must have an envelope"),
        (preamble(3, 0) + b"\x05\x00", "must have no record 5"),
        (preamble(3, 0) + b"\x06\x09abc", "must have 9 bytes more"),
        (preamble(4, 6) + b"no parts", "parts of MTOM"),
        (preamble(4, 8) + b"\x09\x01ab", "must have all of its strings"),
        (preamble(4, 8) + b"\x03\x01a\x05b", "must have 5 bytes more"),
        (preamble(4, "application/soap+msbin1+gzip") + b"no gzip", "must be in gzip"),
        (
            preamble(4, "application/soap+msbin1+gzip") + gzip.compress(bytes(MOST_BYTES + 1), mtime=0),
            "must be whole, and at most",
        ),
    ],
)
def test_what_is_damaged_is_refused_in_a_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        read_framed(body)
    assert decode(body).kind == "bytes"


def test_what_looks_like_it() -> None:
    assert is_framed(preamble(4, 7))
    assert not is_framed(preamble(2, 7))  # duplex: no queue has two directions
    assert not is_framed(b"\x00\x01\x01\x01\x04")


@given(
    st.binary(max_size=60),
    st.sampled_from([0, 1, 6, 7, 8, "application/soap+msbin1+deflate"]),
    st.sampled_from([1, 3, 4]),
)
def test_any_bytes_in_a_frame_give_envelopes_or_a_sentence(noise: bytes, encoding: int | str, mode: int) -> None:
    with suppress(RemoteProtocolError):
        read_framed(preamble(mode, encoding) + noise)
