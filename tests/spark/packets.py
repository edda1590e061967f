"""Bronze rows made by hand: real packets, and where and when they were found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from postroad.message import Composer, Message
from postroad.names import PublicName, parse_name
from postroad.spark.pipeline.bronze import BRONZE
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId
from postroad.wire.patch import stamp_transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONDON, ROME = UUID("aaaa0000-0000-0000-0000-000000000001"), UUID("bbbb0000-0000-0000-0000-000000000002")
NAMES = {LONDON: "london", ROME: "rome"}
ORDERS = rf"PRIVATE={ROME}\1"
NOON_S = 1_700_049_600  # a whole minute


@dataclass(frozen=True, slots=True)
class Copy:
    """A packet in a queue of a manager, some seconds after noon."""

    manager: UUID
    queue: str
    role: str
    packet: bytes
    at_s: float = 0.0
    reason: int | None = None
    batch: int = 1


def sent(number: int, *, to: str = ORDERS, transactional: bool = False, at_s: int = 0, **properties: Any) -> bytes:
    """The packet of a message from london, sent some seconds after noon."""
    name = parse_name(to)
    message = Message(**{"body": f"body {number}", "label": f"message {number}"} | properties)
    composer = Composer(LONDON, name)  # type: ignore[arg-type]
    return composer.compose(message, number, NOON_S + at_s, transactional=transactional)


def acknowledgment(about: int, kind: MessageClass, *, at_s: int = 0, by: UUID = ROME, source: UUID = LONDON) -> bytes:
    correlation = source.bytes_le + about.to_bytes(4, "little")
    message = Message(
        b"", label=f"message {about}", message_class=kind, correlation_id=correlation, response_queue=ORDERS
    )
    return Composer(by, parse_name(rf"PRIVATE={source}\2")).compose(message, 1000 + about, NOON_S + at_s)  # type: ignore[arg-type]


def report(about: int, hops: int, by: UUID, at_s: int) -> bytes:
    """[MS-MQQB] 3.1.5.8.9"""
    label = f"{str(LONDON)[:4].upper()}:{about:08X}:{hops:02X} received by {LONDON} at noon"
    body = f"<MESSAGE ID>{about:08X}</MESSAGE ID>\r\n<TARGET QUEUE>{ORDERS}</TARGET QUEUE>\r\n"
    message = Message(body.encode("utf-16-le"), label=label, message_class=MessageClass.REPORT)
    return Composer(by, PublicName(LONDON)).compose(message, 2000 + about + hops, NOON_S + at_s)


def in_sequence(number: int, place: int, at_s: int = 0) -> bytes:
    packet = sent(number, transactional=True, at_s=at_s)
    return stamp_transaction(packet, TxSequenceId(1, 9), place, place - 1, 5, first=True, last=True)


def bronze(spark: SparkSession, copies: Iterable[Copy], first: int = 1) -> DataFrame:
    """`first` is the arrival number of the first copy."""
    rows = []
    for arrival, copy in enumerate(copies, first):
        arrived = datetime.fromtimestamp(NOON_S, UTC) + timedelta(seconds=copy.at_s)
        rows.append(
            (
                copy.batch,
                NAMES[copy.manager],
                str(copy.manager),
                copy.queue,
                copy.role,
                arrival,
                arrival,
                arrived,
                0,
                None if copy.reason is None else int(copy.reason),
                copy.packet,
                arrived.date(),
            )
        )
    return spark.createDataFrame(rows, BRONZE)
