"""What people are told of outgoing queues that lead to a URL: plain values, and one sentence on what a queue waits for.

Only reads. What a state means and when it changes is in service.py and sender.py.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from postroad.queues.carriers import CarrierReport
from postroad.queues.queue import PositionState, Queue
from postroad.soap.sender import Flight, Transfer

if TYPE_CHECKING:
    from postroad.soap.service import Peer, SoapService

STUCK_S = 15.0  # a step that takes longer is worth a look
# What an answer that no queue manager gives means, and what to do; the rest speak for themselves.
_LOGIN = "it wants a login or forbids this manager: let it in there, or set srmp.proxy with its user and password"
_ELSEWHERE = "it sends us elsewhere, and messages follow nobody: send to the right URL, or set [[srmp.outbound]]"
_STATUSES = frozenset(HTTPStatus)
_ADVICE = {
    **dict.fromkeys((301, 302, 303, 307, 308), _ELSEWHERE),
    **dict.fromkeys((401, 403, 407, 511), _LOGIN),
    **dict.fromkeys(
        (404, 405, 410), "nothing takes messages at that URL: check its path, and what the proxy does with it"
    ),
    **dict.fromkeys((408, 425, 429), "it is too busy: nothing to do if it passes"),
    413: "the message is too large for it: raise the limit of the proxy or web server",
    **dict.fromkeys((502, 504), "the proxy or web server does not reach the queue manager: check that it runs"),
}


def report(service: SoapService, queue: Queue, now: float) -> CarrierReport:
    peer = service.peer_of(queue)
    transfer = service.sender.transfers.get(queue) or Transfer()
    posts = [post.flight for post in peer.posts if post.flight.queue is queue] if peer is not None else []
    ordering = [each for each in transfer.unacked if each.answered]
    leaving = sum(state is PositionState.DELETED for state in queue.positions.values())
    held = len(posts) + len(ordering) + len(transfer.awaiting_final) + leaving
    unsent = max(0, queue.count - held)
    retry_s = None if peer is None or peer.retry_at is None else _until(peer.retry_at, now)
    resend_s = None if transfer.resend_at is None or not ordering else _until(transfer.resend_at, now)
    fault = None if peer is None else peer.last_error
    if retry_s is None and (again_at := _again_at(transfer, posts, unsent)) is not None:
        retry_s, fault = _until(again_at, now), transfer.fault
    why, stuck = _why(peer, fault, unsent, posts, ordering, len(transfer.awaiting_final), now, retry_s, resend_s)
    return CarrierReport(
        why=why if queue.count else None,
        stuck=stuck and queue.count > 0,
        unsent=unsent,
        in_flight=len(posts),
        unacknowledged=len(ordering),
        awaiting_final_ack=len(transfer.awaiting_final),
        next_retry_s=retry_s,
        next_resend_s=resend_s,
        resend_interval_s=None if resend_s is None else service.settings.resend_s[transfer.resend_index],
    )


def answer_in_words(host: str, status: int) -> str:
    """An answer other than 2xx and 400, for people."""
    phrase = f" ({HTTPStatus(status).phrase})" if status in _STATUSES else ""
    advice = _ADVICE.get(status)
    return f"{host} answered {status}{phrase}" + ("" if advice is None else f": {advice}")


def _why(
    peer: Peer | None,
    fault: str | None,
    unsent: int,
    posts: list[Flight],
    ordering: list[Flight],
    final: int,
    now: float,
    retry_s: float | None,
    resend_s: float | None,
) -> tuple[str, bool]:
    """What the messages wait for, and whether somebody ought to look."""
    if peer is None:
        return "not tried yet", False
    host = peer.address.host
    if retry_s is not None:
        return f"{fault or 'not connected'}; next try in {retry_s:.1f} s", True
    if posts:
        since = _longest(posts, now)
        return f"sent to {host}, waiting for its answer for {since:.1f} s", since > STUCK_S
    if ordering:
        since = _longest(ordering, now)
        again = "" if resend_s is None else f"; sent again in {resend_s:.1f} s"
        return f"arrived at {host}, waiting for its stream receipt for {since:.1f} s{again}", since > STUCK_S
    if unsent:
        return f"about to be sent to {host}", False
    if final:
        return f"arrived at {host}, and kept until it is known whether they were received", False
    return "nothing is left to send: held by a reader, or about to leave the queue", False


def _again_at(transfer: Transfer, posts: list[Flight], unsent: int) -> float | None:
    """When a queue goes on that an answer holds up, or the first of the messages that stepped aside, if all did."""
    if transfer.waits_until is None and transfer.aside and not posts and unsent == len(transfer.aside):
        return min(again_at for again_at, _ in transfer.aside.values())
    return transfer.waits_until


def _longest(flights: list[Flight], now: float) -> float:
    return max(0.0, now - min(each.sent_at for each in flights))


def _until(time: float, now: float) -> float:
    return round(max(0.0, time - now), 3)
