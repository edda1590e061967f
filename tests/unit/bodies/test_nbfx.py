"""Binary XML: every record with the bytes of the specification's own examples, and what is refused."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.bodies import nbfx
from postroad.bodies.bounds import DEEPEST, MOST_VALUES
from postroad.bodies.dictionary import STRINGS
from postroad.bodies.nbfx import read_document, read_start, read_string_table
from postroad.errors import RemoteProtocolError

# [MC-NBFX] 3: documents, and the characters that they stand for. A string outside of a document is str and its number.
SPECIFIED = [
    ("4003646f6301", "<doc></doc>"),
    ("0207636f6d6d656e74", "<!--comment-->"),
    ("034003617272018b0333338888dddd", "<arr>13107</arr><arr>-30584</arr><arr>-8739</arr>"),
    ("4003646f630404617474728401", '<doc attr="false"></doc>'),
    (
        "4003646f6309037072650a687474703a2f2f616263050370726504617474728401",
        '<doc xmlns:pre="http://abc" pre:attr="false"></doc>',
    ),
    ("4003646f6306088601", '<doc str8="true"></doc>'),
    (
        "4003646f6309037072650a687474703a2f2f6162630703707265008601",
        '<doc xmlns:pre="http://abc" pre:str0="true"></doc>',
    ),
    ("4003646f63080a687474703a2f2f61626301", '<doc xmlns="http://abc"></doc>'),
    ("4003646f630901700a687474703a2f2f61626301", '<doc xmlns:p="http://abc"></doc>'),
    ("4003646f630a0401", '<doc xmlns="str4"></doc>'),
    ("4003646f630b01700401", '<doc xmlns:p="str4"></doc>'),
    ("4003646f630901660a687474703a2f2f616263110b980568656c6c6f01", '<doc xmlns:f="http://abc" f:str11="hello"></doc>'),
    ("4003646f630901780a687474703a2f2f61626323159805776f726c6401", '<doc xmlns:x="http://abc" x:str21="world"></doc>'),
    ("4003646f6309016b0a687474703a2f2f6162633004617474728601", '<doc xmlns:k="http://abc" k:attr="true"></doc>'),
    ("4003646f6309017a0a687474703a2f2f6162633f03616263980378797a01", '<doc xmlns:z="http://abc" z:abc="xyz"></doc>'),
    ("4003646f6301", "<doc></doc>"),
    ("410370726503646f6309037072650a687474703a2f2f61626301", '<pre:doc xmlns:pre="http://abc"></pre:doc>'),
    ("420e01", "<str14></str14>"),
    ("43037072650e09037072650a687474703a2f2f61626301", '<pre:str14 xmlns:pre="http://abc"></pre:str14>'),
    ("440a0901610a687474703a2f2f61626301", '<a:str10 xmlns:a="http://abc"></a:str10>'),
    ("56260901730a687474703a2f2f61626301", '<s:str38 xmlns:s="http://abc"></s:str38>'),
    ("5e0568656c6c6f0901610a687474703a2f2f61626301", '<a:hello xmlns:a="http://abc"></a:hello>'),
    ("70094d794d6573736167650901730a687474703a2f2f61626301", '<s:MyMessage xmlns:s="http://abc"></s:MyMessage>'),
    ("4003646f6306a0038001", '<doc str416="0"></doc>'),
    ("400361626381", "<abc>0</abc>"),
    ("4003646f6306008201", '<doc str0="1"></doc>'),
    ("400361626383", "<abc>1</abc>"),
    ("4003646f6306008401", '<doc str0="false"></doc>'),
    ("400361626385", "<abc>false</abc>"),
    ("4003646f6306008601", '<doc str0="true"></doc>'),
    ("400361626387", "<abc>true</abc>"),
    ("4003646f6306ec0188de01", '<doc str236="-34"></doc>'),
    ("429a01897f", "<str154>127</str154>"),
    ("4003646f6306ec018a008001", '<doc str236="-32768"></doc>'),
    ("429a018bff7f", "<str154>32767</str154>"),
    ("4003646f6306ec018c15cd5b0701", '<doc str236="123456789"></doc>'),
    ("429a018dffffff7f", "<str154>2147483647</str154>"),
    ("4003646f6306ec018e000000800000000001", '<doc str236="2147483648"></doc>'),
    ("429a018f0000000000010000", "<str154>1099511627776</str154>"),
    ("4003646f6304016190cdcc8c3f01", '<doc a="1.1"></doc>'),
    ("4005507269636591cdcc0142", "<Price>32.45</Price>"),
    ("4003646f63040161927457148b0abf054001", '<doc a="2.71828182845905"></doc>'),
    ("4002504993112d4454fb210940", "<PI>3.14159265358979</PI>"),
    ("4003646f630403696e74940000060000000000802d4e000000000001", '<doc int="5.123456"></doc>'),
    ("40084d617856616c75659500000000ffffffffffffffffffffffff", "<MaxValue>79228162514264337593543950335</MaxValue>"),
    ("4003646f63066e96ff3f37f47528ca2b01", '<doc str110="9999-12-31T23:59:59.9999999"></doc>'),
    ("426c9700408ef95b47c808", "<str108>2006-05-17T00:00:00</str108>"),
    ("4003646f63980568656c6c6f01", "<doc>hello</doc>"),
    ("400161990568656c6c6f", "<a>hello</a>"),
    ("4003646f639a050068656c6c6f01", "<doc>hello</doc>"),
    ("4001619b050068656c6c6f", "<a>hello</a>"),
    ("4003646f639c0500000068656c6c6f01", "<doc>hello</doc>"),
    ("4001619d0500000068656c6c6f", "<a>hello</a>"),
    ("4003646f639e08000102030405060701", "<doc>AAECAwQFBgc=</doc>"),
    ("40064261736536349f080001020304050607", "<Base64>AAECAwQFBgc=</Base64>"),
    ("4003646f63a00800000102030405060701", "<doc>AAECAwQFBgc=</doc>"),
    ("4006426173653634a108000001020304050607", "<Base64>AAECAwQFBgc=</Base64>"),
    ("4003646f63a208000000000102030405060701", "<doc>AAECAwQFBgc=</doc>"),
    ("4006426173653634a3080000000001020304050607", "<Base64>AAECAwQFBgc=</Base64>"),
    ("4003646f63040161a4887b980568656c6c6f86a601", '<doc a="123 hello true"></doc>'),
    ("4003646f63040161a4887b980568656c6c6f86a601", '<doc a="123 hello true"></doc>'),
    ("4003646f63040161a801", '<doc a=""></doc>'),
    ("4003646f63a9", "<doc></doc>"),
    ("4003646f6304026e73aa3801", '<doc ns="str56"></doc>'),
    ("400454797065abc401", "<Type>str196</Type>"),
    ("4003646f63ac00112233445566778899aabbccddeeff01", "<doc>urn:uuid:33221100-5544-7766-8899-aabbccddeeff</doc>"),
    ("421aad00112233445566778899aabbccddeeff", "<str26>urn:uuid:33221100-5544-7766-8899-aabbccddeeff</str26>"),
    ("4003646f63ae00c4f532ffffffff01", "<doc>-PT5M44S</doc>"),
    ("429407af00b08ef01b000000", "<str916>PT3H20M</str916>"),
    ("4003646f63b0000102030405060708090a0b0c0d0e0f01", "<doc>03020100-0504-0706-0809-0a0b0c0d0e0f</doc>"),
    ("40024944b1000102030405060708090a0b0c0d0e0f", "<ID>03020100-0504-0706-0809-0a0b0c0d0e0f</ID>"),
    ("4003646f63b2ffffffffffffffff01", "<doc>18446744073709551615</doc>"),
    ("429a01b3feffffffffffffff", "<str154>18446744073709551614</str154>"),
    ("4003646f63b40101", "<doc>true</doc>"),
    ("03400361727201b5050100010001", "<arr>true</arr><arr>false</arr><arr>true</arr><arr>false</arr><arr>true</arr>"),
    ("4003646f63040175b60675006e00690001", '<doc u="uni"></doc>'),
    ("400155b70675006e006900", "<U>uni</U>"),
    ("4003646f630403753136b8080075006e006900320001", '<doc u16="uni2"></doc>'),
    ("4003553136b9080075006e0069003200", "<U16>uni2</U16>"),
    ("4003646f630403753332ba040000003300320001", '<doc u32="32"></doc>'),
    ("4003553332bb0400000033003200", "<U32>32</U32>"),
    ("4003646f6306f006bc088e0701", '<doc str880="i:str910"></doc>'),
    ("400454797065bd129007", "<Type>s:str912</Type>"),
]


@pytest.mark.parametrize(("raw", "text"), SPECIFIED)
def test_the_examples_of_the_specification(raw: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nbfx, "STRINGS", [f"str{number}" for number in range(0, 1200, 2)])
    assert read_document(bytes.fromhex(raw), [f"str{number}" for number in range(1, 1200, 2)]) == text


def test_the_strings_of_soap() -> None:
    """[MC-NBFS] 2.1: the first is 0, the last is 0x3CC."""
    assert len(STRINGS) == 0x3CC // 2 + 1
    known = {0x00: "mustUnderstand", 0x04: "http://www.w3.org/2003/05/soap-envelope", 0x0A: "Action", 0xDC: "Via"}
    known |= {0x36E: "http://schemas.microsoft.com/ws/2005/05/addressing/none", 0x39E: "guid", 0x3CC: "detail"}
    assert {number: STRINGS[number // 2] for number in known} == known


ENVELOPE = (
    '<s:Envelope xmlns:a="http://www.w3.org/2005/08/addressing" xmlns:s="http://www.w3.org/2003/05/soap-envelope">'
    '<s:Header><a:Action s:mustUnderstand="1">action</a:Action></s:Header>'
    "<s:Body><Inventory>0</Inventory></s:Body></s:Envelope>"
)
HEAD = "5602 0b016106 0b017304 5608 440a 1e0082"


def test_a_document_with_the_strings_of_soap() -> None:
    """[MC-NBFS] 3"""
    tail = "99 06 61 63 74 69 6f 6e 01 56 0e 40 09 49 6e 76 65 6e 74 6f 72 79 81 01 01"
    assert read_document(bytes.fromhex(HEAD + tail)) == ENVELOPE


def test_a_document_with_strings_of_its_session() -> None:
    """[MC-NBFSE] 3"""
    raw = bytes.fromhex("11 06 61 63 74 69 6f 6e 09 49 6e 76 65 6e 74 6f 72 79" + HEAD + "ab01 01 560e 4203 81 01 01")
    table: list[str] = []
    start = read_string_table(raw, table)
    assert table == ["action", "Inventory"]
    assert read_document(raw[start:], table) == ENVELOPE
    with pytest.raises(RemoteProtocolError, match="has no string 1"):
        read_document(raw[start:])


def element(content: bytes) -> bytes:
    return b"\x40\x01a" + content + b"\x01"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'\x98\x04<&>"', '&lt;&amp;&gt;"'),
        (b"\x98\x02\0\x19", "&#0;&#25;"),
        (b'\x04\x01b\x98\x02"\n', None),
        (b"\x90" + struct.pack("<f", 0.1), "0.1"),
        (b"\x92" + struct.pack("<d", 1e16), "10000000000000000"),
        (b"\x92" + struct.pack("<d", 1e17), "1E+17"),
        (b"\x92" + struct.pack("<d", 1e-5), "1E-05"),
        (b"\x92" + struct.pack("<d", -1.5e-300), "-1.5E-300"),
        (b"\x92" + struct.pack("<d", -0.0), "-0"),
        (b"\x92" + struct.pack("<d", float("-inf")), "-INF"),
        (b"\x92" + struct.pack("<d", float("nan")), "NaN"),
        (b"\x96" + struct.pack("<Q", 630_822_816_000_000_000 | 1 << 62), "2000-01-01T00:00:00Z"),
        (b"\x96" + struct.pack("<Q", 630_822_816_000_000_000 | 2 << 62), "2000-01-01T00:00:00+00:00"),
        (b"\xae" + struct.pack("<q", 0), "PT0S"),
        (b"\xae" + struct.pack("<q", 864_000_000_000), "P1D"),
        (b"\xae" + struct.pack("<q", -15_000_000), "-PT1.5S"),
    ],
)
def test_texts(content: bytes, text: str | None) -> None:
    found = read_document(element(content))
    assert found == (f"<a>{text}</a>" if text is not None else '<a b="&quot;&#10;"></a>')


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"\x40\x01a", "end all of its elements"),
        (b"\x01", "no end without an element"),
        (b"\x78", "no record 0x78"),
        (b"\xa5", "must have no record 0xa5"),
        (b"\x40\x00\x01", "must have names"),
        (b"\x40\x03a b\x01", "must have names"),
        (b"\x40\x05a", "must have 5 bytes more"),
        (b"\x40\x01\xff\x01", "UTF-8 or UTF-16"),
        (b"\x42\xfe\x7f\x01", "has no string 16382"),
        (b"\x40\xff\xff\xff\xff\xff", "numbers of 31 bits"),
        (element(b"\xb4\x02"), "moments that exist"),
        (element(b"\x96" + b"\xff" * 8), "moments that exist"),
        (element(b"\x94" + b"\x00\x00\x1d" + bytes(13)), "moments that exist"),
        (element(b"\xa4\xa4"), "list inside a list"),
        (element(b"\xbc\x1a\x00"), "prefixes of one letter"),
        (b"\x03\xba", "no record 0xba"),
        (b"\x03\x40\x01a\x02", "end the element of an array"),
        (b"\x03\x40\x01a\x01\x99\x01", "no array of records"),
        (b"\x40\x01a" * (DEEPEST + 1), f"nested more than {DEEPEST} times"),
        (b"\x40\x01a\x01" * (MOST_VALUES // 2 + 1), f"at most {MOST_VALUES:,} values"),
        (b"\x03\x40\x01a\x01\x8b\xff\xff\xff\x7f", f"at most {MOST_VALUES:,} values"),
    ],
)
def test_what_is_damaged_is_refused_in_a_sentence(raw: bytes, sentence: str) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        read_document(raw)


def test_strings_that_are_named_again_and_again_do_not_explode() -> None:
    """200 kB that were 2 GB: each of two bytes stands for a string of 20,000 characters."""
    raw = b"\x40\x01a" + b"\xaa\x01" * 90_000 + b"\x01"
    with pytest.raises(RemoteProtocolError, match="at most 8,388,608 characters"):
        read_document(raw, ["x" * 20_000])
    many = b"\x03\x40\x01a" + b"\x04\x01b\xaa\x01" + b"\x01\xb5" + b"\x90\xbf\x05" + bytes(90_000)
    with pytest.raises(RemoteProtocolError, match="at most 8,388,608 characters"):
        read_document(many, ["x" * 20_000])


def test_the_start_of_a_document_is_what_there_is() -> None:
    raw = element(element(b"") * 1000)
    assert read_start(raw, (), 20).startswith("<a><a></a><a></a>")
    assert len(read_start(raw, (), 20)) < 40
    assert read_start(raw[:6], (), 1000) == "<a><a>"


@given(st.binary(max_size=100), st.sampled_from([bytes.fromhex(raw) for raw, _ in SPECIFIED]), st.integers(0, 60))
def test_any_bytes_give_text_or_a_sentence(noise: bytes, sample: bytes, place: int) -> None:
    for raw in (noise, sample[:place] + noise + sample[place:], sample[:place] + noise[:2] + sample[place + 2 :]):
        with suppress(RemoteProtocolError):
            read_document(raw, ["a", "b"])
        read_start(raw, (), 50)
