"""The queues that every queue manager keeps to itself, [MS-MQDMPR] 3.1.3. Applications can list them, not open them.

Their names are here and nowhere else: a queue of a user may have a name that looks like one of them, as `my_queue$`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from postroad.names.base import FormatName
from postroad.names.direct import DirectName
from postroad.names.format import PrivateName
from postroad.names.path import PathName

ORDER_QUEUE: Final = "private$\\order_queue$"  # acknowledgments of streams between managers
ORDER_QUEUE_NUMBER: Final = 4
AWAITING_FINAL_ACK: Final = "private$\\final_ack_queue$"  # messages sent and put in order, and not yet received
# [MS-MQQB] note 62 knows these three alone: other managers may have a queue of an application at the fourth's number.
_EVERYWHERE: Mapping[str, int] = {
    "private$\\admin_queue$": 2,
    "private$\\notify_queue$": 3,
    ORDER_QUEUE: ORDER_QUEUE_NUMBER,
}
INTERNAL_QUEUES: Mapping[str, int] = {**_EVERYWHERE, AWAITING_FINAL_ACK: 5}


def is_internal(path: str) -> bool:
    r"""Whether a path without a computer, such as `private$\orders`, is one of them; their journals are not."""
    return path.lower() in INTERNAL_QUEUES


def leads_to_internal(name: FormatName | PathName | None) -> bool:
    """Whether a name means such a queue of any manager."""
    match name:
        case PrivateName():
            return name.number in _EVERYWHERE.values()
        case DirectName() | PathName():
            return name.tail.key[1:] in _EVERYWHERE
    return False
