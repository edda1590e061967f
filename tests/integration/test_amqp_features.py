"""What docs/reference/amqp.md promises, each sentence by a client: Proton, or a peer that speaks frame by frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("proton", reason="no AMQP client: pip install postroad[amqp-test]")

from proton import Delivery, Message, byte, int32, symbol, uint, ulong
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Copy, DynamicNodeProperties
from proton.utils import BlockingConnection, LinkDetached, SendException

from postroad.amqp.codec import binary, described, listed
from postroad.amqp.listener import Credentials
from postroad.amqp.performatives import (
    ACCEPTED,
    ATTACH,
    DECLARE,
    DETACH,
    DISCHARGE,
    DISPOSITION,
    FLOW,
    MODIFIED,
    STATE_ACCEPTED,
    TRANSACTIONAL,
    TRANSFER,
    state_transactional,
)
from postroad.security.descriptors import Sid
from postroad.security.users import User
from tests.amqp_door import ORDERS, PATIENCE_S, TX, TX2, AmqpDoor, amqp_door
from tests.amqp_peer import (
    RawPeer,
    attach_receiver,
    attach_sender,
    coordinator,
    data,
    disposition,
    flow,
    sections,
    source,
    target,
    transfer,
)

ADMIN = r"private$\admin"
ANN = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))
QUEUES: dict[str, dict[str, Any]] = {
    ORDERS: {},
    TX: {"transactional": True},
    TX2: {"transactional": True},
    ADMIN: {},
    r"private$\small": {"quota_kb": 1},
}


@pytest.fixture(name="door")
def _door() -> Iterator[AmqpDoor]:
    with amqp_door(queues=QUEUES) as door:
        yield door


@pytest.fixture(name="client")
def _client(door: AmqpDoor) -> Iterator[BlockingConnection]:
    connection = connect(door)
    yield connection
    connection.close()


@pytest.fixture(name="peer")
def _peer(door: AmqpDoor) -> Iterator[RawPeer]:
    with RawPeer(door.dial()) as peer:
        yield peer


def connect(door: AmqpDoor, mechanisms: str = "ANONYMOUS", **options: Any) -> BlockingConnection:
    return BlockingConnection(door.address, timeout=PATIENCE_S, allowed_mechs=mechanisms, **options)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def change(door: AmqpDoor, work: Callable[[], object]) -> None:
    """Does something on the manager's loop."""

    async def run() -> None:
        await door.manager.durably(work)

    door.run(run())


# Who


def test_a_user_logs_in_with_a_password_and_has_the_rights_of_the_access_list(tmp_path: Any) -> None:
    credentials = Credentials({"ann": "secret"}, "the token")
    with amqp_door(credentials=credentials, users=[ANN], audit=tmp_path / "audit.jsonl") as door:
        with pytest.raises(Exception, match=r"no mechanism|Authentication"):
            connect(door)
        for user, password in (("ann", "wrong"), ("bob", "secret"), ("token", "wrong")):
            with pytest.raises(Exception, match="Authentication"):
                connect(door, "PLAIN", user=user, password=password, allow_insecure_mechs=True)
        ann = connect(door, "PLAIN", user="ann", password="secret", allow_insecure_mechs=True)
        ann.create_sender(ORDERS).send(Message(body="from ann"))
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
            ann.create_receiver(ORDERS)
        token = connect(door, "PLAIN", user="token", password="the token", allow_insecure_mechs=True)
        assert token.create_receiver(ORDERS).receive(timeout=PATIENCE_S).body == "from ann"
        [first, *_] = door.listener.service.info().connections
        assert first.user == "ann"
        door.loop.call_soon_threadsafe(door.listener.use, Credentials({"ann": "another"}, "the token"))
        change(door, lambda: door.manager.core.review([], door.manager.clock()))
        until(lambda: all(each.user != "ann" for each in door.listener.service.info().connections))
        token.close()
        events = (tmp_path / "audit.jsonl").read_text()
        assert events.count('"login refused"') == 3
        assert '"door": "amqp"' in events
        assert '"access refused"' in events


def test_passwords_are_offered_only_where_nobody_reads_them(door: AmqpDoor) -> None:
    mechanisms = door.listener.door.mechanisms
    assert mechanisms("10.1.2.3", secure=False, certificate=False) == ("ANONYMOUS",)
    assert mechanisms("10.1.2.3", secure=True, certificate=True) == ("EXTERNAL", "PLAIN", "ANONYMOUS")


# Addresses and links


def test_a_public_queue_is_its_name_and_a_journal_can_be_read(door: AmqpDoor, client: BlockingConnection) -> None:
    door.run(door.manager.create_queue(r".\shop", identifier=UUID(int=7), journal=True))
    client.create_sender("shop").send(Message(body="one", durable=True))
    receiver = client.create_receiver("shop")
    assert receiver.receive(timeout=PATIENCE_S).body == "one"
    receiver.accept()
    receiver.close()
    assert client.create_receiver("shop;journal").receive(timeout=PATIENCE_S).body == "one"


def test_any_format_name_takes_messages(door: AmqpDoor, client: BlockingConnection) -> None:
    own = door.manager.queue(ORDERS).format_name
    for name in (own, f"DIRECT=OS:alpha\\{ORDERS}", r"alpha\private$\orders"):
        client.create_sender(name).send(Message(body=name))
    assert [each.text for each in door.messages()] == [own, f"DIRECT=OS:alpha\\{ORDERS}", r"alpha\private$\orders"]
    client.create_sender(r"DIRECT=TCP:10.9.8.7\private$\far").send(Message(body="far", durable=True))
    assert door.manager.queue(r"DIRECT=TCP:10.9.8.7\private$\far").messages == 1


def test_the_address_comes_back_unchanged(peer: RawPeer) -> None:
    for handle, address in enumerate(("private$/Orders", r".\private$\orders")):
        peer.write(attach_receiver(source(address), handle, f"r{handle}"))
        assert peer.until(ATTACH)[5].value[0] == address
        peer.write(attach_sender(target(address), handle + 4, f"s{handle}"))
        assert peer.until(ATTACH)[6].value[0] == address


def test_a_deleted_queue_detaches_its_links(door: AmqpDoor, peer: RawPeer) -> None:
    peer.write(attach_receiver(source(ORDERS)) + flow(1) + attach_sender(target(ORDERS), 1))
    peer.until(FLOW)
    door.run(door.manager.delete_queue(ORDERS))
    assert [peer.until(DETACH)[2].value[0] for _ in range(2)] == ["amqp:resource-deleted"] * 2


def test_a_revoked_right_detaches_its_links_and_what_they_hold_goes_back(tmp_path: Any) -> None:
    with amqp_door(credentials=Credentials({"ann": "secret"}), users=[ANN]) as door:
        acl = f"O:BAD:(A;;0x27;;;{ANN.sid})"
        door.run(door.manager.set_queue(ORDERS, acl=acl))
        door.send(b"one")
        ann = connect(door, "PLAIN", user="ann", password="secret", allow_insecure_mechs=True)
        receiver, sender = ann.create_receiver(ORDERS, credit=1), ann.create_sender(ORDERS)
        receiver.receive(timeout=PATIENCE_S)
        door.run(door.manager.set_queue(ORDERS, acl="O:BAD:(A;;0x27;;;BA)"))
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
            receiver.receive(timeout=PATIENCE_S)
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
            sender.send(Message(body="x"))
        assert door.bodies() == [b"one"]


# Sending


def test_a_full_queue_rejects_and_then_gives_no_more_credit(door: AmqpDoor, peer: RawPeer) -> None:
    peer.write(attach_sender(target("private$/small")))
    credit = peer.until(FLOW)[6]
    peer.write(b"".join(transfer(data(b"x" * 600), number) for number in range(credit)))
    outcomes: list[int] = []
    while len(outcomes) < credit:
        role, first, last, settled, state = peer.until(DISPOSITION)[:5]
        assert (role, settled) == (True, True)
        outcomes += [state.descriptor] * ((last or first) - first + 1)
        if state.descriptor != ACCEPTED:
            assert state.value[0].value[0] == "amqp:resource-limit-exceeded"
    assert outcomes.count(ACCEPTED) == 1
    [guest] = door.listener.service.guests
    assert [link.credit for link in guest.engine.links] == [0]
    door.run(door.manager.purge_queue(r"private$\small"))
    assert peer.until(FLOW)[6] == credit  # there is room again


def test_dispositions_leave_in_ranges(door: AmqpDoor, peer: RawPeer) -> None:
    peer.write(attach_sender(target(ORDERS)))
    peer.until(FLOW)
    peer.write(b"".join(transfer(data(b"%d" % number), number) for number in range(200)))
    ranges: list[tuple[int, int]] = []
    while not ranges or ranges[-1][1] < 199:
        fields = peer.until(DISPOSITION)
        ranges.append((fields[1], fields[2]))
    assert len(ranges) < 20
    assert door.bodies() == [b"%d" % number for number in range(200)]


def test_settled_transfers_get_no_answer(door: AmqpDoor, peer: RawPeer) -> None:
    peer.write(attach_sender(target(ORDERS)) + transfer(data(b"0"), 0, settled=True) + transfer(data(b"1"), 1))
    assert peer.until(DISPOSITION)[1:3] == [1, 1]
    assert door.bodies() == [b"0", b"1"]


def test_messages_of_many_frames_travel_both_ways(door: AmqpDoor) -> None:
    with RawPeer(door.dial(), login=False) as peer:
        from postroad.amqp.performatives import BEGIN
        from tests.amqp_peer import LOGIN, begin, opening

        peer.write(LOGIN + opening(frame_size=512) + begin())
        peer.until(BEGIN)
        payload = data(bytes(range(256)) * 20)
        peer.write(attach_sender(target(ORDERS)) + transfer(payload[:1000], more=True))
        for start in range(1000, len(payload), 1000):
            more = start + 1000 < len(payload)
            peer.write(transfer(payload[start : start + 1000], first=False, more=more))
        peer.until(DISPOSITION)
        assert door.bodies() == [bytes(range(256)) * 20]
        peer.write(attach_receiver(source(ORDERS), 1) + flow(1, 1))
        whole, more = b"", True
        while more:
            _, _, fields, part = peer.frame(TRANSFER)
            assert len(part) <= 512
            whole += part
            more = len(fields) > 5 and fields[5]
        assert sections(whole)[0x75] == bytes(range(256)) * 20


def test_the_window_of_a_session_holds_frames_back(door: AmqpDoor) -> None:
    with RawPeer(door.dial(), login=False) as peer:
        from postroad.amqp.performatives import BEGIN
        from tests.amqp_peer import LOGIN, begin, opening

        door.send(b"1", b"2", b"3")
        peer.write(LOGIN + opening() + begin(window=2))
        peer.until(BEGIN)
        peer.write(attach_receiver(source(ORDERS)) + flow(10, window=2))
        peer.until(TRANSFER)
        peer.until(TRANSFER)
        assert door.bodies() == [b"3"]  # another reader may have it
        peer.write(flow(10, window=2, got=2))
        peer.until(TRANSFER)


# Receiving


def test_tags_of_deliveries_are_text(door: AmqpDoor, peer: RawPeer) -> None:
    """Python's Proton reads the tag of a delivery as UTF-8, and fails if it is none."""
    door.send(*[b"%d" % number for number in range(200)])
    peer.write(attach_receiver(source(ORDERS)) + flow(200))
    tags = [peer.until(TRANSFER)[2].decode("ascii") for _ in range(200)]
    assert len(set(tags)) == 200


def test_rejecting_answers_a_sender_that_asked(door: AmqpDoor, client: BlockingConnection) -> None:
    door.send(b"one", admin_queue=ADMIN, ack="nack-receive")
    receiver = client.create_receiver(ORDERS, credit=1)
    receiver.receive(timeout=PATIENCE_S)
    local = receiver.fetcher.unsettled[0].local
    local.undeliverable = True
    receiver.settle(Delivery.MODIFIED)
    receiver.close()
    assert [each.class_name for each in door.messages(ADMIN)] == ["nack-receive-rejected"]
    assert door.bodies(";deadletter") == [b"one"]


def test_aborts_count_up_to_the_limit_of_the_queue(door: AmqpDoor, peer: RawPeer) -> None:
    door.run(door.manager.set_queue(ORDERS, abort_limit=2))
    door.send(b"one")
    failed = described(MODIFIED, listed(b"\x41"))
    peer.write(attach_receiver(source(ORDERS)) + flow(10))
    for number in range(2):
        _, _, _, payload = peer.frame(TRANSFER)
        header = sections(payload)[0x70]
        assert (header[4] if len(header) > 4 else 0) == number
        peer.write(disposition(number, number, failed))
    until(lambda: door.bodies(rf"{ORDERS};poison") == [b"one"])


def test_what_the_peer_does_not_settle_at_once_is_settled_with_its_outcome(door: AmqpDoor, peer: RawPeer) -> None:
    door.send(b"one")
    peer.write(attach_receiver(source(ORDERS)) + flow(1))
    peer.until(TRANSFER)
    peer.write(disposition(0, 0, STATE_ACCEPTED, settled=False))
    role, first, _, settled, state = peer.until(DISPOSITION)[:5]
    assert (role, first, settled, state.descriptor) == (False, 0, True, ACCEPTED)
    assert door.count() == 0


def test_a_settled_link_gets_each_message_at_most_once(door: AmqpDoor, peer: RawPeer) -> None:
    door.send(b"one", b"two")
    peer.write(attach_receiver(source(ORDERS), settled=True) + flow(5))
    for _ in range(2):
        assert peer.until(TRANSFER)[4] is True
    assert door.count() == 0


def test_copies_show_everything_and_remove_nothing(door: AmqpDoor, client: BlockingConnection) -> None:
    door.send(b"one", b"two")
    receiver = client.create_receiver(ORDERS, credit=10, options=Copy())
    for body in (b"one", b"two"):
        assert bytes(receiver.receive(timeout=PATIENCE_S).body) == body
        receiver.accept()
    door.send(b"three")
    door.send(b"urgent", priority=7)
    later = [receiver.receive(timeout=PATIENCE_S) for _ in range(2)]
    assert {bytes(each.body) for each in later} == {b"three", b"urgent"}
    assert sorted(door.bodies()) == [b"one", b"three", b"two", b"urgent"]


def test_drain_answers(door: AmqpDoor, peer: RawPeer) -> None:
    door.send(b"one")
    peer.write(attach_receiver(source(ORDERS)) + flow(10, drain=True))
    peer.until(TRANSFER)
    fields = peer.until(FLOW)
    assert (fields[5], fields[6], fields[8]) == (10, 0, True)  # delivery count, credit, drain
    door.send(b"two")  # there is no credit for it
    peer.write(flow(1, count=10))
    peer.until(TRANSFER)


def test_a_dynamic_source_takes_replies_and_ends_with_its_link(door: AmqpDoor, client: BlockingConnection) -> None:
    replies = client.create_receiver(None, credit=1, dynamic=True, options=DynamicNodeProperties({}))
    address = replies.link.remote_source.address
    client.create_sender(ORDERS).send(Message(body="ask", reply_to=address, correlation_id="q1"))
    server = client.create_receiver(ORDERS, credit=1)
    asked = server.receive(timeout=PATIENCE_S)
    answers = client.create_sender(asked.reply_to)
    answers.send(Message(body="answer", correlation_id=asked.correlation_id))
    answers.close()
    found = replies.receive(timeout=PATIENCE_S)
    assert (found.body, found.correlation_id) == ("answer", "q1")
    replies.close()
    assert not any("amqp.dynamic" in each.path for each in door.manager.queues())


def test_a_link_without_a_target_sends_where_each_message_says(door: AmqpDoor, client: BlockingConnection) -> None:
    sender = client.create_sender(None)
    sender.send(Message(body="here", address="private$/orders"))
    assert [each.text for each in door.messages()] == ["here"]
    for address in ("private$/none", None):
        with pytest.raises(SendException):
            sender.send(Message(body="nowhere", address=address))


# Transactions


def declare(peer: RawPeer, number: int) -> bytes:
    peer.write(transfer(described(0x77, described(DECLARE, listed())), number, handle=9))
    return bytes(peer.until(DISPOSITION)[4].value[0])


def discharge(peer: RawPeer, identifier: bytes, number: int, *, fail: bool = False) -> Any:
    body = described(DISCHARGE, listed(binary(identifier), b"\x41" if fail else b"\x42"))
    peer.write(transfer(described(0x77, body), number, handle=9))
    return peer.until(DISPOSITION)[4]


@pytest.fixture(name="transacted")
def _transacted(peer: RawPeer) -> RawPeer:
    peer.write(attach_sender(coordinator(), 9, "coordinator"))
    for handle, queue in enumerate((TX, TX2, ORDERS)):
        peer.write(attach_sender(target(queue), handle, f"to {queue}"))
    for _ in range(4):
        peer.until(FLOW)
    return peer


def test_a_transaction_over_several_queues_is_all(door: AmqpDoor, transacted: RawPeer) -> None:
    door.send(b"in", queue=TX2)
    transacted.write(attach_receiver(source(TX2), 5) + flow(1, 5))
    transacted.until(TRANSFER)
    identifier = declare(transacted, 0)
    for number, handle in ((1, 0), (2, 0), (3, 1)):
        transacted.write(transfer(data(b"%d" % number), number, handle, state=state_transactional(identifier)))
        state = transacted.until(DISPOSITION)[4]
        assert (state.descriptor, state.value[0], state.value[1].descriptor) == (TRANSACTIONAL, identifier, ACCEPTED)
    transacted.write(disposition(0, 0, state_transactional(identifier, STATE_ACCEPTED)))
    assert door.bodies(TX) == []
    assert discharge(transacted, identifier, 4).descriptor == ACCEPTED
    assert (door.bodies(TX), door.bodies(TX2)) == ([b"1", b"2"], [b"3"])
    assert len({each.describe()["transaction_id"] for each in (*door.messages(TX), *door.messages(TX2))}) == 1


@pytest.mark.parametrize("dies", [False, True])
def test_a_transaction_that_fails_or_whose_connection_dies_is_nothing(
    door: AmqpDoor, transacted: RawPeer, dies: bool
) -> None:
    door.send(b"in", queue=TX2)
    transacted.write(attach_receiver(source(TX2), 5) + flow(1, 5))
    transacted.until(TRANSFER)
    identifier = declare(transacted, 0)
    transacted.write(transfer(data(b"out"), 1, state=state_transactional(identifier)))
    transacted.until(DISPOSITION)
    transacted.write(disposition(0, 0, state_transactional(identifier, STATE_ACCEPTED)) + flow(0, 5, count=1))
    if dies:
        until(lambda: door.manager.leases.transactions()[0].messages == 2)
        transacted.connection.close()
    else:
        assert discharge(transacted, identifier, 2, fail=True).descriptor == ACCEPTED
    until(lambda: door.bodies(TX2) == [b"in"])
    assert door.messages(TX2)[0].aborts == 1
    assert door.bodies(TX) == []
    assert door.manager.leases.transactions() == []


def test_work_on_a_plain_queue_in_a_transaction_is_rejected(door: AmqpDoor, transacted: RawPeer) -> None:
    identifier = declare(transacted, 0)
    transacted.write(transfer(data(b"x"), 1, handle=2, state=state_transactional(identifier)))
    error = transacted.until(DISPOSITION)[4].value[0].value
    assert error[0] == "amqp:not-allowed"
    assert "not transactional" in error[1]
    door.send(b"plain")
    transacted.write(attach_receiver(source(ORDERS), 5) + flow(1, 5))
    transacted.until(TRANSFER)
    transacted.write(disposition(0, 0, state_transactional(identifier, STATE_ACCEPTED)))
    assert transacted.until(DETACH)[2].value[0] == "amqp:not-allowed"
    assert door.bodies() == [b"plain"]


def test_a_transaction_that_is_none_is_refused(transacted: RawPeer) -> None:
    transacted.write(transfer(data(b"x"), 0, state=state_transactional(b"nothing")))
    assert transacted.until(DISPOSITION)[4].value[0].value[0] == "amqp:transaction:unknown-id"
    assert discharge(transacted, b"nothing", 1).value[0].value[0] == "amqp:transaction:unknown-id"


def test_transactions_of_proton(door: AmqpDoor) -> None:
    class Client(MessagingHandler, TransactionHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(auto_accept=False, prefetch=0)
            self.sent = 0

        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(door.address, allowed_mechs="ANONYMOUS")
            self.sender = event.container.create_sender(self.connection, TX)
            self.container = event.container
            self.container.declare_transaction(self.connection, handler=self)

        def on_transaction_declared(self, event: Any) -> None:
            self.transaction = event.transaction
            for number in range(5):
                self.transaction.send(self.sender, Message(body=number))
            self.transaction.commit() if self.sent else self.transaction.abort()

        def on_transaction_aborted(self, event: Any) -> None:
            self.sent = 5
            self.container.declare_transaction(self.connection, handler=self)

        def on_transaction_committed(self, event: Any) -> None:
            self.connection.close()

    Container(Client()).run()
    assert len(door.bodies(TX)) == 5


# A message


def round_trip(client: BlockingConnection, message: Message, queue: str = ORDERS) -> Message:
    sender = client.create_sender(queue)
    sender.send(message)
    sender.close()
    receiver = client.create_receiver(queue, credit=1)
    found = receiver.receive(timeout=PATIENCE_S)
    receiver.accept()
    receiver.close()
    return found


def test_properties_come_back_with_their_types(door: AmqpDoor, client: BlockingConnection) -> None:
    own = {
        "int": int32(5),
        "ulong": ulong(7),
        "byte": byte(-1),
        "text": "€",
        "id": UUID(int=9),
        "yes": True,
        "no": None,
    }
    sent = Message(
        body="text",
        id=UUID(int=3),
        correlation_id=ulong(17),
        content_type=symbol("text/plain"),
        content_encoding=symbol("utf-8"),
        group_id="g",
        group_sequence=4,
        reply_to_group_id="h",
        reply_to="somewhere else entirely",
        subject="label",
        properties=own,
        annotations={symbol("x-opt-jms-msg-type"): byte(5)},
    )
    client.create_sender(ORDERS).send(sent)
    [stored] = door.messages()
    assert [stored.headers[name] for name in ("int", "text", "content-type")] == ["5", "€", "text/plain"]
    assert (stored.decoded().get("system"), stored.body_type, stored.text) == (None, 8, "text")
    receiver = client.create_receiver(ORDERS, credit=1)
    found = receiver.receive(timeout=PATIENCE_S)
    for name in ("id", "correlation_id", "content_type", "content_encoding", "group_id", "group_sequence", "body"):
        assert getattr(found, name) == getattr(sent, name), name
    assert (found.reply_to, found.reply_to_group_id, found.subject) == ("somewhere else entirely", "h", "label")
    assert found.properties == own
    assert {name: type(value) for name, value in found.properties.items()} == {
        name: type(value) for name, value in own.items()
    }
    assert found.annotations["x-opt-jms-msg-type"] == byte(5)
    assert "x-opt-msmq-extension" not in found.annotations


def test_a_message_of_msmq_shows_all_that_it_has(door: AmqpDoor, client: BlockingConnection) -> None:
    [identifier] = door.send(
        *(b"\1\2",),
        label="l",
        app_tag=9,
        body_type=17,
        extension=b"<ext>",
        admin_queue=ADMIN,
        ack="full",
        response_queue=ADMIN,
        correlation_id=f"{{{UUID(int=5)}}}\\17",
        priority=6,
        time_to_be_received=600,
    )
    found = client.create_receiver(ORDERS, credit=1).receive(timeout=PATIENCE_S)
    [lock] = door.manager.leases.locks()
    assert (lock.messages, lock.queue) == (1, ORDERS)
    notes = {str(name).removeprefix("x-opt-msmq-"): value for name, value in found.annotations.items()}
    assert (notes["id"], found.id, notes["class"], notes["body-type"], notes["app-tag"]) == (
        *(identifier, identifier, 0, 17, 9),
    )
    assert (notes["lookup-id"], bytes(notes["extension"]), notes["delivery"]) == (
        *(lock.lookup_ids[0], b"<ext>", "recoverable"),
    )
    assert (notes["authenticated"], notes["source-manager"]) == (False, str(door.manager.identifier))
    assert notes["admin-queue"] == door.manager.queue(ADMIN).format_name == found.reply_to
    assert found.correlation_id == f"{{{UUID(int=5)}}}\\17"
    assert (found.priority, found.durable, bytes(found.body)) == (6, True, b"\1\2")
    assert 590 < found.ttl <= 600
    assert found.address == f"DIRECT=OS:alpha\\{ORDERS}"
    assert abs(found.creation_time - time.time()) < 60


def test_what_an_application_may_set_is_set(door: AmqpDoor, client: BlockingConnection) -> None:
    notes = {
        "body-type": uint(17), "app-tag": uint(5), "extension": b"mine", "admin-queue": "private$/admin",
        "ack": "reach-queue,receive", "time-to-reach-queue": uint(90_000), "journal": True, "dead-letter": True,
        "class": uint(77), "lookup-id": ulong(3), "unknown": "ignored",
    }  # fmt: skip
    message = Message(body=b"b", inferred=True, annotations={symbol(f"x-opt-msmq-{k}"): v for k, v in notes.items()})
    sender = client.create_sender(ORDERS)
    sender.send(message)
    [stored] = door.messages()
    view = stored.view
    assert (stored.body_type, stored.app_tag, stored.extension, stored.message_class) == (17, 5, b"mine", 0)
    assert (view.time_to_reach_queue, view.positive_journaling, view.negative_journaling) == (90, True, True)
    assert [each.class_name for each in door.messages(ADMIN)] == ["ack-reach-queue"]
    for name, wrong in (("ack", "never"), ("body-type", "text"), ("journal", 1), ("admin-queue", r"private\x")):
        with pytest.raises(SendException):
            sender.send(Message(annotations={symbol(f"x-opt-msmq-{name}"): wrong}))


def test_an_own_extension_and_application_properties_exclude_each_other(
    door: AmqpDoor, peer: RawPeer, client: BlockingConnection
) -> None:
    annotations = {symbol("x-opt-msmq-extension"): b"mine"}
    sender = client.create_sender(ORDERS)
    with pytest.raises(SendException):
        sender.send(Message(properties={"a": "b"}, annotations=annotations))
    sender.close()
    received = round_trip(client, Message(body=b"x", inferred=True, annotations=annotations))
    again = round_trip(client, received)  # sent on as it is, with the id of MSMQ as its own
    assert bytes(again.annotations["x-opt-msmq-extension"]) == b"mine"


@pytest.mark.parametrize(
    "body", ["", "text €", {"a": [1, 2.5]}, [1, "x"], 5, True, UUID(int=4), symbol("s"), "x" * 100_000]
)
def test_bodies_come_back_as_they_were_sent(client: BlockingConnection, body: Any) -> None:
    found = round_trip(client, Message(body=body))
    assert (found.body, type(found.body)) == (body, type(body))


@pytest.mark.parametrize(("sent", "stored"), [(None, 3), (0, 0), (5, 5), (7, 7), (8, 7), (255, 7)])
def test_priorities(door: AmqpDoor, peer: RawPeer, sent: int | None, stored: int) -> None:
    header = b"\0\x53\x70" + listed(b"\x41", b"\x40" if sent is None else bytes((0x50, sent)))
    peer.write(attach_sender(target(ORDERS)) + transfer(header + data(b"x")))
    peer.until(DISPOSITION)
    assert door.messages()[0].priority == stored


def test_ttl_is_the_time_to_be_received(door: AmqpDoor, client: BlockingConnection) -> None:
    client.create_sender(ORDERS).send(Message(body="x", ttl=90.5, durable=True))
    assert door.messages()[0].view.time_to_be_received == 91


# What operators see


def test_status_lists_connections_and_links(door: AmqpDoor, client: BlockingConnection) -> None:
    door.send(b"one", b"two")
    receiver = client.create_receiver("private$/orders", credit=5)
    receiver.receive(timeout=PATIENCE_S)
    found = door.manager.info().amqp
    assert found is not None
    [connection] = found["connections"]
    assert (connection["peer"], connection["user"]) == ("127.0.0.1", "local")
    [link] = connection["links"]
    assert (link["address"], link["role"], link["credit"], link["unsettled"]) == ("private$/orders", "receiver", 3, 2)


def test_an_operator_can_take_messages_back(door: AmqpDoor, peer: RawPeer) -> None:
    door.send(b"one")
    peer.write(attach_receiver(source(ORDERS)) + flow(1))
    peer.until(TRANSFER)
    door.run(door.manager.leases.release(ORDERS))
    assert door.bodies() == [b"one"]
    peer.write(disposition(0, 0, STATE_ACCEPTED) + attach_sender(target(TX), 1))
    peer.until(FLOW)
    assert door.bodies() == [b"one"]  # it was not the peer's any more


def test_a_manager_that_stops_says_so() -> None:
    with amqp_door() as door:
        peer = RawPeer(door.dial())
        door.run(door.listener.stop())
        assert peer.closed_with() == "amqp:connection:forced"
        peer.connection.close()


def test_a_link_of_the_same_name_takes_the_place_of_the_older(door: AmqpDoor, peer: RawPeer) -> None:
    door.send(b"one")
    peer.write(attach_receiver(source(ORDERS)) + flow(1))
    peer.until(TRANSFER)
    peer.write(attach_receiver(source(ORDERS), 1) + flow(1, 1))
    assert peer.until(DETACH)[2].value[0] == "amqp:link:stolen"
    peer.until(TRANSFER)


def test_what_a_link_holds_has_no_time_limit(door: AmqpDoor, peer: RawPeer) -> None:
    door.send(b"one")
    peer.write(attach_receiver(source(ORDERS)) + flow(1))
    peer.until(TRANSFER)
    leases, now = door.manager.leases, door.manager.clock()

    async def pass_time() -> None:
        for half_second in range(1000):
            leases.run_timers(now + half_second / 2)

    door.run(pass_time())
    assert door.bodies() == []
    [lock] = leases.locks()
    assert "peer by AMQP from 127.0.0.1" in lock.owner


def test_the_verified_sender_is_the_user_id() -> None:
    queues = {ORDERS: {"authenticate": True}}
    with amqp_door(credentials=Credentials({"ann": "secret"}, "token"), users=[ANN], queues=queues) as door:
        ann = connect(door, "PLAIN", user="ann", password="secret", allow_insecure_mechs=True)
        ann.create_sender(ORDERS).send(Message(body="x", user_id=b"root"))
        reader = connect(door, "PLAIN", user="token", password="token", allow_insecure_mechs=True)
        found = reader.create_receiver(ORDERS).receive(timeout=PATIENCE_S)
        assert (bytes(found.user_id), found.annotations["x-opt-msmq-authenticated"]) == (str(ANN.sid).encode(), True)
        ann.close()
        reader.close()


def test_an_outcome_in_a_transaction_counts_with_it(door: AmqpDoor, transacted: RawPeer) -> None:
    door.send(b"bad", b"good", queue=TX2)
    transacted.write(attach_receiver(source(TX2), 5) + flow(2, 5))
    transacted.until(TRANSFER)
    transacted.until(TRANSFER)
    identifier = declare(transacted, 0)
    transacted.write(disposition(0, 0, state_transactional(identifier, described(0x25, listed()))))
    transacted.write(disposition(1, 1, state_transactional(identifier, STATE_ACCEPTED)))
    assert door.bodies(";deadxact") == []
    assert discharge(transacted, identifier, 1).descriptor == ACCEPTED
    assert (door.bodies(";deadxact"), door.count(TX2)) == ([b"bad"], 0)


def test_an_operator_can_abort_a_transaction(door: AmqpDoor, transacted: RawPeer) -> None:
    identifier = declare(transacted, 0)
    transacted.write(transfer(data(b"x"), 1, state=state_transactional(identifier)))
    transacted.until(DISPOSITION)
    door.run(door.manager.leases.abort(UUID(bytes=identifier)))
    state = discharge(transacted, identifier, 2)
    assert state.value[0].value[0] == "amqp:transaction:rollback"
    assert door.bodies(TX) == []
