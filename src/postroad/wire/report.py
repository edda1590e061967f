"""Trace reports, [MS-MQQB] 3.1.5.8.9 and 3.1.7.1.7: managers report a traced message in a label and a body."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from postroad.wire.constants import MessageClass
from postroad.wire.view import MessageView

MESSAGE_ID_TAG = "<MESSAGE ID>"
_LABEL = re.compile(r"([0-9A-Fa-f]{4}):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{2})(?: .*)?", re.DOTALL)
_ELEMENT = re.compile(r"<(MESSAGE ID|TARGET QUEUE|NEXT HOP|HOP COUNT)>(.*?) *</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """The message that a manager saw, its number of hops, and its destination.

    Only a manager that forwards a message reports a next hop.
    """

    manager_digits: str  # the first four of the GUID of the message's source
    message_id: int
    hops: int
    target_queue: str | None = None
    next_hop: str | None = None

    @classmethod
    def of(cls, view: MessageView) -> Self | None:
        """The report in a message, or None if the message is not a report in this grammar."""
        if view.message_class != MessageClass.REPORT or view.encrypted:
            return None
        label = _LABEL.fullmatch(view.label)
        if label is None:
            return None
        elements = dict(_ELEMENT.findall(view.body.decode("utf-16-le", "replace")))
        return cls(
            label[1].lower(),
            int(label[2], 16),
            int(label[3], 16),
            elements.get("TARGET QUEUE"),
            elements.get("NEXT HOP"),
        )

    def is_about(self, source: UUID, message_id: int) -> bool:
        return self.message_id == message_id and str(source).startswith(self.manager_digits)
