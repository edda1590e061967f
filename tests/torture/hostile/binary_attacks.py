"""Attacks on the binary protocol, MS-MQQB, by somebody who knows it well."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from uuid import UUID, uuid4

from postroad.message import Composer, Message
from postroad.names import FormatName, parse_format_name
from postroad.wire import ConnectionParameters, EstablishConnection, FinalAck, OrderAck, SessionAck, SessionHeader
from postroad.wire.constants import MessageClass, SenderIdType
from postroad.wire.headers import SecurityHeader, TxSequenceId
from postroad.wire.octets import NULL_GUID
from postroad.wire.ordering import order_queue
from postroad.wire.patch import stamp_transaction, transaction_header_at, without_local_part
from postroad.wire.user_message import UserMessage
from tests.torture.hostile.stage import BINARY, CLOSED, OPEN, PING, RECOVERABLE, TRANSACTIONAL, Target
from tests.torture.hostile.stranger import CANARY, Line, Refused, Stranger

_SIZE_AT = 8
_LARGE = 0x400000  # the largest packet there is
_NUMBERS_AT = 12  # of TxSequenceNumber and its previous one, in a TransactionHeader


@asynccontextmanager
async def session(stranger: Stranger, target: Target, claim: UUID | None = None) -> AsyncIterator[Line]:
    """A connection after the handshake, under the name that the stranger claims."""
    async with stranger.line(target.host, BINARY) as line:
        await line.send(EstablishConnection(claim or uuid4(), NULL_GUID, 1).encode())
        if not await line.read():
            raise Refused("no answer to the handshake")
        await line.send(ConnectionParameters(500, 120_000, 64).encode())
        if not await line.read():
            raise Refused("no parameters")
        yield line


def packet(
    stranger: Stranger,
    destination: str | FormatName,
    *,
    source: UUID | None = None,
    number: int | None = None,
    transactional: bool = False,
    manager: UUID = NULL_GUID,
    **properties: object,
) -> bytes:
    """A message as a real manager would write it, from any source."""
    chance = stranger.chance
    name = parse_format_name(destination) if isinstance(destination, str) else destination
    message = Message(
        chance.randbytes(chance.choice((0, 10, 1000))),
        label="junk",
        recoverable=chance.random() < 0.5,
        **properties,  # type: ignore[arg-type]
    )
    composed = Composer(source or uuid4(), name, manager=manager).compose(
        message,
        chance.randrange(1, 1 << 32) if number is None else number,
        int(time.time()),
        transactional=transactional,
    )
    if transactional:
        sequence = TxSequenceId(chance.choice((0, 1, 0xFFFFFFFF)), chance.choice((1, int(time.time()), 0xFFFFFFFF)))
        composed = stamp_transaction(composed, sequence, 1, 0, 1, first=True, last=True)
    return without_local_part(composed)


def at(target: Target, queue: str) -> str:
    return rf"DIRECT=TCP:{target.host}\{queue}"


def some_queue(stranger: Stranger) -> str:
    return stranger.chance.choice((OPEN, OPEN, RECOVERABLE, TRANSACTIONAL, r"private$\none", r"private$\order_queue$"))


async def idle_connections(stranger: Stranger) -> None:
    """Many connections that say nothing."""
    target = stranger.target()
    async with AsyncExitStack() as stack:
        for _ in range(stranger.chance.randint(5, 60)):
            await stack.enter_async_context(stranger.line(target.host, BINARY))
        await asyncio.sleep(stranger.chance.uniform(0.1, 3.0))


async def unfinished_packets(stranger: Stranger) -> None:
    """A packet of 4 MiB of which the rest never comes, before or after the handshake."""
    target = stranger.target()
    opening = stranger.line(target.host, BINARY) if stranger.chance.random() < 0.5 else session(stranger, target)
    async with opening as line:
        await line.send(struct.pack("<BBH4sII", 0x10, 0, 0, b"LIOR", _LARGE, 0xFFFFFFFF))
        for _ in range(stranger.chance.randint(1, 40)):
            await line.send(bytes(65536))
        await asyncio.sleep(stranger.chance.uniform(0.1, 2.0))


async def garbage(stranger: Stranger) -> None:
    target = stranger.target()
    opening = stranger.line(target.host, BINARY) if stranger.chance.random() < 0.3 else session(stranger, target)
    async with opening as line:
        await line.send(stranger.chance.randbytes(stranger.chance.randint(1, 4000)))
        await line.read_all(1.0)


async def broken_messages(stranger: Stranger) -> None:
    """Messages that are right except for a few octets."""
    target, chance = stranger.target(), stranger.chance
    async with session(stranger, target) as line:
        for _ in range(chance.randint(1, 20)):
            data = bytearray(
                packet(
                    stranger,
                    at(target, some_queue(stranger)),
                    transactional=chance.random() < 0.5,
                    ack="full",
                    admin_queue=at(target, OPEN),
                    journal=chance.random() < 0.5,
                    dead_letter=chance.random() < 0.5,
                    time_to_be_received=chance.choice((None, 0, 1)),
                )
            )
            for _ in range(chance.randint(0, 4)):
                place = chance.randrange(len(data))
                if not _SIZE_AT <= place < _SIZE_AT + 4:
                    data[place] = chance.randrange(256)
            await line.send(bytes(data))
        await line.read_all(1.0)


async def impossible_sequences(stranger: Stranger) -> None:
    """Transactional messages whose numbers no acknowledgment could name."""
    target, chance = stranger.target(), stranger.chance
    async with session(stranger, target) as line:
        for _ in range(5):
            data = bytearray(
                packet(
                    stranger,
                    at(target, TRANSACTIONAL),
                    transactional=True,
                    journal=True,
                    dead_letter=True,
                    time_to_be_received=chance.choice((None, 1)),
                )
            )
            numbers = chance.choice(((0, 0), (0, 0xFFFFFFFF), (5, 9), (1, 1), (0xFFFFFFFF, 0)))
            struct.pack_into("<II", data, transaction_header_at(bytes(data)) + _NUMBERS_AT, *numbers)
            await line.send(bytes(data))
        await line.read_all(1.0)


async def forged_acknowledgments(stranger: Stranger) -> None:
    """Ordering acknowledgments for messages that an honest manager has just sent."""
    target, chance = stranger.target(), stranger.chance
    other = stranger.other(target)
    async with session(stranger, target, claim=chance.choice((None, other.id))) as line:
        newest = stranger.newest_id(target)
        for _ in range(chance.randint(1, 30)):
            common = {
                "source_queue_manager": chance.choice((other.id, uuid4())),
                "message_id": chance.randrange(1, 1 << 32),
                "sent_time": int(time.time()),
                "destination_queue": order_queue(chance.choice((None, target.host))),
                "queue_manager_address": chance.choice((NULL_GUID, target.id)),
                "sequence_id": TxSequenceId(chance.randrange(4), int(time.time()) - chance.randrange(3600)),
                "sequence_number": (number := chance.choice((1, chance.randrange(1, 5000), 0xFFFFFFFF))),
                "previous_sequence_number": number - 1,
            }
            if chance.random() < 0.5:
                await line.send(OrderAck(**common).encode())  # type: ignore[arg-type]
            else:
                final = FinalAck(
                    **common,  # type: ignore[arg-type]
                    final_class=chance.choice((MessageClass.ACK_RECEIVE, MessageClass.NACK_Q_DELETED)),
                    source_guid=target.id,
                    acknowledged_message_id=(newest + chance.randint(-50, 50)) & 0xFFFFFFFF or 1,
                )
                await line.send(final.encode())
        await line.read_all(1.0)


async def claimed_identity(stranger: Stranger) -> None:
    """A session that claims to be the other honest manager's, to get messages that are meant for it."""
    target = stranger.target()
    async with session(stranger, target, claim=stranger.other(target).id) as line:
        for _ in range(stranger.chance.randint(1, 5)):
            await line.read(timeout=1.0)


async def stolen_numbers(stranger: Stranger) -> None:
    """Messages in the other honest manager's name, with the ids and sequences that its own will have."""
    target, chance = stranger.target(), stranger.chance
    other = stranger.other(target)
    newest = stranger.newest_id(other)
    async with session(stranger, target, claim=chance.choice((other.id, None))) as line:
        for step in range(chance.randint(1, 60)):
            transactional = chance.random() < 0.4
            queue = TRANSACTIONAL if transactional else RECOVERABLE
            await line.send(
                packet(
                    stranger,
                    at(target, queue),
                    source=other.id,
                    number=(newest + step) & 0xFFFFFFFF,
                    transactional=transactional,
                )
            )
        await line.read_all(1.0)


async def reflections(stranger: Stranger) -> None:
    """Messages whose acknowledgments, reports and next hops would trouble somebody else."""
    target, chance = stranger.target(), stranger.chance
    async with session(stranger, target) as line:
        for _ in range(chance.randint(1, 20)):
            victim = chance.choice(
                (rf"DIRECT=TCP:{CANARY}\private$\x", rf"DIRECT=OS:{CANARY}\private$\x", f"PRIVATE={uuid4()}\\7")
            )
            await line.send(
                packet(
                    stranger,
                    chance.choice((at(target, OPEN), at(target, r"private$\none"), f"PRIVATE={uuid4()}\\9")),
                    admin_queue=victim,
                    ack="full",
                    trace=chance.choice((None, uuid4())),
                    dead_letter=True,
                )
            )
        await line.read_all(0.5)


async def unknown_managers(stranger: Stranger) -> None:
    """Messages to be forwarded to managers that nobody knows."""
    target = stranger.target()
    async with session(stranger, target) as line:
        for _ in range(stranger.chance.randint(1, 60)):
            guid = uuid4()
            await line.send(packet(stranger, f"PRIVATE={guid}\\9", manager=guid))
        await line.read_all(0.5)


async def many_managers(stranger: Stranger) -> None:
    """Each message comes from a different manager, so that everything remembered of managers grows."""
    target = stranger.target()
    async with session(stranger, target) as line:
        for _ in range(stranger.chance.randint(1, 60)):
            data = packet(stranger, at(target, some_queue(stranger)), transactional=True, journal=True)
            await line.send(data)
        await line.read_all(0.5)


async def made_up_queues(stranger: Stranger) -> None:
    """Transactional messages to very many queues that do not exist, from one manager or from many."""
    target, chance = stranger.target(), stranger.chance
    source = uuid4() if chance.random() < 0.5 else None
    async with session(stranger, target, claim=source) as line:
        for number in range(chance.randint(100, 800)):
            queue = rf"private$\none-{chance.randrange(1 << 30)}"
            await line.send(packet(stranger, at(target, queue), source=source, number=number + 1, transactional=True))
        await line.read_all(1.0)


async def short_sessions(stranger: Stranger) -> None:
    """Very many sessions, each of a new manager that leaves one message."""
    target = stranger.target()
    for _ in range(stranger.chance.randint(20, 150)):
        with suppress(Refused):
            guid = uuid4()
            async with session(stranger, target, claim=guid) as line:
                await line.send(packet(stranger, at(target, OPEN), source=guid))


async def many_ids(stranger: Stranger) -> None:
    """Very many message ids, so that others' are forgotten and a repeated message would be accepted again."""
    target, guid = stranger.target(), uuid4()
    async with session(stranger, target, claim=guid) as line:
        for number in range(stranger.chance.randint(100, 1500)):
            await line.send(packet(stranger, at(target, OPEN), source=guid, number=number + 1))
        await line.read_all(1.0)


async def writing_by_proxy(stranger: Stranger) -> None:
    """Messages that would make the manager write where their sender may not: into a closed queue, or its dead
    letters."""
    target, chance = stranger.target(), stranger.chance
    closed = at(target, CLOSED)
    async with session(stranger, target) as line:
        for _ in range(chance.randint(1, 60)):
            transactional = chance.random() < 0.5
            queue = chance.choice((OPEN, TRANSACTIONAL, r"private$\none", CLOSED))
            data = packet(
                stranger,
                at(target, queue),
                transactional=transactional,
                admin_queue=closed,
                ack="full",
                dead_letter=True,
                dead_letter_queue=chance.choice((None, closed)),
                journal=True,
                time_to_be_received=chance.choice((None, 0, 1)),
            )
            await line.send(data if chance.random() < 0.5 else as_a_manager(data))
        await line.read_all(1.0)


def as_a_manager(data: bytes) -> bytes:
    """The same message, unsigned, with the claim that a queue manager has sent it for itself."""
    message = UserMessage.decode(data)
    source = message.user.source_queue_manager.bytes_le
    return replace(message, security=SecurityHeader(SenderIdType.QUEUE_MANAGER, source)).encode()


async def deaf_session(stranger: Stranger) -> None:
    """Sends messages, asks for acknowledgments, and never reads one."""
    target = stranger.target()
    async with session(stranger, target) as line:
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(stranger.chance.randint(10, 100)):
            await line.send(packet(stranger, at(target, OPEN), ack="full", admin_queue=at(target, OPEN)))
        await asyncio.sleep(stranger.chance.uniform(0.5, 3.0))


async def lying_counts(stranger: Stranger) -> None:
    target, chance = stranger.target(), stranger.chance
    async with session(stranger, target, claim=chance.choice((None, stranger.other(target).id))) as line:
        header = SessionHeader(
            user_msg_sequence_number=chance.randrange(1 << 16), window_size=chance.choice((0, 1, 0xFFFF))
        )
        await line.send(SessionAck(header).encode())
        await line.read_all(1.0)


async def pings(stranger: Stranger) -> None:
    """Garbage by UDP."""
    loop = asyncio.get_running_loop()
    target = stranger.target()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(target.host, PING))
    for _ in range(stranger.chance.randint(1, 50)):
        transport.sendto(stranger.chance.randbytes(stranger.chance.randint(0, 200)))
    transport.close()


async def churn(stranger: Stranger) -> None:
    """Connections that come and go."""
    target = stranger.target()
    for _ in range(stranger.chance.randint(1, 50)):
        with suppress(Refused):
            async with stranger.line(target.host, BINARY):
                pass


ATTACKS = (
    idle_connections,
    unfinished_packets,
    garbage,
    broken_messages,
    broken_messages,
    impossible_sequences,
    forged_acknowledgments,
    claimed_identity,
    stolen_numbers,
    reflections,
    unknown_managers,
    many_managers,
    made_up_queues,
    short_sessions,
    many_ids,
    writing_by_proxy,
    deaf_session,
    lying_counts,
    pings,
    churn,
)
