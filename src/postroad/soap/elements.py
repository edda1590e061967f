"""The elements of an SRMP envelope as values, [MC-MQSRM] 2.2.4 to 2.2.7, under the specification's own names.

envelope.py reads and writes the XML; packets.py and requests.py give the values their meaning for queues. Times are
seconds since 1970, UTC. Nobody changes a value. The values made for every message are not frozen, because a frozen one
takes three times as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId

LABEL_PREFIX = "MSMQ:"  # 2.2.4.1
ORDERING_ACK = "MSMQ:QM Ordering Ack"  # 2.2.4.1: the action of every stream receipt
NO_EXPIRY = 0x7FFFFFFF  # 4.2: 20380119T031407 stands for a message that never expires


@dataclass(slots=True)
class Path:
    """2.2.4. `action` and `id` are whole texts. `via` is the response queue; None without a reverse path."""

    action: str
    to: str
    id: str
    via: str | None = None


@dataclass(frozen=True, slots=True)
class Properties:
    """2.2.5.1"""

    expires_at: int
    sent_at: int | None = None


@dataclass(frozen=True, slots=True)
class DeliveryReceiptRequest:
    """2.2.5.2.2"""

    send_to: str


@dataclass(frozen=True, slots=True)
class CommitmentReceiptRequest:
    """2.2.5.2.3. If neither flag is set, no receipt is ever sent."""

    send_to: str
    positive_only: bool = False
    negative_only: bool = False


@dataclass(frozen=True, slots=True)
class Services:
    """2.2.5.2"""

    durable: bool = False
    delivery_receipt_request: DeliveryReceiptRequest | None = None
    commitment_receipt_request: CommitmentReceiptRequest | None = None


@dataclass(frozen=True, slots=True)
class StreamId:
    """2.2.5.3.1: the sending manager and a 64-bit number, which consists of a time stamp and an ordinal."""

    guid: UUID
    sequence: TxSequenceId


@dataclass(frozen=True, slots=True)
class Stream:
    """2.2.5.3. `send_receipts_to` comes from the `start` element of a stream's first message; None in all others."""

    stream_id: StreamId
    current: int
    previous: int | None = None
    send_receipts_to: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryReceipt:
    """2.2.5.4. `id` is the `id` of the acknowledged message."""

    received_at: int
    id: str


class Decision(Enum):
    """2.2.5.5"""

    POSITIVE = "positive"
    NEGATIVE = "negative"


@dataclass(frozen=True, slots=True)
class CommitmentReceipt:
    """2.2.5.5. `id` is the `id` of the acknowledged message."""

    decided_at: int
    decision: Decision
    id: str


@dataclass(frozen=True, slots=True)
class StreamReceipt:
    """2.2.5.6. Together with a CommitmentReceipt, `last_ordinal` names one message; alone, every message up to it."""

    stream_id: StreamId
    last_ordinal: int


@dataclass(frozen=True, slots=True)
class Eod:
    """2.2.6.11: exactly-once delivery."""

    first: bool = False
    last: bool = False
    connector_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """2.2.6.12: the cryptographic provider of a signature."""

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class Msmq:
    """2.2.6. None stands for an absent element, () for an absent list. `ttrq` is a point in time, not a duration."""

    message_class: int
    priority: int
    source_qm_guid: UUID
    ttrq: int
    body_type: int = 0
    journal: bool = False
    dead_letter: bool = False
    correlation: bytes | None = None
    trace: bool = False
    connector_type: UUID | None = None
    app: int | None = None
    hash_algorithm: int | None = None
    eod: Eod | None = None
    provider: Provider | None = None
    destination_mqf: tuple[str, ...] = ()
    admin_mqf: tuple[str, ...] = ()
    response_mqf: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """2.2.7.1.2: a signed part. `uri` contains its Content-Id, as in `cid:body@` and a GUID.

    `transformed` means that it asks for a transform of [XMLDSig], which SRMP does not have.
    """

    uri: str
    digest_method: str
    digest_value: bytes
    transformed: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """2.2.7. This value only carries the signature. `text` is the element as it was read, to check or forward it."""

    signature_method: str
    references: tuple[Reference, ...]
    signature_value: bytes
    text: str | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Source:
    """The texts that an envelope was read from: its Header and Body elements, each with all namespaces that it uses."""

    header: str
    body: str


@dataclass(slots=True)
class Envelope:
    """2.2.2: the blocks of the Header. `source` is set if the envelope was read; comparisons ignore it."""

    path: Path
    properties: Properties
    services: Services | None = None
    stream: Stream | None = None
    delivery_receipt: DeliveryReceipt | None = None
    commitment_receipt: CommitmentReceipt | None = None
    stream_receipt: StreamReceipt | None = None
    msmq: Msmq | None = None
    signature: Signature | None = None
    source: Source | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Attachments:
    """2.2.2: what travels beside the envelope. None for a part that is absent."""

    body: bytes | None = None
    extension: bytes | None = None


# 3.1.5.1.5: the reasons that a commitment can give. The list has none for a message that its reader rejected.
POSITIVE = frozenset({MessageClass.ACK_RECEIVE})
NEGATIVE = frozenset(
    {
        MessageClass.NACK_DELETED,
        MessageClass.NACK_Q_DELETED,
        MessageClass.NACK_Q_PURGED,
        MessageClass.NACK_RECEIVE_TIMEOUT,
    }
)
