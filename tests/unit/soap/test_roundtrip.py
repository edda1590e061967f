"""Any envelope survives the way through XML and through a packet. Any bytes are an envelope or are refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import MalformedSoap
from postroad.soap.elements import Attachments, Envelope, Eod, Msmq
from postroad.soap.envelope import read_any, read_envelope, write_envelope
from postroad.soap.packets import packet_of
from postroad.soap.requests import (
    attachments_of,
    envelope_of,
    received_envelope_of,
    soap_envelope_of,
)
from postroad.wire import MessageView
from postroad.wire.constants import HashAlgorithm
from tests.soap_samples import ALL
from tests.soap_strategies import damaged, envelopes


@given(envelopes)
def test_values_to_bytes_to_values(envelope: Envelope) -> None:
    data = write_envelope(envelope)
    fast, slow = read_envelope(data), read_any(data)
    assert fast == slow == envelope
    assert fast.source == slow.source
    assert write_envelope(fast) == data
    ElementTree.fromstring(data)


@given(st.data())
def test_any_bytes_are_an_envelope_or_refused(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(ALL)).encode()
    for octets in (data.draw(st.binary(max_size=100)), data.draw(damaged(sample))):
        with suppress(MalformedSoap):
            envelope = read_any(octets)
            assert envelope == read_envelope(octets)
            assert read_envelope(write_envelope(envelope)) == envelope
            packet_of(envelope, Attachments(), 0)


def _hashed(msmq: Msmq | None) -> Msmq | None:
    return msmq and replace(msmq, hash_algorithm=msmq.hash_algorithm or HashAlgorithm.SHA1)


@given(envelopes, st.binary(max_size=20), st.binary(max_size=20))
def test_through_a_packet(envelope: Envelope, body: bytes, extension: bytes) -> None:
    """The second trip gives what the first gave. The first may only drop what a packet has as its default."""
    with suppress(MalformedSoap):  # a label may be too long for a packet
        read = read_envelope(write_envelope(envelope))
        view = MessageView(packet_of(read, Attachments(body, extension), 0))
        assert attachments_of(view) == Attachments(body or None, extension or None)
        assert soap_envelope_of(view) == write_envelope(envelope).decode()
        assert received_envelope_of(view) == envelope
        left = envelope_of(view, envelope.stream)
        again = envelope_of(MessageView(packet_of(left, attachments_of(view), 0)), envelope.stream)
        # A hash algorithm of zero is not written, and an absent one means the default.
        assert replace(again, signature=left.signature, msmq=_hashed(again.msmq)) == replace(
            left, msmq=_hashed(left.msmq)
        )
        if envelope.msmq is not None and left.msmq is not None:
            assert left.msmq == replace(
                envelope.msmq,
                ttrq=left.msmq.ttrq,
                correlation=envelope.msmq.correlation if envelope.msmq.correlation != bytes(20) else None,
                app=envelope.msmq.app or None,
                hash_algorithm=left.msmq.hash_algorithm,
                eod=envelope.msmq.eod if envelope.stream and envelope.msmq.eod != Eod() else None,
            )
