"""Reports on traced messages, [MS-MQQB] 3.1.5.8.9 and 3.1.7.1.7: every manager on the way sends them to a public queue.

A report that has nowhere to go is dropped. Other modules read reports.
"""

from __future__ import annotations

from datetime import UTC, datetime

from postroad.errors import IllegalName
from postroad.message import Message
from postroad.names import PublicName
from postroad.queues.local import LocalQueueManager
from postroad.wire.constants import MessageClass
from postroad.wire.octets import NULL_GUID
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView

# The words of the grammar, whatever the language of the computer.
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def send_report(
    core: LocalQueueManager, view: MessageView, now: float, next_hop: str | None = None, *, stored: bool = False
) -> None:
    """Reports that a traced message has arrived or, with `next_hop`, that it was sent to that address. `stored` means
    that it is in its destination queue."""
    header = view.debug_header
    if header is None or header.queue_identifier is None:
        return
    queue = PublicName(header.queue_identifier)
    if core.delivery.manager_of(queue) == NULL_GUID or not core.delivery.may_call(queue, None):
        return  # nobody that we may call has such a queue
    report = Message(
        report_body(view, next_hop).encode("utf-16-le", "surrogatepass"),
        label=report_label(view, now),
        message_class=MessageClass.REPORT,
    )
    core.delivery.send_own(queue, report, now, core.delivery.cause_of(view, stored=stored))


def report_label(view: MessageView, now: float) -> str:
    """The label of a report, on arrival or on sending. The time is UTC."""
    source = str(view.source_queue_manager).upper()
    time = datetime.fromtimestamp(now, UTC)
    half = "AM" if time.hour < 12 else "PM"
    clock = f"{time.hour % 12 or 12:02}:{time.minute:02}:{time.second:02} {half}"
    date = f"{_DAYS[time.weekday()]},{_MONTHS[time.month - 1]} {time.day:02} {time.year % 100:02}"
    return f"{source[:4]}:{view.message_id:08X}:{view.hop_count:02X} received by {source} at {clock} {date}"


def report_body(view: MessageView, next_hop: str | None) -> str:
    try:
        target = str(destination_name(view))
    except IllegalName as fault:
        target = fault.name
    lines = [f"<MESSAGE ID>{view.message_id:08X}</MESSAGE ID>", f"<TARGET QUEUE>{target}</TARGET QUEUE>"]
    if next_hop is not None:
        lines += [f"<NEXT HOP>{next_hop}</NEXT HOP>", f"<HOP COUNT>{view.hop_count:02X} </HOP COUNT>"]
    return "".join(f"{line}\r\n" for line in lines)
