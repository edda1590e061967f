"""What a program can do with queues and messages. It is the same in every form of the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

import postroad
from postroad import errors
from postroad.client.payloads import PAGE_MESSAGES
from postroad.names import MessageId, PathName, parse_format_name
from tests.commands import pasted
from tests.faces import FACES, opened

GUID = UUID("8c0a5a60-1b7e-4f7c-9c55-0d2f8e0d3c11")
PEER = r"DIRECT=OS:beta\private$\orders"


@pytest.fixture(params=FACES)
def qm(request: pytest.FixtureRequest) -> Iterator[postroad.QueueManager]:
    with opened(request.param) as manager:
        yield manager


@pytest.fixture
def queue(qm: postroad.QueueManager) -> postroad.Queue:
    return qm.create_queue(r"private$\orders")


def texts(queue: postroad.Queue) -> list[str | None]:
    return [message.text for message in queue.messages()]


# Queues


def test_a_manager_says_who_it_is(qm: postroad.QueueManager) -> None:
    info = qm.info()
    assert (info.name, info.version, info.transactions) == ("alpha", postroad.__version__, 0)
    assert UUID(info.id)


def test_a_queue_is_created_as_it_was_asked_for(qm: postroad.QueueManager) -> None:
    queue = qm.create_queue(
        r"private$\full",
        transactional=True,
        label="Orders",
        journal=True,
        quota_kb=100,
        journal_quota_kb=50,
        authenticate=True,
        privacy="body",
        abort_limit=3,
    )
    info = queue.info()
    assert info.path == r"private$\full"
    assert (info.transactional, info.label, info.journal) == (True, "Orders", True)
    assert (info.quota_kb, info.journal_quota_kb, info.abort_limit) == (100, 50, 3)
    assert (info.authenticate, info.privacy) == (True, "body")
    assert r"private$\full" in {each.path for each in qm.queues()}


def test_a_queue_that_exists_is_refused_or_taken_as_it_is(qm: postroad.QueueManager) -> None:
    qm.create_queue(r"private$\orders").send(b"kept")
    with pytest.raises(errors.QueueExists):
        qm.create_queue(r"private$\orders")
    assert texts(qm.create_queue(r"private$\orders", exist_ok=True)) == ["kept"]
    with pytest.raises(errors.QueueExists, match="not transactional"):
        qm.create_queue(r"private$\orders", exist_ok=True, transactional=True)


def test_a_queue_goes_with_its_messages(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    queue.send(b"x")
    queue.delete()
    for gone in (queue.info, queue.purge, queue.delete, lambda: queue.send(b"x"), lambda: queue.receive(0)):
        with pytest.raises(errors.QueueNotFound, match="orders"):
            gone()
    qm.create_queue(r"private$\orders")
    assert texts(queue) == []
    qm.delete_queue(queue.name)
    with pytest.raises(errors.QueueNotFound):
        queue.info()


def test_attributes_of_a_queue_change_but_not_its_kind(queue: postroad.Queue) -> None:
    assert queue.change(label="New", quota_kb=10).quota_kb == 10
    assert (queue.info().label, queue.change(quota_kb=None).quota_kb) == ("New", None)
    with pytest.raises(errors.InvalidArgument, match="transactional"):
        queue.change(transactional=True)
    with pytest.raises(errors.InvalidArgument, match="colour"):
        queue.change(colour="red")  # type: ignore[call-arg]
    with pytest.raises(errors.InvalidArgument, match="privacy"):
        queue.change(privacy="some")  # type: ignore[arg-type]


def test_a_queue_has_many_names(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    queue.send(b"x")
    for name in (
        r".\private$\orders",
        r"ALPHA\private$\Orders",
        r"DIRECT=OS:alpha\private$\orders",
        queue.info().format_name,
        PathName.parse(r"private$\orders"),
        parse_format_name(queue.info().format_name),
    ):
        assert qm.queue(name).peek(0).body == b"x"


def test_an_outgoing_queue_pauses_and_resumes(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    outgoing = qm.queue(PEER)
    outgoing.send(b"on its way")
    assert outgoing.pause().state == "ONHOLD"
    assert outgoing.resume().state == "INACTIVE"
    assert outgoing.info().type == "outgoing"
    with pytest.raises(errors.UnsupportedFormatNameOperation):
        queue.pause()


@pytest.mark.parametrize(
    ("host", "queue"),
    [
        ("beta", "x'|touch${IFS}harm|'"),
        ("beta", "$(touch${IFS}harm)"),
        ("beta", "`touch${IFS}harm`"),
        ("$(touch${IFS}harm)", "orders"),
        ("-user", "orders"),
    ],
)
def test_the_command_that_an_error_names_does_nothing_else_when_it_is_pasted(
    tmp_path: Path, host: str, queue: str
) -> None:
    with postroad.open(":memory:") as manager, pytest.raises(errors.QueueNotFound) as caught:
        manager.queue(rf"DIRECT=OS:{host}\private$\{queue}").receive(0)
    command = str(caught.value).partition(" or with `")[2].removesuffix("`")
    (words,) = pasted(command, tmp_path)
    assert [each for each in words if each != "--"] == ["remote", "receive", host, rf"private$\{queue}"]
    assert ("--" in words) is host.startswith("-")
    assert list(tmp_path.iterdir()) == []


def test_messages_on_their_way_are_seen_and_rescued_and_never_received(
    qm: postroad.QueueManager, queue: postroad.Queue
) -> None:
    outgoing = qm.queue(PEER)
    outgoing.send(["first", "second"])
    (first, _) = outgoing.messages()
    transaction = qm.begin()
    for take in (
        lambda: outgoing.receive(0),
        lambda: outgoing.receive(0, transaction),
        lambda: outgoing.receive_by_id(first.lookup_id),
        lambda: outgoing.lock(1, 0),
        outgoing.open,
        lambda: qm.queue(r"beta\private$\orders").receive(0),
        lambda: qm.queue(r"DIRECT=OS:beta\private$\never-sent-to").receive(0),
    ):
        with pytest.raises(errors.QueueNotFound, match=r"on another machine.*postroad remote receive beta 'private\$"):
            take()
    transaction.abort()
    assert outgoing.peek(0).text == "first"
    assert outgoing.peek_by_id(first.lookup_id).text == "first"
    assert qm.move(PEER, queue.name, [first]) == [first.lookup_id]
    assert texts(outgoing) == ["second"]
    assert outgoing.purge() == 1


# Sending


def test_one_message_has_an_id_and_several_have_a_list(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    one = queue.send(postroad.Message("first", label="L"))
    several = queue.send([b"second", "third"])
    alone = queue.send(["fourth"])
    more = queue.send(str(number) for number in range(2))
    by_name = qm.send(queue.name, "last")
    found = list(queue.messages())
    assert [str(message.id) for message in found] == [one, *several, *alone, *more, by_name]
    assert [message.text for message in found] == ["first", "second", "third", "fourth", "0", "1", "last"]
    assert found[0].label == "L"
    assert queue.send([]) == []


@pytest.mark.parametrize("body", [b"\xff\0bytes", bytearray(b"\xff\0bytes"), memoryview(b"\xff\0bytes")])
def test_a_body_of_bytes_arrives_byte_for_byte(queue: postroad.Queue, body: bytes) -> None:
    queue.send(body)
    assert queue.receive(0).body == b"\xff\0bytes"


def test_what_is_no_message_is_refused(queue: postroad.Queue) -> None:
    for wrong in (None, 7, [b"good", 7]):
        with pytest.raises(errors.InvalidArgument, match="message"):
            queue.send(wrong)  # type: ignore[arg-type]
    assert texts(queue) == []


def test_every_property_of_a_message_arrives(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    replies = qm.create_queue(r"private$\replies")
    queue.send(
        postroad.Message(
            "text",
            label="label",
            priority=7,
            recoverable=True,
            body_type=8,
            app_tag=99,
            correlation_id=MessageId(GUID, 5),
            response_queue=r"private$\replies",
            admin_queue=parse_format_name(r"DIRECT=OS:alpha\private$\replies"),
            ack=("reach-queue", "receive"),
            time_to_reach_queue=100,
            time_to_be_received=200,
            dead_letter_queue=r"private$\replies",
            trace=GUID,
            extension=b"\1\2",
            connector_type=GUID,
        )
    )
    message = queue.receive(0)
    assert (message.text, message.label, message.priority, message.delivery) == ("text", "label", 7, "recoverable")
    assert (message.body_type, message.body, message.app_tag) == (8, "text".encode("utf-16-le"), 99)
    assert message.correlation_id == str(MessageId(GUID, 5))
    assert message.response_queue == replies.info().format_name
    assert message.admin_queue == r"DIRECT=OS:alpha\private$\replies"
    assert (message.extension, message.connector_type) == (b"\1\2", str(GUID))
    assert (message.view.time_to_reach_queue, message.view.time_to_be_received) == (100, 200)
    assert (message.view.tracing, message.dead_letter_queue) == (True, r".\private$\replies")
    assert [ack.class_name for ack in replies.receive_many(5, 5)]


def test_the_higher_priority_comes_first(queue: postroad.Queue) -> None:
    queue.send([postroad.Message("low", priority=0), postroad.Message("high", priority=7), "between"])
    assert texts(queue) == ["high", "between", "low"]


def test_a_batch_is_sent_as_a_whole_or_not_at_all(queue: postroad.Queue) -> None:
    with pytest.raises(errors.InvalidMessage, match="priority"):
        queue.send(["good", postroad.Message("bad", priority=8)])
    assert texts(queue) == []


def test_a_message_of_more_than_four_mebibytes_is_refused(queue: postroad.Queue) -> None:
    with pytest.raises(errors.MessageTooLarge):
        queue.send(bytes(4 << 20))
    queue.send(bytes(4_000_000))
    assert queue.receive(0).body == bytes(4_000_000)


def test_a_list_of_names_gets_a_copy_each(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    other = qm.create_queue(r"private$\other")
    names = r"DIRECT=OS:alpha\private$\orders,DIRECT=OS:alpha\private$\other"
    assert len(qm.send(names, ["to all"])) == 2
    assert (texts(queue), texts(other)) == (["to all"], ["to all"])


def test_a_full_queue_says_how_full_it_is(queue: postroad.Queue) -> None:
    queue.change(quota_kb=1)
    with pytest.raises(errors.QuotaExceeded, match=r"private\$\\orders is full") as refusal:
        queue.send(bytes(2000))
    assert refusal.value.limit_bytes == 1024
    assert refusal.value.current_bytes == 0
    assert refusal.value.setting == r"quota_kb of private$\orders"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", errors.IllegalPathName),
        ("no queue", errors.IllegalPathName),
        ("PRIVATE=nonsense", errors.IllegalFormatName),
        (r"private$\missing", errors.QueueNotFound),
        (";deadletter", errors.UnsupportedFormatNameOperation),
    ],
)
def test_names_that_cannot_be_sent_to(qm: postroad.QueueManager, name: str, fault: type[Exception]) -> None:
    with pytest.raises(fault) as refusal:
        qm.send(name, b"x")
    assert type(refusal.value) is fault


# Receiving


def test_receive_takes_and_peek_leaves(queue: postroad.Queue) -> None:
    queue.send(["a", "b", "c", "d"])
    assert queue.peek(0).text == "a"
    assert [message.text for message in queue.peek_many(2, 0)] == ["a", "b"]
    assert queue.receive(0).text == "a"
    assert [message.text for message in queue.receive_many(10, 0)] == ["b", "c", "d"]
    assert queue.info().messages == 0


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_no_message_in_time_is_an_error(queue: postroad.Queue, timeout: float) -> None:
    for read in (queue.receive, queue.peek, lambda wait: queue.receive_many(2, wait), lambda wait: queue.lock(1, wait)):
        with pytest.raises(errors.NoMessage):
            read(timeout)


def test_arguments_out_of_range_are_refused(queue: postroad.Queue) -> None:
    for wrong, name in (
        (lambda: queue.receive(-1), "timeout"),
        (lambda: queue.receive_many(0, 0), "count"),
        (lambda: queue.peek_by_id(1, "sideways"), "place"),  # type: ignore[arg-type]
    ):
        with pytest.raises(errors.InvalidArgument, match=name):
            wrong()


def test_messages_are_found_by_their_lookup_id(queue: postroad.Queue) -> None:
    queue.send(["a", "b", "c"])
    a, b, c = (message.lookup_id for message in queue.messages())
    assert queue.peek_by_id(b).text == "b"
    assert queue.peek_by_id(b, "next").text == "c"
    assert queue.peek_by_id(b, "previous").text == "a"
    assert queue.peek_by_id(0, "first").text == "a"
    assert queue.peek_by_id(0, "last").text == "c"
    assert queue.receive_by_id(b).text == "b"
    with pytest.raises(errors.MessageNotFound):
        queue.peek_by_id(b)
    assert queue.receive_by_id(a, "next").lookup_id == c
    assert texts(queue) == ["a"]


def test_an_iteration_goes_through_pages_and_takes_nothing(queue: postroad.Queue) -> None:
    count = 2 * PAGE_MESSAGES + 1
    queue.send([str(number) for number in range(count)])
    found = list(queue.messages())
    assert [message.text for message in found] == [str(number) for number in range(count)]
    assert queue.info().messages == count
    assert [message.text for message in queue.messages(after=found[-3].lookup_id)] == [str(count - 2), str(count - 1)]


def test_purge_tells_how_many_went(queue: postroad.Queue) -> None:
    queue.send([postroad.Message(b"x", recoverable=recoverable) for recoverable in (False, True, True)])
    assert queue.purge() == 3
    assert (queue.purge(), texts(queue)) == (0, [])


def test_journals_are_queues(qm: postroad.QueueManager) -> None:
    queue = qm.create_queue(r"private$\kept", journal=True)
    queue.send("copied")
    queue.receive(0)
    assert qm.queue(r"private$\kept;journal").receive(0).text == "copied"


# Rescue


def test_messages_move_one_by_one_or_all(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    other = qm.create_queue(r"private$\other")
    queue.send(["a", "b", "c"])
    first, second, third = queue.messages()
    assert qm.move(queue.name, other.name, [second]) == [second.lookup_id]
    assert (texts(queue), texts(other)) == (["a", "c"], ["b"])
    assert qm.move(queue.name, other.name) == [first.lookup_id, third.lookup_id]
    assert (texts(queue), texts(other)) == ([], ["b", "a", "c"])
    assert qm.move(queue.name, other.name) == []
    with pytest.raises(errors.MessageNotFound):
        qm.move(queue.name, other.name, [first])


def test_packets_come_back_byte_for_byte(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    queue.send([postroad.Message(b"a", label="L"), b"b"])
    packets = [message.packet for message in queue.messages()]
    queue.purge()
    lookup_ids = queue.insert(packets)
    found = list(queue.messages())
    assert [message.packet for message in found] == packets
    assert [message.lookup_id for message in found] == lookup_ids
    with pytest.raises(errors.RemoteProtocolError):
        queue.insert([b"no packet"])


# The end


def test_a_closed_manager_is_of_no_more_use(qm: postroad.QueueManager, queue: postroad.Queue) -> None:
    tx = qm.begin()
    qm.close()
    qm.close()
    assert qm.closed
    for use in (
        qm.info,
        qm.queues,
        qm.begin,
        queue.info,
        lambda: queue.send(b"x"),
        lambda: queue.receive(0),
        tx.commit,
    ):
        with pytest.raises(errors.InvalidHandle, match="closed"):
            use()
