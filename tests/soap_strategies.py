"""Hypothesis strategies for envelopes that use everything that XML and [MC-MQSRM] 2.2 allow, and for damaged ones."""

from __future__ import annotations

from hypothesis import strategies as st

from postroad.names import MessageId
from postroad.soap.elements import (
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceipt,
    DeliveryReceiptRequest,
    Envelope,
    Eod,
    Msmq,
    Path,
    Properties,
    Provider,
    Reference,
    Services,
    Signature,
    Stream,
    StreamId,
    StreamReceipt,
)
from postroad.soap.simple_types import message_id_text, to_xml_text
from postroad.wire.headers import TxSequenceId
from tests.strategies import guids, u16, u32

texts = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40), st.text("<>&\"'\r\n\t]!-[CDATA x", max_size=20)
).map(to_xml_text)
words = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=12)
dates = st.integers(0, 253402300799)
sent_dates = st.integers(0, 0xFFFFFFFF)
urls = st.builds(
    lambda scheme, host, port, private, name: f"{scheme}://{host}{port}/msmq/{private}{name}",
    st.sampled_from(["http", "https", "HTTP"]),
    words,
    st.sampled_from(["", ":8080"]),
    st.sampled_from(["", "private$/", "PRIVATE$/"]),
    words,
)
format_names = st.one_of(
    urls,
    guids.map(lambda guid: f"MSMQ:PUBLIC={guid}"),
    st.builds(lambda guid, number: rf"MSMQ:PRIVATE={guid}\{number:x}", guids, u32),
    words.map(lambda host: rf"MSMQ:DIRECT=OS:{host}\private$\q"),
)
stream_ids = st.builds(StreamId, guids, st.builds(TxSequenceId, u32, u32))
message_ids = st.builds(MessageId, guids, u32).map(message_id_text)
streams = st.builds(Stream, stream_ids, u32, st.none() | st.integers(1, 0xFFFFFFFF), st.none() | urls)
services = st.builds(
    Services,
    st.booleans(),
    st.none() | st.builds(DeliveryReceiptRequest, urls),
    st.none() | st.builds(CommitmentReceiptRequest, urls, st.booleans(), st.booleans()),
)
lists = st.lists(format_names, max_size=3).map(tuple)
msmqs = st.builds(
    Msmq,
    message_class=u16,
    priority=st.integers(0, 7),
    source_qm_guid=guids,
    ttrq=dates,
    body_type=u32,
    journal=st.booleans(),
    dead_letter=st.booleans(),
    correlation=st.none() | st.binary(min_size=20, max_size=20),
    trace=st.booleans(),
    connector_type=st.none() | guids,
    app=st.none() | u32,
    hash_algorithm=st.none() | u32,
    eod=st.none() | st.builds(Eod, st.booleans(), st.booleans(), st.none() | guids),
    provider=st.none() | st.builds(Provider, u32, texts),
    destination_mqf=lists,
    admin_mqf=lists,
    response_mqf=lists,
)
references = st.builds(Reference, texts, texts, st.binary(max_size=20))
signatures = st.builds(Signature, texts, st.lists(references, max_size=2).map(tuple), st.binary(max_size=64))
actions = st.one_of(texts, texts.map(lambda text: f"MSMQ:{text}"), st.just("MSMQ:QM Ordering Ack"))


def _envelope(msmq: Msmq | None, stream: Stream | None, **blocks: object) -> Envelope:
    return Envelope(msmq=msmq, stream=None if msmq is None else stream, **blocks)  # type: ignore[arg-type]


envelopes = st.builds(
    _envelope,
    st.none() | msmqs,
    st.none() | streams,
    path=st.builds(Path, actions, urls, message_ids, st.none() | format_names),
    properties=st.builds(Properties, dates, st.none() | sent_dates),
    services=st.none() | services,
    delivery_receipt=st.none() | st.builds(DeliveryReceipt, dates, message_ids),
    commitment_receipt=st.none() | st.builds(CommitmentReceipt, dates, st.sampled_from(Decision), message_ids),
    stream_receipt=st.none() | st.builds(StreamReceipt, stream_ids, u32),
    signature=st.none() | signatures,
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes of which a few were removed, repeated or replaced."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        stop = draw(st.integers(start, min(start + 60, len(data))))
        data = (
            data[:start]
            + draw(st.sampled_from([b"", data[start:stop] * 2, b"<", b"x", b"\0", b"&", b"/>"]))
            + data[stop:]
        )
    return data
