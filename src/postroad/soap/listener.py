"""The HTTP door of the SOAP protocol. Every bad request gets 400 and no body.

A request has no task and no turn of the event loop of its own: the callback that has read all of it hands it over, and
the callback that has the answer writes it.
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
    """Takes the requests of listeners."""

    def refusal(self, request: Request) -> int | None:
        """The status of a request that is refused by its head; None for one whose body is wanted."""

    def incomplete(self, request: Request) -> None:
        """The body is too large, or its sender has gone before the end."""

    def take(self, incoming: Incoming, answer: Callable[[int], None]) -> None:
        """A whole request. `answer` follows with the status, now or later."""


class SoapApp(App):
    """Reads whole bodies, and answers with a status alone."""

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
        return Response(status=BAD_REQUEST)


def _refuse(request: Request, status: int) -> None:
    """What follows a refused head must not be taken for a request."""
    request.keep_alive = False
    _answer(request, status)


def _answer(request: Request, status: int) -> None:
    request.connection.answer(request, _response(status))


@lru_cache
def _response(status: int) -> Response:
    return Response(status=status, headers={"allow": "POST"} if status == METHOD_NOT_ALLOWED else None)
