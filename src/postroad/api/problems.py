"""Errors as HTTP answers: a table with the status of each error, and the problem+json that describes it.

[RFC 9457]. Errors bring their own sentences. Only refusals about HTTP itself have their texts here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus

from postroad.errors import (
    AccessDenied,
    ConfigurationError,
    CorruptRecord,
    DirectoryError,
    DiskFull,
    IllegalCursorAction,
    IllegalName,
    IllegalQueueFormat,
    InvalidArgument,
    InvalidHandle,
    InvalidMessage,
    LeaseEnded,
    LimitReached,
    LocalProtocolError,
    ManagerFull,
    ManagerNotFound,
    MessageAlreadyReceived,
    MessageNotFound,
    MessageTooLarge,
    NoMessage,
    NoRoute,
    NotAuthenticated,
    NotEncrypted,
    OperationCancelled,
    PostroadError,
    QueueExists,
    QueueNotAvailable,
    QueueNotFound,
    QuotaExceeded,
    RemoteProtocolError,
    SharingViolation,
    StorageError,
    TooManyHeld,
    TransactionSequence,
    TransactionUsage,
    UnsupportedAccessMode,
    UnsupportedFormatNameOperation,
)
from postroad.net.exchange import Response

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 4096

# By class. A class that is not listed has the status of its nearest listed base.
STATUSES: Mapping[type[PostroadError], HTTPStatus] = {
    PostroadError: HTTPStatus.INTERNAL_SERVER_ERROR,
    LocalProtocolError: HTTPStatus.BAD_REQUEST,
    RemoteProtocolError: HTTPStatus.BAD_REQUEST,  # the peer is the caller, who imports a packet
    IllegalName: HTTPStatus.BAD_REQUEST,
    IllegalQueueFormat: HTTPStatus.BAD_REQUEST,
    InvalidArgument: HTTPStatus.BAD_REQUEST,
    InvalidMessage: HTTPStatus.BAD_REQUEST,
    UnsupportedAccessMode: HTTPStatus.BAD_REQUEST,
    UnsupportedFormatNameOperation: HTTPStatus.BAD_REQUEST,
    NotAuthenticated: HTTPStatus.UNAUTHORIZED,
    AccessDenied: HTTPStatus.FORBIDDEN,
    NotEncrypted: HTTPStatus.CONFLICT,
    QueueNotFound: HTTPStatus.NOT_FOUND,
    ManagerNotFound: HTTPStatus.NOT_FOUND,
    NoRoute: HTTPStatus.NOT_FOUND,
    MessageNotFound: HTTPStatus.NOT_FOUND,
    InvalidHandle: HTTPStatus.NOT_FOUND,
    NoMessage: HTTPStatus.NO_CONTENT,
    QueueExists: HTTPStatus.CONFLICT,
    SharingViolation: HTTPStatus.CONFLICT,
    TransactionUsage: HTTPStatus.CONFLICT,
    TransactionSequence: HTTPStatus.CONFLICT,
    LeaseEnded: HTTPStatus.CONFLICT,
    IllegalCursorAction: HTTPStatus.CONFLICT,
    OperationCancelled: HTTPStatus.CONFLICT,
    MessageAlreadyReceived: HTTPStatus.GONE,
    QueueNotAvailable: HTTPStatus.GONE,
    MessageTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    DirectoryError: HTTPStatus.SERVICE_UNAVAILABLE,
    StorageError: HTTPStatus.SERVICE_UNAVAILABLE,
    CorruptRecord: HTTPStatus.INTERNAL_SERVER_ERROR,  # a repeat does not help
    ConfigurationError: HTTPStatus.INTERNAL_SERVER_ERROR,
    QuotaExceeded: HTTPStatus.INSUFFICIENT_STORAGE,  # not 429: the caller is not too fast, the queue is full
    LimitReached: HTTPStatus.INSUFFICIENT_STORAGE,
    TooManyHeld: HTTPStatus.TOO_MANY_REQUESTS,  # the caller holds them and can release some
    DiskFull: HTTPStatus.INSUFFICIENT_STORAGE,
    ManagerFull: HTTPStatus.INSUFFICIENT_STORAGE,
}
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class HttpFault(Exception):
    """An error with another HTTP status than the table gives it."""

    def __init__(self, status: HTTPStatus, error: PostroadError, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.error = error
        self.headers = headers
        super().__init__(str(error))


def status_of(error: type[PostroadError]) -> HTTPStatus:
    return next(STATUSES[each] for each in error.__mro__ if each in STATUSES)


def problem(
    error: PostroadError,
    status: HTTPStatus | None = None,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> Response:
    """The answer that describes `error`, without a body if the status allows none. `more` are members besides."""
    status = status or status_of(type(error))
    if status is HTTPStatus.NO_CONTENT:
        return Response(status=status, headers=headers)
    return Response(json.dumps(members(error, status) | more).encode(), status, MEDIA_TYPE, headers)


def members(error: PostroadError, status: HTTPStatus | None = None) -> dict[str, object]:
    """The members of the problem that describes `error`."""
    described: dict[str, object] = {
        "title": _title(type(error)),
        "status": (status or status_of(type(error))).value,
        "detail": _short(str(error)),
        "hresult": f"0x{error.status:08X}",
        "code": error.status.name,
        "error": type(error).__name__,
    }
    if isinstance(error, QuotaExceeded):
        described["setting"] = error.setting
        if not isinstance(error, LimitReached):
            described |= {"limit_bytes": error.limit_bytes, "current_bytes": error.current_bytes}
    return described


def _short(sentence: str) -> str:
    """Cuts a long sentence in the middle: it may repeat what the caller sent, and the advice comes last."""
    end = MAX_DETAIL // 2
    return sentence if len(sentence) <= MAX_DETAIL else f"{sentence[:end]} ... {sentence[-end:]}"


def _title(error: type[PostroadError]) -> str:
    """The name of the class in words, like `Queue not found`."""
    return _WORD.sub(" ", error.__name__).capitalize()


def bug() -> Response:
    """The answer to an unexpected error. The caller learns only that the server failed; the log has the error."""
    return problem(PostroadError("the server failed; its log has the details"))
