"""The HTTP side of the SOAP protocol. Every bad request gets 400 without a body.

Requests need no task: the callback that has read a whole request hands it over, and the callback that has the answer
writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Protocol

from postroad.net.endpoints import plain_address
from postroad.net.http import App
from postroad.net.request import Request
from postroad.net.response import Response
from postroad.soap.multipart import MAX_ENTITY_SIZE
from postroad.soap.receiver import BAD_REQUEST, Incoming

METHOD_NOT_ALLOWED = 405


class Requests(Protocol):
    """Takes requests from listeners."""

    def refusal(self, request: Request) -> int | None:
        """The status for a request that is refused by its head; None if its body is wanted."""

    def incomplete(self, request: Request) -> None:
        """Notes that the body is too large, or that its sender left before the end."""

    def take(self, incoming: Incoming, answer: Callable[[int], None]) -> None:
        """Takes a whole request. Calls `answer` with the status, now or later."""


class SoapApp(App):
    """Reads whole bodies and answers with only a status."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def begin(self, request: Request) -> None:
        status = self._requests.refusal(request)
        if status is not None:
            _refuse(request, status)
        elif request.complete:
            self._collected(request)
        else:
            request.collect(MAX_ENTITY_SIZE, partial(self._collected, request))

    def _collected(self, request: Request) -> None:
        if not request.complete or request.size > MAX_ENTITY_SIZE:
            self._requests.incomplete(request)
            _refuse(request, BAD_REQUEST)
            return
        peer = request.connection
        incoming = Incoming(request.header(b"content-type"), request.take(), plain_address(peer.peer), peer.local)
        self._requests.take(incoming, partial(_answer, request))

    def refuse(self, status: HTTPStatus, sentence: str) -> Response:
        # A sender gives a message up if the answer is 400, and tries it again if the fault is ours.
        return Response(status=status if status >= HTTPStatus.INTERNAL_SERVER_ERROR else BAD_REQUEST)


def _refuse(request: Request, status: int) -> None:
    """Refuses a request by its head, and closes the connection: the body that follows must not be read as a request."""
    request.keep_alive = False
    _answer(request, status)


def _answer(request: Request, status: int) -> None:
    request.connection.answer(request, _response(status))


@lru_cache
def _response(status: int) -> Response:
    return Response(status=status, headers={"allow": "POST"} if status == METHOD_NOT_ALLOWED else None)
