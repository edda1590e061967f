"""What a manager writes because of a message goes only to queues that the message's sender could write to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from postroad.errors import AccessDenied
from postroad.message import Message
from postroad.names import parse_format_name
from postroad.queues.behalf import ACK_SHARE_BYTES
from postroad.queues.outgoing_queues import Watcher
from postroad.security.access import Token
from postroad.security.guard import Protection
from postroad.security.relay import ANY_HOST
from postroad.security.signatures import sign
from postroad.security.users import User, Users
from postroad.wire.constants import MessageClass, SenderIdType
from postroad.wire.headers import SecurityHeader, TxSequenceId
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView
from tests.security_vectors import CERTIFICATE, REGISTERED, RING, SENDER, SID, Counted
from tests.unit.binary.network import ACKS, DEADLETTER, DEADXACT, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

TARGET = r"private$\target"
SEQUENCE = TxSequenceId(3, 7)
CLOSED_LIST = "O:BAD:(D;;0x4;;;AN)(A;;0x4;;;WD)"  # for everybody but those who say nothing of who they are
FOR_SENDER = f"O:BAD:(A;;0x4;;;{SID})"
USER = User("somebody", SID)


@pytest.fixture
def beta(network: Network) -> Station:
    network.listed = False
    network.protections["beta"] = Protection(Counted(), RING, REGISTERED)
    beta = network.station("beta", 2)
    beta.use(relay=())
    beta.use(users=Users([USER]))
    beta.create(TARGET)
    return beta


def set_acl(station: Station, sddl: str, path: str = TARGET) -> None:
    station.core.change_queue(station.queue(path), station.network.now, acl=sddl)
    station.network.run()


def change(station: Station, **attributes: object) -> None:
    station.core.change_queue(station.queue(TARGET), station.network.now, **attributes)
    station.network.run()


def pause(station: Station, name: str) -> None:
    """Messages for this name wait."""
    station.core.pause(station.core.queues.outgoing_queue(station.core.tick, parse_format_name(name), 0))


def of_a_manager(packet: bytes) -> bytes:
    """The message claims that a queue manager has sent it by itself. Nobody has signed that."""
    message = UserMessage.decode(packet)
    source = message.user.source_queue_manager.bytes_le
    return replace(message, security=SecurityHeader(SenderIdType.QUEUE_MANAGER, source)).encode()


def signed(packet: bytes) -> bytes:
    return sign(packet, SENDER, CERTIFICATE, sender_id=SID)


# What a manager writes, and how a stranger makes it write that

Kind = Callable[[Network, Station, Stranger, Callable[[bytes], bytes]], None]


def _send(beta: Station, stranger: Stranger, disguise: Callable[[bytes], bytes], to: str, **options: object) -> None:
    message = Message(b"body", label="a", admin_queue=rf"DIRECT=OS:beta\{TARGET}", **options)  # type: ignore[arg-type]
    stranger.send(stranger.call(beta), disguise(stranger.compose(beta.direct(to), message)))


def arrival(network: Network, beta: Station, stranger: Stranger, disguise: Callable[[bytes], bytes]) -> None:
    _send(beta, stranger, disguise, ORDERS, ack="reach-queue")


def receive(network: Network, beta: Station, stranger: Stranger, disguise: Callable[[bytes], bytes]) -> None:
    _send(beta, stranger, disguise, ORDERS, ack="receive")
    beta.receive(ORDERS)


def purge(network: Network, beta: Station, stranger: Stranger, disguise: Callable[[bytes], bytes]) -> None:
    _send(beta, stranger, disguise, ORDERS, ack="nack-receive")
    beta.core.purge(beta.queue(ORDERS), network.now)
    network.run()


def expiry(network: Network, beta: Station, stranger: Stranger, disguise: Callable[[bytes], bytes]) -> None:
    _send(beta, stranger, disguise, ORDERS, ack="nack-receive", time_to_be_received=5)
    network.wait(10)


def refusal(network: Network, beta: Station, stranger: Stranger, disguise: Callable[[bytes], bytes]) -> None:
    _send(beta, stranger, disguise, LEDGER, ack="nack-reach-queue")  # the queue is transactional


def report(network: Network, beta: Station, stranger: Stranger, disguise: Callable[[bytes], bytes]) -> None:
    queue = beta.queue(r"beta\reports")
    network.public[queue.properties.identifier] = beta
    message = Message(b"body", label="a", trace=queue.properties.identifier)
    stranger.send(stranger.call(beta), disguise(stranger.compose(beta.direct(ORDERS), message)))


KINDS: list[Kind] = [arrival, receive, purge, expiry, refusal, report]

Close = Callable[[Station, str], None]


def by_list(beta: Station, path: str) -> None:
    set_acl(beta, CLOSED_LIST, path)


def by_signature(beta: Station, path: str) -> None:
    beta.core.change_queue(beta.queue(path), beta.network.now, authenticate=True)


def by_encryption(beta: Station, path: str) -> None:
    beta.core.change_queue(beta.queue(path), beta.network.now, privacy="body")


def by_quota(beta: Station, path: str) -> None:
    beta.core.change_queue(beta.queue(path), beta.network.now, quota_kb=0)


def missing(beta: Station, path: str) -> None:
    beta.core.delete_queue(beta.queue(path), beta.network.now)


CLOSED: list[Close] = [by_list, by_signature, by_encryption, by_quota, missing]


def target_of(beta: Station, kind: Kind) -> str:
    """Reports go to public queues."""
    if kind is not report:
        return TARGET
    beta.create(r".\reports")
    return "reports"


@pytest.mark.parametrize("disguise", [bytes, of_a_manager])
@pytest.mark.parametrize("kind", KINDS)
def test_an_open_queue_gets_it(
    network: Network, beta: Station, stranger: Stranger, kind: Kind, disguise: Callable[[bytes], bytes]
) -> None:
    path = target_of(beta, kind)
    kind(network, beta, stranger, disguise)
    assert beta.queue(rf"beta\{path}").count == 1
    assert beta.core.delivery.tally.unwritten == 0


@pytest.mark.parametrize("disguise", [bytes, of_a_manager])
@pytest.mark.parametrize("close", CLOSED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_queue_does_not(
    network: Network,
    beta: Station,
    stranger: Stranger,
    kind: Kind,
    close: Close,
    disguise: Callable[[bytes], bytes],
) -> None:
    path = target_of(beta, kind)
    queue = beta.queue(rf"beta\{path}")
    if close is missing and kind is report:
        return  # nobody has such a queue, so that nothing is tried
    close(beta, rf"beta\{path}")
    network.run()
    before = beta.core.queues.usage.used_bytes
    kind(network, beta, stranger, disguise)
    assert queue.count == 0
    assert beta.core.queues.usage.used_bytes - before == beta.queue(ORDERS).used_bytes
    if close is not missing:
        assert beta.core.delivery.tally.unwritten == 1


@pytest.mark.parametrize("kind", [arrival, receive, purge, expiry, refusal])
@pytest.mark.parametrize("close", ["authenticate", "list"])
def test_a_sender_who_could_write_there_gets_it(
    network: Network, beta: Station, stranger: Stranger, kind: Kind, close: str
) -> None:
    """A checked signature shows who the sender is. A message that is refused before its check shows nobody."""
    if close == "list":
        set_acl(beta, FOR_SENDER)
    else:
        change(beta, authenticate=True)
    kind(network, beta, stranger, signed)
    assert beta.queue(TARGET).count == 1


def test_what_only_passes_through_is_nobodys(network: Network, beta: Station, stranger: Stranger) -> None:
    """Nobody has checked the signature of a message on its way elsewhere, whatever its header says."""
    beta.use(relay=(ANY_HOST,))
    by_signature(beta, TARGET)
    gone = f"PRIVATE={stranger.identifier}\\9".replace("aa", "ab")
    message = Message(b"body", label="a", ack="full", admin_queue=rf"DIRECT=OS:beta\{TARGET}", time_to_reach_queue=5)
    packet = signed(stranger.compose(gone, message))
    view = MessageView(packet)
    assert view._security_at
    believed = bytearray(packet)
    believed[view._security_at + 1] |= 3  # AS: a signature was checked
    stranger.send(stranger.call(beta), bytes(believed))
    assert beta.waiting(gone) == ["a"]
    network.wait(10)
    assert (beta.waiting(gone), beta.queue(TARGET).count) == ([], 0)


def test_nobody_is_an_application_here_for_saying_so(network: Network, beta: Station, stranger: Stranger) -> None:
    """From an address of this computer any program can send, even in this manager's name."""
    beta.core.queues.local_hosts.add(stranger.address)
    by_list(beta, TARGET)
    message = Message(b"body", label="a", ack="full", admin_queue=rf"DIRECT=OS:beta\{TARGET}", dead_letter=True)
    packet = stranger.compose(beta.direct(ORDERS), message, source=beta.identifier)
    stranger.send(stranger.call(beta), packet)
    assert beta.receive(ORDERS) == ["a"]
    assert (beta.queue(TARGET).count, beta.core.delivery.tally.unwritten) == (0, 2)


# What is left of messages that are refused


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("path", [r"private$\missing", LEDGER, TARGET])
def test_of_a_strangers_refused_message_nothing_is_left_but_a_count(
    network: Network, beta: Station, stranger: Stranger, path: str, known: bool
) -> None:
    by_quota(beta, TARGET)
    if known:
        beta.use(relay=(ANY_HOST,))
    before = beta.core.queues.usage.used_bytes
    message = Message(b"body", label="a", dead_letter=True, recoverable=True)
    session = stranger.call(beta)
    for _ in range(20):
        stranger.send(session, stranger.compose(beta.direct(path), message))
    assert len(beta.labels(DEADLETTER)) == (20 if known else 0)
    assert sum(beta.core.delivery.tally.refused.values()) == 20
    if not known:
        assert beta.core.queues.usage.used_bytes == before


@pytest.mark.parametrize("path", [TARGET, LEDGER, r"private$\missing"])
def test_a_full_manager_refuses_no_message_whose_dead_letter_has_no_room(
    network: Network, alpha: Station, beta: Station, path: str
) -> None:
    beta.use(relay=(ANY_HOST,))
    by_quota(beta, TARGET)
    beta.core.throttle(on=True)
    alpha.send(beta.direct(path), Message(label="one", dead_letter=True, recoverable=True))
    assert beta.core.delivery.tally.refused.total() == 0
    beta.core.throttle(on=False)
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(DEADLETTER) == ["one"]


def test_dead_letters_of_others_leave_room_for_our_own(network: Network, beta: Station, stranger: Stranger) -> None:
    beta.use(relay=(ANY_HOST,))
    dead = beta.queue(DEADLETTER)
    beta.core.change_queue(dead, network.now, quota_kb=8)
    died: list[tuple[str | None, bool]] = []
    session = stranger.call(beta)
    for _ in range(100):
        stranger.send(
            session, stranger.compose(beta.direct(r"private$\missing"), Message(bytes(500), dead_letter=True))
        )
    assert 3000 < dead.used_bytes <= 4096
    beta.core.watch(Watcher(died=lambda queue, packet, reason, letter, lost: died.append((letter, lost))))
    for _ in range(10):
        beta.send(ORDERS, Message(bytes(500), label="own", dead_letter=True, recoverable=True, time_to_be_received=5))
    beta.use(quota_kb=1)  # the manager is full, too
    network.wait(10)
    own = beta.labels(DEADLETTER).count("own")
    assert own >= 4
    assert died.count((dead.name, False)) == own
    assert died.count((dead.name, True)) == 10 - own  # never without a word


# FinalAcks


def test_final_acks_that_nobody_fetches_have_a_bound(network: Network, beta: Station, stranger: Stranger) -> None:
    """A refused message begins no sequence. When it comes again, it gets another FinalAck."""
    session = stranger.call(beta)
    network.hold(beta, stranger)
    message = Message(b"body", recoverable=True)
    for number in range(1, 61):
        place = (TxSequenceId(number, 7), 1, 0)
        stranger.send(session, stranger.compose(beta.direct(ORDERS), message, place))
        if session.closed or not session.free:
            session = stranger.call(beta)
    network.cut(beta, stranger)
    network.refused.add(stranger.address)
    (queue,) = beta.core.queues.outgoing.values()
    waiting = queue.count
    assert waiting == 60
    network.wait(70)
    assert queue.count == 0  # nobody fetches them: they are not kept


def test_the_same_refusal_waits_once(network: Network, beta: Station, stranger: Stranger) -> None:
    name = stranger.direct("PRIVATE$\\order_queue$")
    pause(beta, name)
    packet = stranger.compose(beta.direct(ORDERS), Message(b"body", recoverable=True), (SEQUENCE, 1, 0))
    session = stranger.call(beta)
    for _ in range(5):
        stranger.send(session, packet)
    assert len(beta.waiting(name)) == 1
    other = stranger.compose(beta.direct(ORDERS), Message(b"body", recoverable=True), (SEQUENCE, 1, 0))
    stranger.send(session, other)
    assert len(beta.waiting(name)) == 2


@pytest.mark.parametrize("room", [True, False])
def test_where_there_is_no_room_for_a_final_ack_the_sender_keeps_its_message(
    network: Network, beta: Station, stranger: Stranger, room: bool
) -> None:
    """It is the second message of a sequence. Its sender will not ask for the FinalAck again."""
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "a", (SEQUENCE, 1, 0)))
    beta.core.change_queue(beta.queue(LEDGER), network.now, quota_kb=0)
    network.run()
    used = beta.core.queues.usage.used_bytes
    beta.use(quota_kb=None if room else used // 1024)
    late = Message(b"body", recoverable=True, dead_letter=True, time_to_reach_queue=5)
    packet = stranger.compose(beta.direct(LEDGER), late, (SEQUENCE, 2, 1))
    network.now += 10
    stranger.send(session, packet)
    assert session.closed is not room
    assert [ack.final_class for ack in stranger.final_acks] == ([MessageClass.NACK_REACH_QUEUE_TIMEOUT] if room else [])
    if not room:
        beta.use(quota_kb=None)
        stranger.send(stranger.call(beta), packet)
        assert [ack.final_class for ack in stranger.final_acks] == [MessageClass.NACK_REACH_QUEUE_TIMEOUT]
    assert beta.labels(DEADXACT) == []


@pytest.mark.parametrize("known", [False, True])
def test_what_waits_to_leave_for_one_stranger_has_a_bound(
    network: Network, beta: Station, stranger: Stranger, known: bool
) -> None:
    """Acknowledgments for somebody who never fetches them."""
    if known:
        beta.use(relay=(ANY_HOST,))
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(ORDERS), "a"))
    name = stranger.direct(ACKS)
    pause(beta, name)
    size = ACK_SHARE_BYTES // 4
    for _ in range(6):
        message = Message(bytes(size), ack="nack-receive", admin_queue=name, time_to_be_received=1)
        stranger.send(session, stranger.compose(beta.direct(ORDERS), message))
        network.wait(3)
        if session.closed:
            session = stranger.call(beta)
    assert len(beta.waiting(name)) == (6 if known else 3)
    assert beta.core.delivery.tally.unwritten == (0 if known else 3)


def test_what_waits_to_leave_for_all_strangers_leaves_room_for_others(network: Network, beta: Station) -> None:
    """Each of them stays within its own share."""
    beta.use(quota_kb=1000)
    for number in range(12):
        each = Stranger(network, f"s{number}", number + 1000, f"10.9.0.{number}")
        session = each.call(beta)
        each.send(session, each.compose(beta.direct(ORDERS), "a"))
        pause(beta, each.direct(ACKS))
        message = Message(bytes(50_000), ack="nack-receive", admin_queue=each.direct(ACKS), time_to_be_received=1)
        each.send(session, each.compose(beta.direct(ORDERS), message))
        network.wait(3)
    assert 150 << 10 < beta.core.queues.usage.used_bytes <= 250 << 10
    beta.core.delete_queue(beta.queue(Stranger(network, "s0", 1000, "10.9.0.0").direct(ACKS)), network.now)
    network.wait(2)
    last = Stranger(network, "last", 2000, "10.9.1.1")  # there is room again
    session = last.call(beta)
    last.send(session, last.compose(beta.direct(ORDERS), "a"))
    pause(beta, last.direct(ACKS))
    message = Message(bytes(20_000), ack="nack-receive", admin_queue=last.direct(ACKS), time_to_be_received=1)
    last.send(session, last.compose(beta.direct(ORDERS), message))
    network.wait(3)
    assert beta.waiting(last.direct(ACKS))


# Acknowledgments that applications here have asked for


def asking(**options: object) -> Message:
    return Message(b"body", label="a", admin_queue=TARGET, recoverable=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("close", [by_list, by_signature, by_encryption])
def test_what_was_asked_for_comes_into_a_closed_queue(
    network: Network, alpha: Station, beta: Station, close: Close, restarted: bool
) -> None:
    close(beta, TARGET)
    alpha.create(r"private$\far")
    beta.send(alpha.direct(r"private$\far"), asking(ack="full"), asking(ack="full"))
    if restarted:
        beta.restart()
        beta.use(relay=())
    alpha.receive(r"private$\far", 2)
    network.wait(2)
    assert beta.classes(TARGET) == [MessageClass.ACK_REACH_QUEUE] * 2 + [MessageClass.ACK_RECEIVE] * 2
    if not restarted:
        assert (len(beta.core.delivery.asked), beta.store.state("asked/")) == (0, {})


@pytest.mark.parametrize("wrong", ["id", "queue", "class", "again", "manager", "address", "nothing"])
def test_what_was_not_asked_for_does_not(
    network: Network, alpha: Station, beta: Station, stranger: Stranger, wrong: str
) -> None:
    other = r"private$\other"
    beta.create(other)
    for path in (TARGET, other):
        by_list(beta, path)
    network.refused.add(alpha.address)
    asked = alpha if wrong == "address" else stranger
    (sent,) = beta.send(asked.direct(ORDERS), asking(ack="reach-queue"))
    source = stranger.identifier if wrong == "manager" else beta.identifier
    correlation = source.bytes_le + (sent + (wrong == "id")).to_bytes(4, "little")
    kind = MessageClass.ACK_RECEIVE if wrong == "class" else MessageClass.ACK_REACH_QUEUE
    ack = Message(b"forged", label="f", message_class=kind, correlation_id=correlation)
    session = stranger.call(beta)
    path = other if wrong == "queue" else TARGET
    stranger.send(session, stranger.compose(beta.direct(path), ack))
    expected = 1 if wrong in ("again", "nothing") else 0
    assert beta.queue(path).count == expected  # who knows the id has got the message
    stranger.send(session, stranger.compose(beta.direct(path), ack))
    assert beta.queue(path).count == expected


def test_an_acknowledgment_that_was_lost_with_its_tick_comes_again(
    network: Network, alpha: Station, beta: Station
) -> None:
    by_list(beta, TARGET)
    alpha.create(r"private$\far")
    beta.send(alpha.direct(r"private$\far"), asking(ack="receive"))
    beta.commits = False
    alpha.receive(r"private$\far")
    beta.seal()
    beta.lose()
    beta.commits = True
    network.wait(40)
    assert beta.classes(TARGET) == [MessageClass.ACK_RECEIVE]


# Users here who have not every right


@pytest.mark.parametrize("named", ["admin_queue", "dead_letter_queue", "trace"])
@pytest.mark.parametrize("allowed", [False, True])
def test_a_user_names_only_queues_that_the_user_may_write_to(
    network: Network, beta: Station, named: str, allowed: bool
) -> None:
    reports = beta.create(r".\reports")
    network.public[reports.properties.identifier] = beta
    if not allowed:
        for path in (TARGET, r"beta\reports"):
            set_acl(beta, "O:BAD:(A;;0x4;;;BA)", path)
    value = reports.properties.identifier if named == "trace" else TARGET
    message = Message(b"body", label="a", ack="full", **{named: value})  # type: ignore[arg-type]
    if allowed:
        beta.core.send(ORDERS, [message], network.now, None, USER.token)
        network.run()
        assert beta.labels(ORDERS) == ["a"]
    else:
        with pytest.raises(AccessDenied, match=r"target|reports"):
            beta.core.send(ORDERS, [message], network.now, None, USER.token)
        network.run()
        assert beta.labels(ORDERS) == []


@pytest.mark.parametrize("token", [USER.token, Token.anonymous(), Token.everyone()])
def test_the_user_is_asked_again_when_it_is_written(network: Network, beta: Station, token: Token) -> None:
    message = Message(b"body", ack="full", admin_queue=TARGET, dead_letter_queue=TARGET, time_to_be_received=5)
    for label in ("a", "b"):
        beta.core.send(ORDERS, [replace(message, label=label)], network.now, None, token)
    network.run()
    assert beta.receive(ORDERS) == ["a"]
    told = [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]
    assert beta.classes(TARGET) == told
    set_acl(beta, "O:BAD:(A;;0x4;;;BA)")
    network.wait(10)
    assert (beta.classes(TARGET), beta.labels(DEADLETTER)) == (told, ["b"])


def test_who_may_do_everything_is_not_asked(network: Network, beta: Station) -> None:
    for close in (by_list, by_signature, by_encryption):
        close(beta, TARGET)
    message = Message(b"body", ack="full", admin_queue=TARGET, dead_letter_queue=TARGET, time_to_be_received=5)
    beta.send(ORDERS, message)
    network.wait(10)
    assert beta.classes(TARGET) == [
        MessageClass.ACK_REACH_QUEUE,
        MessageClass.NACK_RECEIVE_TIMEOUT,
        MessageClass.NACK_RECEIVE_TIMEOUT,
    ]


def test_who_sent_it_stays_within_the_manager(network: Network, alpha: Station, beta: Station) -> None:
    message = Message(b"body", label="a", ack="full", admin_queue=TARGET)
    beta.core.send(alpha.direct(ORDERS), [message], network.now, None, USER.token)
    (record,) = beta.queue(alpha.direct(ORDERS)).available(1)
    assert MessageView(record.packet).local_sender == str(SID)
    network.run()
    (view,) = alpha.messages(ORDERS)
    assert (view.local_sender, len(view.data)) == (None, view.packet_size)
