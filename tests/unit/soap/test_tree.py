"""What is accepted as XML at all: one small document, without a document type, in UTF-8 or UTF-16."""

from __future__ import annotations

import pytest

from postroad.errors import MalformedSoap
from postroad.soap.tree import MAX_ATTRIBUTES, MAX_DEPTH, MAX_ELEMENTS, MAX_ENVELOPE_SIZE, parse_document
from tests.soap_samples import ORDER, changed, read, refused


def fault(data: bytes) -> str:
    with pytest.raises(MalformedSoap) as caught:
        parse_document(data)
    return str(caught.value)


@pytest.mark.spec("SRM-2.2-01")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   ",
        b"text",
        b"<a>",
        b"<a></b>",
        b"<a/><b/>",
        b"<a b=c/>",
        b"<a b='1' b='2'/>",
        b"<a>&nope;</a>",
        b"<a>\x00</a>",
        b"<a>\xff</a>",
        b"<a>&#0;</a>",
        b"<p:a/>",
        b"\xff\xfe<",
        b"\xfe\xff\xd8\x00",
        ORDER.encode()[:-1],
    ],
)
def test_what_is_not_xml_is_refused_with_its_place(data: bytes) -> None:
    assert fault(data).startswith(("line ", "envelope: "))


@pytest.mark.parametrize(
    "doctype",
    [
        "<!DOCTYPE a>",
        '<!DOCTYPE a SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE a PUBLIC "x" "http://127.0.0.1:1/x.dtd">',
        '<!DOCTYPE a [<!ENTITY b "c">]>',
        '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE a [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x"> %p;]>',
    ],
)
def test_a_document_type_is_refused_and_with_it_every_entity(doctype: str) -> None:
    assert "document type declaration is not allowed" in fault(f"{doctype}<a>&b;</a>".encode())
    assert "document type declaration is not allowed" in str(refused(doctype + ORDER))
    assert "document type" in fault(f'<?xml version="1.0" encoding="utf-16"?>{doctype}<a/>'.encode("utf-16"))


def test_the_bounds() -> None:
    assert parse_document(b"<a>" * MAX_DEPTH + b"</a>" * MAX_DEPTH)
    assert "deeper" in fault(b"<a>" * (MAX_DEPTH + 1) + b"</a>" * (MAX_DEPTH + 1))
    assert parse_document(b"<a>" + b"<b/>" * (MAX_ELEMENTS - 1) + b"</a>")
    assert "more than 4096 elements" in fault(b"<a>" + b"<b/>" * MAX_ELEMENTS + b"</a>")
    attributes = [f' a{number}=""' for number in range(MAX_ATTRIBUTES)]
    assert parse_document(f"<a{''.join(attributes)}/>".encode())
    assert "more than 64 attributes" in fault(f"<a b=''{''.join(attributes)}/>".encode())
    padding = b" " * (MAX_ENVELOPE_SIZE - 4)
    assert parse_document(b"<a/>" + padding)
    assert "must have at most 1048576 bytes, got 1048577" in fault(b"<a/> " + padding)


def test_what_is_hostile_stays_cheap() -> None:
    """A quadratic reader would need minutes for each of these. The suite's time-out decides."""
    size = MAX_ENVELOPE_SIZE
    assert "deeper" in fault(b"<a>" * (size // 3))
    assert parse_document(b"<a>" + b"x<!---->" * (size // 8 - 2) + b"</a>").root.text.startswith("xx")
    assert "attributes" in fault(b"<a" + b"".join(b" a%d=''" % number for number in range(size // 12)) + b"/>")
    assert parse_document(b"<a>" + b"x<![CDATA[]]>" * (size // 13 - 2) + b"</a>")
    assert parse_document(b"<a>" + b"&#120;" * (size // 6 - 2) + b"</a>").root.text.startswith("xxx")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(encoding: str) -> None:
    text = changed(ORDER, "MSMQ:", "MSMQ:日本語 \U0001f4ee")
    declared = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>{text}'
    for each in (text, declared):
        root = parse_document(each.encode(encoding)).root
        assert root.children[0].children[0].children[0].text == "MSMQ:日本語 \U0001f4ee"


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252", "utf-7", "nonsense"])
def test_other_encodings_are_refused(encoding: str) -> None:
    assert encoding in fault(f'<?xml version="1.0" encoding="{encoding}"?><a/>'.encode())


def test_comments_and_sections_of_text_are_xml_too() -> None:
    text = changed(ORDER, "<Priority>3</Priority>", "<!-- <Priority>7</Priority> --><Priority><![CDATA[5]]></Priority>")
    msmq = read(text).msmq
    assert msmq is not None
    assert msmq.priority == 5
