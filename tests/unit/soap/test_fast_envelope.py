"""The fast reader reads what queue managers write, and leaves everything else to the XML reader."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from postroad.soap.elements import Envelope, Msmq, Path, Properties, Services, Stream
from postroad.soap.envelope import read_fast, write_envelope
from tests.soap_samples import (
    DELIVERY_RECEIPT,
    ORDER,
    RECEIPTS_WANTED,
    SIMPLE,
    STREAM,
    changed,
    joined,
    read,
)
from tests.soap_strategies import msmqs, services, streams, urls


@pytest.mark.parametrize("text", [ORDER, *map(joined, STREAM[1:])])
def test_messages_of_queue_managers(text: str) -> None:
    text = text.replace("Stream ", "stream ").replace("</Stream>", "</stream>").replace("<end/>", "")
    assert read_fast(text) == read(text)


@pytest.mark.parametrize("text", [SIMPLE, joined(SIMPLE), RECEIPTS_WANTED, DELIVERY_RECEIPT, STREAM[0]])
def test_other_forms_are_left_to_the_reader_of_xml(text: str) -> None:
    assert read_fast(text) is None
    read(text)


@pytest.mark.parametrize("label", ["a&amp;b", "a<!-- -->b", "<![CDATA[x]]>", "a\rb", "a]]&gt;", "a>b"])
def test_text_that_does_not_mean_itself_is_not_for_here(label: str) -> None:
    text = changed(ORDER, "MSMQ:", f"MSMQ:{label}")
    assert read_fast(text) is None
    read(text)


@given(msmqs, services, streams, urls, urls)
def test_what_it_reads_it_reads_right(msmq: Msmq, services: Services, stream: Stream, to: str, via: str) -> None:
    envelope = Envelope(
        Path("MSMQ:label", to, "uuid:7@caf195ea-615c-4264-ae08-11a4e60194c0", via),
        Properties(9, 8),
        services,
        stream,
        msmq=replace(msmq, provider=None, eod=None, destination_mqf=(), admin_mqf=(), response_mqf=()),
    )
    text = write_envelope(envelope).decode()
    assert read_fast(text) in (envelope, None)
    assert read(text) == envelope
