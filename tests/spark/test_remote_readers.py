"""Queues read by MS-MQRR or MS-MQQP, with calls in Spark's order: each message is read once and removed once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

import pyarrow as pa
import pytest

import postroad
from postroad.describe.received import ReceivedMessage
from postroad.errors import (
    InvalidArgument,
    MessagesGone,
    QueueNotFound,
    RpcUnavailable,
    SharingViolation,
)
from postroad.remote_read.server import RemoteReadServer
from postroad.spark.data_source import MessageSource
from postroad.spark.options import read_options
from postroad.spark.remote import (
    RemoteBatchReader,
    RemoteOffset,
    RemoteQueue,
    RemoteStreamReader,
    Seen,
    SeenMessages,
    shared,
)
from tests.remote.station import ORDERS, PASSWORD, USER, Station, station
from tests.spark.driver import Query, words

HOST = "127.0.80.1"
OTHERS = r"private$\others"


@pytest.fixture
def alpha() -> Iterator[Station]:
    with station(host=HOST) as running:
        yield running


def options(server: Station, **given: object) -> dict[str, str]:
    host, port = server.address
    return {"rpc": f"{host}:{port}", "queue": ORDERS, "timeout": "10", **words(given)}


def batch_reader(given: dict[str, str]) -> RemoteBatchReader:
    source = MessageSource(given)
    made = source.reader(source.schema())
    assert isinstance(made, RemoteBatchReader)
    return made


def query(server: Station, **given: object) -> Query:
    made = Query(options(server, mode="consume", **given))
    made.start()
    return made


def table(made: RemoteBatchReader) -> pa.Table:
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({"label": []})


def labels(made: RemoteBatchReader) -> list[str]:
    found: list[str] = table(made).column("label").to_pylist()
    return found


def numbered(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


# A batch


def test_a_row_equals_that_of_the_http_api_as_far_as_the_protocol_tells(alpha: Station) -> None:
    alpha.send("first", priority=5, app_tag=7, body_type=8)
    (row,) = table(batch_reader(options(alpha, packet=True))).to_pylist()
    assert (row["label"], row["priority"], row["app_tag"], row["delivery"]) == ("first", 5, 7, "recoverable")
    assert row["lookup_id"] == (7 - 5) << 56 | row["arrival"]
    assert (row["body"], row["aborts"], row["decode_error"]) == (b"first", None, None)
    assert b"LIOR" in row["packet"][:8]
    assert abs((row["arrived_at"] - datetime.now(UTC)).total_seconds()) < 600


def test_only_the_columns_that_are_asked_for(alpha: Station) -> None:
    alpha.send("a")
    assert table(batch_reader(options(alpha, columns="label,arrival"))).column_names == ["label", "arrival"]


def test_an_empty_queue_has_no_rows(alpha: Station) -> None:
    assert labels(batch_reader(options(alpha))) == []


def test_parts_cover_every_priority_without_gap_or_overlap(alpha: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.remote.LEAST_MESSAGES", 1)
    for number in range(64):
        alpha.send(str(number), priority=number % 8)
    reader = batch_reader(options(alpha, partitions=6))
    assert len(reader.partitions()) == 6
    assert labels(reader) == alpha.labels()
    alpha.send("later", priority=7)
    assert len(alpha.labels()) == 65, "peek keeps them all"


def test_parts_of_one_priority_are_nearly_equal(alpha: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.remote.LEAST_MESSAGES", 1)
    alpha.send(*numbered(40))
    reader = batch_reader(options(alpha, partitions=4))
    assert [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()] == [10, 10, 10, 10]


def test_parts_where_each_priority_came_at_a_time_of_its_own(alpha: Station) -> None:
    alpha.send(*numbered(1500))
    alpha.send(*numbered(1500, 1500), priority=6)
    reader = batch_reader(options(alpha, partitions=3))
    sizes = [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]
    assert (sum(sizes), len(sizes)) == (3000, 3)
    assert min(sizes) > 300


def test_a_part_whose_first_message_was_taken_has_all_the_others(
    alpha: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.spark.remote.LEAST_MESSAGES", 1)
    alpha.send(*numbered(10))
    reader = batch_reader(options(alpha, partitions=2))
    parts = reader.partitions()
    with postroad.remote(HOST, port=alpha.address[1]) as server:
        server.queue(ORDERS).receive_by_id(parts[1].begin)  # type: ignore[attr-defined]
    found = [text for part in parts for batch in reader.read(part) for text in batch.column("label").to_pylist()]
    assert found == [*numbered(5), *numbered(4, 6)]


def test_a_walk_finds_every_message_where_ids_are_dense_and_where_they_are_not(
    alpha: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha.run(alpha.manager.create_queue(OTHERS))
    guesses: list[int] = []
    guessed = RemoteQueue._guessed

    def count(queue: RemoteQueue, tried: range, bodies: bool = True) -> list[ReceivedMessage]:
        guesses.append(len(tried))
        return guessed(queue, tried, bodies)

    monkeypatch.setattr(RemoteQueue, "_guessed", count)
    random = Random(5)
    for priority in (3, 6):
        alpha.send(*numbered(200), priority=priority)
        for number in range(30):  # most of these ids belong to another queue
            alpha.send(*("other" for _ in range(random.randrange(6))), queue=OTHERS)
            alpha.send(f"sparse {number}", priority=priority)
        alpha.send(*("other" for _ in range(300)), queue=OTHERS)
        alpha.send(*numbered(70), priority=priority)
    made = read_options(options(alpha))
    assert made.rpc is not None
    queue = RemoteQueue(made.place, made.rpc)
    try:
        found = [message for page in queue.walk() for message in page]
        assert [message.label for message in found] == alpha.labels()
        assert sum(guesses) < 2 * len(found), "few guesses are wrong"
        assert max(guesses) > 50, "most messages are looked at together"
        begin, end = found[150].lookup_id, found[400].lookup_id
        between = [message.lookup_id for page in queue.walk(begin, end) for message in page]
        assert between == [message.lookup_id for message in found[151:400]]
    finally:
        queue.close()


def test_large_messages_come_in_batches_of_bounded_size(alpha: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.reading.BATCH_BYTES", 1 << 20)
    alpha.send(*numbered(6), extension=b"x" * 400_000)
    reader = batch_reader(options(alpha, packet=True))
    sizes = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]
    assert sum(sizes) == 6
    assert len(sizes) > 1


# A stream


def test_messages_are_read_once_and_removed_when_their_batch_is_done(alpha: Station) -> None:
    alpha.send("a", "b")
    stream = query(alpha)
    assert stream.batch() == ["a", "b"]
    assert alpha.labels() == ["a", "b"], "the batch may yet be run again"
    alpha.send("c", priority=7)
    assert stream.batch() == ["c"]
    assert alpha.labels() == ["c"]
    assert stream.batch() is None
    assert alpha.count() == 0, "the tail goes without a further batch"
    assert stream.offset()["gone"] == 0
    stream.reader.stop()
    alpha.wait_until("readers")


def test_batches_have_the_given_size_and_are_divided(alpha: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.remote.LEAST_MESSAGES", 2)
    alpha.send(*numbered(200))
    stream = query(alpha, maxMessagesPerBatch=150, partitions=3)
    assert stream.construct()
    assert len(stream.planned()) == 3
    assert [stream.batch() for _ in range(3)] == [numbered(150), numbered(50, 150), None]
    assert alpha.count() == 0


def test_available_now_ends_with_the_messages_at_its_start(alpha: Station) -> None:
    alpha.send("a", "b", "c")
    stream = query(alpha, maxMessagesPerBatch=2)
    stream.start(available_now=True)
    assert stream.batch() == ["a", "b"]
    alpha.send("late", priority=7)
    assert stream.batch() == ["c"]
    assert stream.batch() is None
    assert alpha.labels() == ["late"]
    stream.start(available_now=True)
    assert stream.batch() == ["late"]


def test_a_batch_that_is_run_again_is_the_same_batch(alpha: Station) -> None:
    alpha.send("a", "b")
    stream = query(alpha)
    assert stream.construct()
    alpha.send("first", priority=7)
    stream.given = options(alpha, mode="consume", partitions=1)
    stream.start(available_now=True)
    assert [stream.batch() for _ in range(3)] == [["a", "b"], ["first"], None]
    assert alpha.count() == 0


def test_a_crash_after_the_end_of_a_batch_removes_it_at_the_next_start(alpha: Station) -> None:
    alpha.send("a", "b")
    stream = query(alpha)
    assert stream.batch() == ["a", "b"]
    stream.start(available_now=True)
    assert stream.batch() is None
    assert alpha.count() == 0


def test_an_interrupted_removal_is_finished_and_takes_nothing_else(alpha: Station) -> None:
    alpha.send("a", "b", "c", "d")
    stream = query(alpha, maxMessagesPerBatch=3)
    assert stream.batch() == ["a", "b", "c"]
    with postroad.remote(HOST, port=alpha.address[1]) as server:
        assert server.queue(ORDERS).receive(0).label == "a"  # as the process had done before it was killed
    stream.start()
    assert stream.batch() == ["d"]
    assert alpha.labels() == ["d"]
    assert stream.offset()["gone"] == 1


def test_a_message_with_a_lookup_id_that_was_given_before_stays(alpha: Station) -> None:
    alpha.send("a")
    place = read_options(options(alpha))
    assert place.rpc is not None
    queue = RemoteQueue(place.place, place.rpc)
    ((message,),) = queue.walk()
    other = Seen(message.lookup_id, Seen.of(message).check ^ 1)
    assert queue.remove([other]) == 1
    assert list(queue.peek([other])) == []
    assert alpha.labels() == ["a"]
    assert queue.remove([Seen.of(message)]) == 0
    assert queue.remove([Seen.of(message)]) == 1
    assert alpha.count() == 0
    queue.close()


def test_a_planned_message_that_others_took_is_reported_with_counts(alpha: Station) -> None:
    alpha.send("a", "b", "c")
    stream = query(alpha)
    assert stream.construct()
    with postroad.remote(HOST, port=alpha.address[1]) as server:
        server.queue(ORDERS).receive(0)
    with pytest.raises(MessagesGone, match=r"only 2 of the batch's 3 messages are left.*failOnDataLoss"):
        stream.batch()
    stream.given = options(alpha, mode="consume", failOnDataLoss=False)
    stream.start()
    assert stream.batch() == ["b", "c"]
    assert stream.batch() is None
    assert alpha.count() == 0


@pytest.mark.parametrize("delete", [True, False])
def test_a_message_that_somebody_is_receiving_when_it_is_to_be_removed_is_waited_for(
    alpha: Station, delete: bool
) -> None:
    alpha.send("a", "b")
    stream = query(alpha)
    assert stream.batch() == ["a", "b"]
    with postroad.remote(HOST, port=alpha.address[1]) as server:
        orders = server.queue(ORDERS)
        locked = orders.lock()
        timer = threading.Timer(0.5, lambda: orders.settle(locked, delete=delete))
        timer.start()
        alpha.send("c")
        assert stream.batch() == ["c"], "what was read is not read again"
        timer.join()
    assert stream.offset()["gone"] == int(delete)
    assert stream.batch() is None
    assert alpha.count() == 0


def test_a_message_that_somebody_keeps_ends_the_stream_with_a_sentence(alpha: Station) -> None:
    alpha.send("a", "b")
    stream = query(alpha, timeout="0.2")
    assert stream.batch() == ["a", "b"]
    with postroad.remote(HOST, port=alpha.address[1]) as server:
        server.queue(ORDERS).lock()
        with pytest.raises(SharingViolation, match="another reader still has the message"):
            stream.batch()
    alpha.wait_until("unacknowledged")
    stream.given = options(alpha, mode="consume")
    stream.start(available_now=True)
    assert stream.batch() is None
    assert alpha.count() == 0


def test_messages_that_others_hold_are_read_once_they_are_given_back(alpha: Station) -> None:
    alpha.send("a", "b")
    stream = query(alpha)
    with postroad.remote(HOST, port=alpha.address[1]) as server:
        orders = server.queue(ORDERS)
        locked = orders.lock()
        assert stream.batch() == ["b"]
        orders.settle(locked, delete=False)
    assert stream.batch() == ["a"], "though its lookup id is below one that was read"


def test_a_server_that_restarts_is_waited_for(alpha: Station) -> None:
    alpha.send("a", "b")
    stream = query(alpha)
    assert stream.batch() == ["a", "b"]
    host, port = alpha.address
    alpha.run(alpha.server.stop())

    def start_again() -> None:
        async def start() -> None:
            alpha.server = RemoteReadServer(alpha.manager, host, port)
            await alpha.server.start()

        alpha.run(start())

    timer = threading.Timer(0.5, start_again)
    timer.start()
    alpha.send("c")
    assert stream.batch() == ["c"]
    timer.join()
    assert alpha.labels() == ["c"]


# Who reads, and what cannot be read


def test_a_user_and_a_password() -> None:
    with station(host="127.0.80.2", authenticate=True) as server:
        server.send("a")
        assert labels(batch_reader(options(server, user=USER, password=PASSWORD))) == ["a"]
        stream = query(server, user=USER, password=PASSWORD)
        assert [stream.batch(), stream.batch(), server.count()] == [["a"], None, 0]
        with pytest.raises(postroad.errors.PostroadError):
            batch_reader(options(server, user=USER, password="wrong", timeout="0.1")).partitions()


def test_no_host_is_one_clear_sentence() -> None:
    given = {"queue": ORDERS, "timeout": "0.1"}
    with pytest.raises(RpcUnavailable, match=r"nobody\.invalid cannot be found"):
        batch_reader({"rpc": "nobody.invalid", **given}).partitions()
    source = MessageSource({"rpc": "127.0.80.3:1", "mode": "consume", **given})
    with pytest.raises(RpcUnavailable, match=r"cannot connect to 127\.0\.80\.3:1"):
        source.streamReader(source.schema()).initialOffset()


def test_no_queue_is_one_clear_sentence(alpha: Station) -> None:
    with pytest.raises(QueueNotFound, match=r"cannot open .*nowhere: there is no such queue on the server"):
        batch_reader(options(alpha, queue=r"private$\nowhere")).partitions()


def test_a_stream_that_peeks_and_a_batch_that_consumes_are_refused(alpha: Station) -> None:
    source = MessageSource(options(alpha))
    with pytest.raises(InvalidArgument, match="mode: must be consume for a stream from `rpc`"):
        source.streamReader(source.schema())
    source = MessageSource(options(alpha, mode="consume"))
    with pytest.raises(InvalidArgument, match="availableNow"):
        source.reader(source.schema())


# Offsets


def test_an_offset_is_the_batch_message_by_message() -> None:
    batch = [Seen(7 - priority << 56 | 10 * priority + each, each) for priority in (7, 3, 0) for each in range(4)]
    offset = RemoteOffset.read(RemoteOffset.of(batch, 3, 2).json())
    assert (offset.batch(), offset.messages, offset.partitions, offset.gone) == (batch, 12, 3, 2)
    assert RemoteOffset.first().batch() == []
    assert shared(batch, 5) == [batch[0:2], batch[2:4], batch[4:7], batch[7:9], batch[9:12]]


def test_a_checkpoint_of_a_large_batch_is_small() -> None:
    batch = [Seen(4 << 56 | 3 * each, each * 2_654_435_761 % (1 << 32)) for each in range(10_000)]
    assert len(str(RemoteOffset.of(batch, 4, 0).json())) < 60_000


def test_an_offset_has_a_version_and_keeps_unknown_fields() -> None:
    value = RemoteOffset.first().json()
    assert value["version"] == 2
    assert RemoteOffset.read(value | {"colour": "blue"}).json() == value | {"colour": "blue"}
    first = {name: each for name, each in value.items() if name != "version"}
    assert RemoteOffset.read(first) == RemoteOffset.first(), "the first version has no number"
    with pytest.raises(InvalidArgument, match="checkpoint: has offsets of version 3"):
        RemoteOffset.read(value | {"version": 3})


@pytest.mark.parametrize("wrong", [{"arrival": 1}, {**RemoteOffset.first().json(), "checks": "?"}])
def test_a_checkpoint_of_something_else_is_refused(wrong: dict[str, object]) -> None:
    reader = MessageSource({"rpc": HOST, "queue": ORDERS, "mode": "consume"})
    made = reader.streamReader(reader.schema())
    assert isinstance(made, RemoteStreamReader)
    with pytest.raises(InvalidArgument, match="checkpoint"):
        made.partitions({}, wrong)


def test_a_task_knows_its_messages(alpha: Station) -> None:
    alpha.send("a")
    stream = query(alpha)
    assert stream.construct()
    (part,) = stream.planned()
    assert isinstance(part, SeenMessages)
    assert len(part.messages) == 1
