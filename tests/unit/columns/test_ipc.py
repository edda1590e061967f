"""Arrow streams of strangers. What pyarrow would believe is refused before it reads a value."""

from __future__ import annotations

import random
from contextlib import suppress

import pyarrow as pa
import pytest

from postroad.client.arrow import batches
from postroad.columns.ipc import MAX_BATCH, MAX_ROWS, read_batches
from postroad.columns.sending import read_messages
from postroad.errors import InvalidMessage, RemoteProtocolError
from postroad.message import Message
from tests.arrow_samples import BODIES, HOSTILE, MOST, changed, honest, int64, renamed, stream


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_stream_is_an_invalid_message(name: str) -> None:
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidMessage, match=r"body: must|column \w+: must"):
        read_messages(HOSTILE[name](), MOST)
    assert pa.total_allocated_bytes() - before < 1 << 20


ONLY_FOR_MESSAGES = {"too many rows", "too many batches"}


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - ONLY_FOR_MESSAGES))
def test_a_hostile_manager_is_an_error_of_ours(name: str) -> None:
    whole = HOSTILE[name]()
    for pieces in ([whole], [whole[at : at + 100] for at in range(0, len(whole), 100)]):
        with pytest.raises(RemoteProtocolError, match=r"must"):
            list(batches(pieces))


def test_memory_grows_with_received_bytes_and_not_with_promised_ones() -> None:
    table = pa.table({"body": ["x" * 3000]})
    for most in (MAX_BATCH, 1 << 60, -8):
        with pytest.raises(RemoteProtocolError, match="must"):
            list(batches([changed(table, int64(3008), int64(most))]))


def test_buffers_that_are_used_twice_are_refused() -> None:
    """Twenty columns that share a million bytes would become twenty million in Python."""
    table = pa.table({"body": [b"x" * 1000], "extension": [b"y" * 1000]})
    assert read_messages(stream(table), MOST).messages[0].extension == b"y" * 1000
    doubled = changed(table, int64(1016) + int64(1000), int64(8) + int64(1000))
    with pytest.raises(InvalidMessage, match="one behind the other"):
        read_messages(doubled, MOST)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_an_honest_stream_reads_the_same_in_any_pieces(size: int) -> None:
    whole = honest()
    found = list(batches(whole[at : at + size] for at in range(0, len(whole), size)))
    assert pa.Table.from_batches(found).to_pydict() == {"body": BODIES, "priority": [1, 2, 3]}


def test_a_valid_stream_may_have_metadata_of_its_writer() -> None:
    table = pa.table({"body": BODIES}).replace_schema_metadata({"pandas": "{}" * 1000})
    assert [each.body for each in read_messages(stream(table), MOST).messages] == BODIES
    assert read_messages(renamed("ack", pa.array([["receive"], None])), MOST).messages[0] == Message(ack=2)
    without_end = stream(table)[:-8]
    assert len(read_messages(without_end, MOST).messages) == 3
    sliced = pa.table({"body": pa.array(["skipped", *BODIES])}).slice(1)
    assert [each.body for each in read_messages(stream(sliced), MOST).messages] == BODIES


def test_the_largest_batch_of_a_manager_is_far_below_the_limits() -> None:
    from postroad.columns.ranges import BATCH_BYTES, MOST_ROWS

    assert MOST_ROWS * 4 < MAX_ROWS
    assert BATCH_BYTES * 16 < MAX_BATCH


def test_changed_streams_are_read_or_refused() -> None:
    chance = random.Random(11)
    samples = [honest(), *(make() for name, make in HOSTILE.items() if not name.startswith("compressed"))]
    for _ in range(3000):
        sample = bytearray(chance.choice(samples)[:4000])
        for _ in range(chance.randrange(1, 5) if sample else 0):
            sample[chance.randrange(len(sample))] = chance.choice((0, 1, 8, 0x7F, 0x80, 0xFF))
        try:
            found = list(read_batches([bytes(sample)], most_rows=MOST))
        except RemoteProtocolError:
            continue
        assert sum(each.num_rows for each in found[1:]) <= MOST
        with suppress(ValueError, OverflowError):  # moments beyond the calendar
            for each in found[1:]:
                each.to_pydict()


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.startswith("compressed")])
def test_a_compression_is_refused_by_the_header_alone(name: str) -> None:
    whole = HOSTILE[name]()
    first = whole[: len(pa.ipc.open_stream(whole).schema.serialize()) + 400]  # the header of the batch, and no body
    with pytest.raises(RemoteProtocolError, match="compress"):
        list(batches([first]))
