"""Runs of plain messages: adjacent packets of one sender to one queue, checked in one pass.

The first packet of a run is a MessageView. Another packet belongs to the run if its headers have the same bytes, which
are then as valid as there. The fields that may differ are checked here, by the rules of MessageView. A packet that
fails ends the run. The caller decodes that packet alone and gets the exact error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from postroad.errors import RemoteProtocolError
from postroad.wire.constants import MAX_LABEL_UNITS, BaseFlags, TransactionFlags, UserFlags
from postroad.wire.headers import TRANSACTION_LAYOUT as TRANSACTION
from postroad.wire.octets import check_text
from postroad.wire.patch import transaction_header_at
from postroad.wire.view import MessageView

# With one of these, a message is not plain: it has other parts, or somebody must be told of its arrival.
_BASE_FLAGS = (BaseFlags.INTERNAL | BaseFlags.SESSION_HEADER | BaseFlags.DEBUG_HEADER | BaseFlags.TRACING).value
_USER_FLAGS = (
    UserFlags.POSITIVE_JOURNALING | UserFlags.MULTI_QUEUE_HEADER | UserFlags.ARRIVED_BY_HTTP | UserFlags.SOAP_HEADER
).value
_CONNECTOR_QM_GUID = TransactionFlags.CONNECTOR_QM_GUID.value


class Run(NamedTuple):
    """Plain messages, in the order in which they came.

    All have the headers of `view`, the first one, except for ids, sizes, sent times, places in a transactional
    sequence, labels and bodies. Transactional messages follow each other without a gap: each names the one before it as
    the previous one.
    """

    view: MessageView
    packets: list[bytes]
    identifiers: list[bytes]  # of 20 bytes each
    size: int  # the size of all packets
    oldest_s: int  # the earliest SentTime
    last_number: int  # TxSequenceNumber of the last message, or 0


def is_plain(view: MessageView) -> bool:
    """Whether a message can be in a run."""
    if view.base_flags & _BASE_FLAGS or view.user_flags & _USER_FLAGS or view.ack_flags or view.message_class:
        return False
    place = view.transaction_fields
    return place is None or not place[0] & _CONNECTOR_QM_GUID


def plain_run(view: MessageView, packets: Sequence[bytes], start: int) -> Run:
    """The run that begins with the plain message `view`, which is `packets[start]`."""
    properties_at = view._properties_at
    place_at = transaction_header_at(view.data) if view.transactional else properties_at
    unpack = _layout(place_at, properties_at).unpack_from
    text_at = properties_at + _PROPERTIES_SIZE  # where the label, the extension and the body start
    first = unpack(view.data)
    head, _, envelope, oldest_s, _, names, first_place, security = first[:8]
    source = view.source_queue_manager_bytes
    sequence = first_place[4:12]
    last_number = 0 if not first_place else TRANSACTION.unpack(first_place)[4]
    label = b""
    size_of_all = 0
    identifiers: list[bytes] = []
    stop = start
    for packet in packets[start:]:
        length = len(packet)
        if length < text_at:
            break
        (
            its_head,
            size,
            its_envelope,
            sent_s,
            number,
            its_names,
            place,
            its_security,
            ack_flags,
            units,
            message_class,
            message_size,
            allocated,
            extension,
        ) = unpack(packet)
        if (
            its_head != head
            or its_envelope != envelope
            or its_names != names
            or its_security != security
            or ack_flags
            or message_class
        ):
            break
        body_at = text_at + 2 * units
        if (
            size != length
            or body_at + extension + allocated + 3 & ~3 != size
            or message_size > allocated
            or units > MAX_LABEL_UNITS
        ):
            break
        if units and (its_label := packet[text_at:body_at]) != label:
            try:
                check_text(packet, text_at, body_at, "Label")
            except RemoteProtocolError:
                break
            label = its_label
        if place:
            flags, _, _, its_number, previous = TRANSACTION.unpack(place)
            if (
                flags & _CONNECTOR_QM_GUID
                or place[4:12] != sequence
                or previous != last_number
                or its_number <= previous
            ):
                break
            last_number = its_number
        identifiers.append(source + number)
        size_of_all += length
        if sent_s < oldest_s:
            oldest_s = sent_s
        stop += 1
    return Run(view, list(packets[start:stop]), identifiers, size_of_all, oldest_s, last_number)


_PROPERTIES = "BBH28xII12xI"  # Flags, LabelLength, MessageClass, MessageSize, AllocationBodySize, ExtensionSize
_PROPERTIES_SIZE = Struct("<" + _PROPERTIES).size


@lru_cache(maxsize=256)
def _layout(place_at: int, properties_at: int) -> Struct:
    """The layout of a whole packet up to its label.

    Adjacent headers that are equal in a run are one field: TimeToReachQueue, both managers and TimeToBeReceived; and
    UserHeader.Flags and the queues. Between the queues and MessagePropertiesHeader are the TransactionHeader, if there
    is one, and the SecurityHeader.
    """
    place = min(TRANSACTION.size, properties_at - place_at)
    security = properties_at - place_at - place
    return Struct(f"<8sI40sI4s{place_at - 60}s{place}s{security}s{_PROPERTIES}")
