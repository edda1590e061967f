"""What cannot be sent to a multicast address: a caller hears it at once, and nothing is queued."""

from __future__ import annotations

from collections.abc import Sequence

from postroad.errors import InvalidMessage, MessageTooLarge, NotEncrypted, TransactionUsage
from postroad.message import Message
from postroad.wire.bodies import encode_body

# [MC-MQSRM] 2.1.3.1: an APDU has 64 KiB, with the envelope and HTTP's header. What they need is left free.
MAX_CONTENT = 61_440


OFF = "multicast is off here: set `enabled = true` in [multicast] of the manager's configuration, and restart it"


def check_multicast(messages: Sequence[Message], transactional: bool) -> None:
    """Raises what [MS-MQMQ] 2.1.6 and [MC-MQSRM] 2.1.3 want refused."""
    if transactional:
        raise TransactionUsage("a message to a multicast address cannot be sent in a transaction")
    for message in messages:
        if message.encrypt is not None:
            raise NotEncrypted("a message to a multicast address cannot be encrypted: it has no single receiver")
        if message.trace is not None:
            raise InvalidMessage("trace: a message to a multicast address cannot be traced")
        body = message.body
        size = len(encode_body(body, message.body_type) if isinstance(body, str) else body) + len(message.extension)
        if size > MAX_CONTENT:
            raise MessageTooLarge(
                f"a message to a multicast address can have {MAX_CONTENT} bytes of body and extension, got {size}"
            )
