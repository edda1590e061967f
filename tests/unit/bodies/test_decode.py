"""Bodies of every kind: text in its encodings, JSON, XML, single values. There is an answer for every input."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.bodies import BodyKind, decode, message_type
from postroad.bodies.bounds import DEEPEST, LIMIT
from postroad.wire.constants import BodyType
from tests.unit.bodies.test_nrbf import SAMPLES as OBJECTS
from tests.unit.bodies.test_wcf import BINARY, preamble

GREETING = "Grüße aus Köln"


@pytest.mark.parametrize(
    ("body", "body_type", "text"),
    [
        (GREETING.encode(), 0, GREETING),
        (GREETING.encode("utf-8-sig"), 0, GREETING),
        (GREETING.encode("utf-16-le"), 0, GREETING),
        (GREETING.encode("utf-16"), 0, GREETING),
        (b"\xfe\xff" + GREETING.encode("utf-16-be"), 0, GREETING),
        (b"\xff\xfe\0\0" + GREETING.encode("utf-32-le"), 0, GREETING),
        (b"\0\0\xfe\xff" + GREETING.encode("utf-32-be"), 0, GREETING),
        (b"hello\0", 0, "hello"),
        (GREETING.encode("cp1252"), BodyType.VT_LPSTR, GREETING),
        (GREETING.encode("utf-16-le"), BodyType.VT_BSTR, GREETING),
        ((GREETING + "\0").encode("utf-16-le"), BodyType.VT_LPWSTR, GREETING),
        (b"", 0, ""),
        (b"", BodyType.VT_I4, ""),
    ],
)
def test_text_in_its_encodings(body: bytes, body_type: int, text: str) -> None:
    found = decode(body, body_type)
    assert (found.kind, found.text, found.value) == ("text", text, text)


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x01\x02",
        bytes(8),
        GREETING.encode("cp1252"),
        b"\xff\xfe\x00\xd8",
        b"\xef\xbb\xbf\xff",
        b"\xff\xfe",
        b"a\x01b",
    ],
)
def test_what_is_no_text_is_bytes(body: bytes) -> None:
    found = decode(body)
    assert (found.kind, found.text, found.value) == ("bytes", None, body)
    assert decode(b"hello", BodyType.VT_BLOB).kind == "bytes"


XML = f'<?xml version="1.0" encoding="{{}}"?>\r\n<string>{GREETING}</string>'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "windows-1252", "iso-8859-1"])
def test_xml_in_the_encoding_that_it_names(encoding: str) -> None:
    found = decode(XML.format(encoding).encode(encoding))
    assert (found.kind, found.text, found.value) == ("xml", f"<string>{GREETING}</string>", GREETING)


@pytest.mark.parametrize("encoding", ["unicode_escape", "zlib", "idna", "none-such"])
def test_only_encodings_of_text_are_looked_up(encoding: str) -> None:
    assert decode(XML.format(encoding).encode("cp1252")).kind == "bytes"


def test_xml_is_indented_and_means_the_same() -> None:
    body = "<?xml version='1.0'?><!-- a --><o:Order xmlns:o='u'  id='1 > 2'><Empty/><T> x <b>y</b></T><S>  </S><D></D>"
    body += "<C><![CDATA[<&]]></C><R>&#x19;&lt;&#65;&#xe9;</R><P xml:space='preserve'> <q/> </P>"
    body += "<L><I>1</I><I>2</I></L></o:Order>"
    found = decode(body.encode())
    assert (found.text or "").splitlines() == [
        "<!-- a -->",
        "<o:Order xmlns:o='u'  id='1 > 2'>",
        "  <Empty/>",
        "  <T> x <b>y</b></T>",
        "  <S>  </S>",
        "  <D></D>",
        "  <C><![CDATA[<&]]></C>",
        "  <R>&#x19;&lt;Aé</R>",
        "  <P xml:space='preserve'> <q/> </P>",
        "  <L>",
        "    <I>1</I>",
        "    <I>2</I>",
        "  </L>",
        "</o:Order>",
    ]
    assert found.message_type == "Order"
    assert found.value["R"] == "\x19<Aé"
    assert found.value["C"] == "<&"
    assert found.value["L"] == {"I": ["1", "2"]}


def test_json_is_indented_and_shown_as_it_was_written() -> None:
    body = '{"a":[1.10,1e400,{}],"b":"\\u00fc\\ud83d\\ude00\\n","c":{"d":[]},"a":' + "9" * 5000 + ',"e":"\\u0022"}'
    found = decode(body.encode())
    lines = (found.text or "").splitlines()
    assert lines[:8] == ["{", '  "a": [', "    1.10,", "    1e400,", "    {}", "  ],", '  "b": "ü😀\\n",', '  "c": {']
    assert lines[-2:] == ['  "e": "\\""', "}"]
    assert "9" * 5000 in (found.text or "")
    assert json.loads(decode(b'{"x": {"y": [null, true]}}').text or "") == {"x": {"y": [None, True]}}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("<a>", "must be XML"),
        ("<a:b/>", "must be XML"),
        ('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "without a document type"),
        ("<a>" * (DEEPEST + 1) + "</a>" * (DEEPEST + 1), "nested more than"),
        ("<a>&#x19;\U0010ff00</a>", "characters that are in use"),
        ("{'a': 1}", "must be JSON"),
        ('{"a": NaN}', "must be JSON"),
        ("[" * 70 + "]" * 70, "nested more than"),
        ("[" + "0," * 200_000 + "0]", "at most"),
    ],
)
def test_what_only_looks_like_it_is_text(body: str, sentence: str) -> None:
    found = decode(body.encode())
    assert (found.kind, found.text) == ("text", body)
    assert sentence in (found.fault or "")


@pytest.mark.parametrize(
    ("body_type", "body", "text"),
    [
        (BodyType.VT_I1, b"\xff", "-1"),
        (BodyType.VT_UI1, b"\xff", "255"),
        (BodyType.VT_I2, struct.pack("<h", -5), "-5"),
        (BodyType.VT_UI2, b"A\0", "65"),
        (BodyType.VT_I4, b"<a/>", str(int.from_bytes(b"<a/>", "little"))),
        (BodyType.VT_UI4, b"\xff" * 4, str(2**32 - 1)),
        (BodyType.VT_I8, b"\xff" * 8, "-1"),
        (BodyType.VT_UI8, b"\xff" * 8, str(2**64 - 1)),
        (22, b"\xff" * 4, "-1"),
        (BodyType.VT_R4, struct.pack("<f", 0.1), "0.1"),
        (BodyType.VT_R8, struct.pack("<d", 0.1), "0.1"),
        (BodyType.VT_BOOL, b"\xff", "true"),
        (BodyType.VT_BOOL, b"\0\0", "false"),
        (BodyType.VT_CY, struct.pack("<q", -123_450), "-12.3450"),
        (BodyType.VT_DATE, struct.pack("<d", -1.25), "1899-12-29T06:00:00"),
        (BodyType.VT_DATE, struct.pack("<q", 638_000_000_000_000_001), "2022-09-28T22:13:20.0000001"),
        (BodyType.VT_CLSID, bytes(range(16)), "03020100-0504-0706-0809-0a0b0c0d0e0f"),
        (14, b"\0\0\x02\x80" + struct.pack("<IQ", 0, 1250), "-12.50"),
        (64, struct.pack("<Q", 116_444_736_000_000_000), "1970-01-01T00:00:00Z"),
        (BodyType.VT_NULL, b"x", "null"),
        (0x2003, struct.pack("<ii", 1, -2), "[\n  1,\n  -2\n]"),
        (0x1011, b"hello", "hello"),
        (0x2011, b'{"a":1}', '{\n  "a": 1\n}'),
    ],
)
def test_values_of_activex(body_type: int, body: bytes, text: str) -> None:
    found = decode(body, body_type)
    assert (found.kind, found.text, found.fault) == ("activex", text, None)


@pytest.mark.parametrize(
    ("body_type", "body"),
    [
        (BodyType.VT_I4, b"123"),
        (BodyType.VT_DATE, struct.pack("<d", 1e300)),
        (0x2003, b"123"),
        (14, b"\0\0\x1d\0" + bytes(12)),
    ],
)
def test_a_value_that_is_none_is_bytes(body_type: int, body: bytes) -> None:
    found = decode(body, body_type)
    assert (found.kind, found.text) == ("bytes", None)
    assert found.fault


def test_bytes_in_an_array_that_are_no_text_are_bytes() -> None:
    for body_type in (0x1011, 0x2011, BodyType.VT_STREAMED_OBJECT, 69):
        assert decode(b"\x00\xff\x01", body_type).kind == "bytes"


def test_text_by_its_type_that_has_xml_or_json() -> None:
    found = decode("<a><b>1</b></a>".encode("utf-16-le"), BodyType.VT_BSTR)
    assert (found.kind, found.text, found.message_type) == ("activex", "<a>\n  <b>1</b>\n</a>", "a")
    assert found.value == {"$type": "a", "b": "1"}


def test_the_formatters_of_system_messaging() -> None:
    assert decode(OBJECTS[0], 768).system == "system.messaging"
    assert decode(b"damaged", 768).fields() == {
        "body_kind": "bytes",
        "body_text": None,
        "headers": {},
        "system": "system.messaging",
    }
    assert decode(OBJECTS[0]).system is None


def test_text_is_whole_up_to_the_limit_and_says_that_it_was_cut() -> None:
    assert decode(b"x" * LIMIT).fields() == {"body_kind": "text", "body_text": "x" * LIMIT, "headers": {}}
    longer = decode(b"x" * (LIMIT + 1))
    assert (longer.fields()["body_text_cut"], len(longer.text or "")) == (True, LIMIT)
    for body in (b'{"a": [1, 2, 3, 4]}', b"<a><b>1</b><c>2</c></a>", OBJECTS[0]):
        cut = decode(body, limit=9)
        assert (cut.text_cut, cut.text) == (True, (decode(body).text or "")[:9])


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"<?xml version='1.0'?><!-- c --><o:Order xmlns:o='u'/>", "Order"),
        (b"<Order>" + "ü".encode() * 40_000 + b"</Order>", "Order"),
        ('{"$type": "Shop.Order, Shop", "a": 1}'.encode("utf-16-le"), "Shop.Order"),
        (b'{"a": 1}', None),
        (OBJECTS[0], "T"),
        (b"text", None),
        (b"\0\1", None),
        (preamble(4, 7) + BINARY, "Create"),
        (b"<s:Envelope xmlns:s='u'><s:Body><x:Do xmlns:x='v'/></s:Body></s:Envelope>", "Do"),
    ],
)
def test_the_type_of_a_message_for_lists(body: bytes, name: str | None) -> None:
    assert message_type(body) == decode(body).message_type == name


KINDS = st.sampled_from(
    [0, 768, 1, 2, 3, 4, 6, 7, 8, 11, 14, 30, 31, 64, 68, 69, 72, 0x1011, 0x2011, 0x1008, 0x2003, 0xFFFFFFFF]
)
WHOLE = (
    *OBJECTS,
    preamble(4, 7) + BINARY,
    preamble(4, 6) + b"--a\r\n\r\n<a/>\r\n--a--",
    b'{"a": [1, "\\u00fc"], "message": {}, "messageType": ["urn:message:A:B"], "headers": {"x": null}}',
    b"<?xml version='1.0' encoding='windows-1252'?><a b='c'><d>&#x19;</d>t<e/></a>",
    "<a/>".encode("utf-16"),
)


@given(st.binary(max_size=80), KINDS, st.binary(max_size=40), st.integers(0, 30))
def test_every_body_has_an_answer(body: bytes, body_type: int, extension: bytes, limit: int) -> None:
    found = decode(body, body_type, extension, limit=limit)
    assert isinstance(found.kind, BodyKind)
    assert len(found.text or "") <= limit
    json.dumps(found.fields()).encode()
    message_type(body, body_type, extension)


@pytest.mark.parametrize("sample", WHOLE)
def test_every_sample_cut_and_with_each_bit_flipped_has_an_answer(sample: bytes) -> None:
    for body_type in (0, 768):
        for length in range(len(sample)):
            decode(sample[:length], body_type)
        for place in range(len(sample) * 8):
            made = bytearray(sample)
            made[place // 8] ^= 1 << place % 8
            decode(bytes(made), body_type)
            message_type(bytes(made), body_type)
