"""The body of a Change Notification Message, [MS-MQCN] 2.2.4 and 2.2.5: an object of the directory has changed.

Queue managers send version 2, which says only which object, so its reader asks the directory. Version 1 is from a
directory of MSMQ 1.0, carries the changed values itself, and is not read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from uuid import UUID

from postroad.errors import RemoteProtocolError

_HEAD: Final = b"\x02\x01"  # Version, NumberOfUpdateNotifications
_MAX_BYTES: Final = 2048  # the longest that 2.2.5 allows has under 900
_SERVER: Final = re.compile(r"[\x21-\x7E]{1,256}")
# 2.2.5 prints a space in one end tag, which no XML reader would mind
_BODY: Final = re.compile(
    r"<Notification>\s*<Event>([1-4])</Event>\s*"
    r"<ObjectGuid>\{?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})\}?</ObjectGuid\s?>\s*"
    r"<DomainController>([\x21-\x7E]{1,256})</DomainController>\s*</Notification>\0*"
)


class ChangeEvent(IntEnum):
    """The Event of a Notification Body."""

    QUEUE_CREATION = 1
    QUEUE_UPDATE = 2
    QUEUE_DELETION = 3
    QUEUE_MANAGER_UPDATE = 4


@dataclass(frozen=True, slots=True)
class ChangeNotification:
    """`server` is the domain controller that was told of the change. A reader must not go by it."""

    event: ChangeEvent
    object_guid: UUID
    server: str

    def encode(self) -> bytes:
        """With the unused byte at the end that 3.3.5.3 demands."""
        server = self.server if _SERVER.fullmatch(self.server) else "."
        text = (
            f"<Notification><Event>{self.event.value}</Event><ObjectGuid>{str(self.object_guid).upper()}</ObjectGuid>"
            f"<DomainController>{server}</DomainController></Notification>"
        )
        return _HEAD + text.encode("utf-16-le") + b"\0"

    @classmethod
    def decode(cls, body: bytes) -> ChangeNotification:
        """Raises RemoteProtocolError for other versions, and for bytes that are none."""
        if len(body) > _MAX_BYTES or body[: len(_HEAD)] != _HEAD:
            raise RemoteProtocolError("a change notification must have version 2 and one update", 0)
        end = len(body) - (len(body) - len(_HEAD)) % 2
        try:
            found = _BODY.fullmatch(body[len(_HEAD) : end].decode("utf-16-le"))
        except UnicodeDecodeError:
            found = None
        if found is None:
            raise RemoteProtocolError("a change notification must have a Notification Body", len(_HEAD))
        return cls(ChangeEvent(int(found[1])), UUID(found[2]), found[3])
