"""Records: the binary format between the HTTP API and the Python client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.describe.received import (
    _RECORD,
    ReceivedMessage,
    decode_records,
    encode_records,
)
from postroad.errors import RemoteProtocolError
from postroad.reports.operations import RECORDS_TYPE

messages = st.builds(
    ReceivedMessage,
    st.binary(max_size=50),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
)


def parts(message: ReceivedMessage) -> tuple[bytes, int, int, int, int]:
    return message.packet, message.lookup_id, message.arrived_ms, message.aborts, message.reason


def test_a_record_has_the_documented_layout() -> None:
    data = encode_records([ReceivedMessage(b"packet", 1, 2, 3, 4)])
    assert data == bytes.fromhex("0100000000000000 0200000000000000 03000000 0400 0000 06000000") + b"packet"


@given(st.lists(messages, max_size=5))
def test_what_is_written_is_read(given_messages: list[ReceivedMessage]) -> None:
    assert list(map(parts, decode_records(encode_records(given_messages)))) == list(map(parts, given_messages))


@pytest.mark.parametrize("cut", [1, _RECORD.size - 1, _RECORD.size + 1, _RECORD.size + 5])
def test_a_record_that_is_cut_off_is_refused(cut: int) -> None:
    data = encode_records([ReceivedMessage(b"packet", 1, 2)])
    with pytest.raises(RemoteProtocolError):
        decode_records(data[:cut])


def test_the_media_type_is_the_documented_one() -> None:
    """A client of another version asks for it by this name."""
    assert RECORDS_TYPE == "application/vnd.postroad.records"
