"""TransactionHeader and TxSequenceID, [MS-MQMQ] 2.2.20.5 and 2.2.18.1.2."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from postroad.wire import MessageView, TransactionHeader, TxSequenceId, UserMessage
from postroad.wire.constants import TransactionFlags
from postroad.wire.octets import Reader, Writer
from tests.packets import OTHER, TAG, by_hand, meaning, patched, refusal, spliced, u32, with_bits
from tests.vectors import V2

RECOVERABLE_TRANSACTIONAL = 0x0010_0020
HEADER_AT = 80  # of V2


def header(flags: int, connector: bytes = b"") -> bytes:
    return u32(flags) + bytes.fromhex("01000000 02000000 03000000 04000000") + connector


def decoded(packet: bytes) -> TransactionHeader:
    view = MessageView(packet).transaction_header
    assert view == UserMessage.decode(packet).transaction
    assert view is not None
    return view


def encoded(value: TransactionHeader) -> bytes:
    writer = Writer()
    value.encode(writer)
    return writer.getvalue()


@pytest.mark.spec("MQ-2.2.20.5-01", "MQ-2.2.18.1.2-01")
def test_the_layout() -> None:
    packet = by_hand(user_flags=RECOVERABLE_TRANSACTIONAL, after_names=header(0))
    value = decoded(packet)
    assert value == TransactionHeader(TxSequenceId(ordinal=1, time_stamp=2), 3, 4)
    assert MessageView(packet).transaction_fields == (0, 1, 2, 3, 4)
    assert MessageView(packet).application_tag == TAG
    assert encoded(value) == header(0)
    assert len(encoded(value)) == 20


@pytest.mark.spec("MQ-2.2.20.5-01")
def test_the_header_of_v2() -> None:
    assert decoded(V2) == TransactionHeader(TxSequenceId(7, 9), 1, 0, 0x0012345C)


@pytest.mark.spec("MQ-2.2.20.5-01", "MQ-2.2.20.5-02", "MQ-2.2.20.5-03")
def test_cg_is_bit_0_and_brings_a_connector() -> None:
    packet = by_hand(user_flags=RECOVERABLE_TRANSACTIONAL, after_names=header(1, OTHER.bytes_le))
    value = decoded(packet)
    assert value.connector_qm_guid == OTHER
    assert MessageView(packet).application_tag == TAG
    assert encoded(value) == header(1, OTHER.bytes_le)
    assert len(encoded(value)) == 36
    assert refusal(by_hand(user_flags=RECOVERABLE_TRANSACTIONAL, after_names=header(1)))
    assert refusal(by_hand(user_flags=RECOVERABLE_TRANSACTIONAL, after_names=header(0, OTHER.bytes_le)))


@pytest.mark.spec("MQ-2.2.20.5-03")
def test_cg_follows_from_the_connector() -> None:
    value = TransactionHeader(TxSequenceId(1, 2), 3, 4)
    assert encoded(replace(value, connector_qm_guid=OTHER)) == header(1, OTHER.bytes_le)
    assert encoded(replace(value, flags=1)) == header(0)


def test_the_connector_is_found_behind_a_connector_type() -> None:
    after = bytes(range(16)) + header(1, OTHER.bytes_le)
    value = decoded(by_hand(user_flags=RECOVERABLE_TRANSACTIONAL | 0x0040_0000, after_names=after))
    assert value.connector_qm_guid == OTHER


@pytest.mark.spec("MQ-2.2.20.5-04", "MQ-2.2.20.5-05", "MQ-2.2.20.5-06")
@pytest.mark.parametrize(
    ("flag", "bit", "wanted", "first", "last"),
    [
        (TransactionFlags.FINAL_ACK, 0x2, True, False, False),
        (TransactionFlags.FIRST, 0x4, False, True, False),
        (TransactionFlags.LAST, 0x8, False, False, True),
    ],
)
def test_fa_fm_and_lm_are_bits_1_to_3(flag: int, bit: int, wanted: bool, first: bool, last: bool) -> None:
    assert encoded(TransactionHeader(TxSequenceId(1, 2), 3, 4, flag)) == header(bit)
    value = decoded(patched(V2, HEADER_AT, u32(bit)))
    assert (value.final_ack_required, value.first_in_transaction, value.last_in_transaction) == (wanted, first, last)


@pytest.mark.spec("MQ-2.2.20.5-08")
@pytest.mark.parametrize("transaction_id", [0, 1, 0x12345, 0xFFFFF])
def test_id_is_bits_4_to_23(transaction_id: int) -> None:
    value = decoded(patched(V2, HEADER_AT, u32(transaction_id << 4)))
    assert value.transaction_id == transaction_id
    assert not any((value.final_ack_required, value.first_in_transaction, value.last_in_transaction))
    assert decoded(patched(V2, HEADER_AT, u32(transaction_id << 4 | 0xFF00000E))).transaction_id == transaction_id


@pytest.mark.spec("MQ-2.2.20.5-10", "MQ-2.2.20.5-11")
@pytest.mark.parametrize("bit", range(24, 32))
def test_an_unused_flag_is_ignored(bit: int) -> None:
    odd = with_bits(V2, HEADER_AT, 1 << bit)
    hidden = ("transaction_header", "transaction_fields")
    assert meaning(odd, *hidden) == meaning(V2, *hidden)
    assert replace(decoded(odd), flags=0) == replace(decoded(V2), flags=0)
    assert decoded(odd).transaction_id == 0x12345


@pytest.mark.spec("MQ-2.2.20.5-10")
def test_no_unused_flag_is_sent() -> None:
    every = TransactionFlags.FINAL_ACK | TransactionFlags.FIRST | TransactionFlags.LAST | TransactionFlags.IDENTIFIER
    assert encoded(TransactionHeader(TxSequenceId(1, 2), 3, flags=every))[3] == 0


@pytest.mark.spec("MQ-2.2.20.5-11")
def test_any_combination_of_flags_is_accepted() -> None:
    packet = spliced(patched(V2, HEADER_AT, u32(0xFFFFFFFF)), HEADER_AT + 20, OTHER.bytes_le)
    assert decoded(packet).connector_qm_guid == OTHER
    assert decoded(patched(V2, HEADER_AT, u32(0xFFFFFFFE))).transaction_id == 0xFFFFF


def test_a_header_that_is_cut_off() -> None:
    whole = header(0)
    for size in range(0, 20, 4):
        packet = by_hand(user_flags=RECOVERABLE_TRANSACTIONAL, after_names=whole[:size], properties=b"")
        assert refusal(packet).fault == "TransactionHeader is cut off"


@pytest.mark.spec("MQ-2.2.18.1.2-01")
def test_a_sequence_id_has_its_ordinal_first() -> None:
    value = decoded(patched(V2, HEADER_AT + 4, bytes.fromhex("0100000002000000")))
    assert (value.sequence_id.ordinal, value.sequence_id.time_stamp) == (1, 2)


@pytest.mark.spec("MQ-2.2.18.1.2-02")
def test_sequence_ids_compare_as_numbers_with_the_time_stamp_high() -> None:
    rising = [
        TxSequenceId(0, 0),
        TxSequenceId(1, 0),
        TxSequenceId(0xFFFFFFFF, 0),
        TxSequenceId(0, 1),
        TxSequenceId(0xFFFFFFFF, 1),
        TxSequenceId(0, 2),
        TxSequenceId(0, 0x80000000),
        TxSequenceId(0xFFFFFFFF, 0xFFFFFFFF),
    ]
    for low, high in pairwise(rising):
        assert low < high
        assert low <= high
        assert high > low
        assert high >= low
        assert not high < low
        assert low.value < high.value
    assert max(rising) == rising[-1]
    assert TxSequenceId(7, 9).value == 9 << 32 | 7
    assert TxSequenceId(7, 9) == TxSequenceId(7, 9)


def test_reading_stops_at_the_header() -> None:
    reader = Reader(header(0) + b"next", 0, 24)
    TransactionHeader.decode(reader)
    assert reader.offset == 20
