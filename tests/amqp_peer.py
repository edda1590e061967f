"""A peer that speaks AMQP 1.0 frame by frame, also wrongly. Its frames are made with the codec of the product:
the tests with Proton and rhea show that others understand that."""

from __future__ import annotations

import socket
from typing import Any

from postroad.amqp.codec import (
    NULL,
    binary,
    boolean,
    described,
    listed,
    read_value,
    symbol,
    symbols,
    text,
    ubyte,
    uint,
    ushort,
)
from postroad.amqp.performatives import (
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    FLOW,
    FRAME,
    HEADER,
    INIT,
    OPEN,
    SASL_HEADER,
    SOURCE,
    TARGET,
    TRANSFER,
    frame,
    read_body,
)

LOGIN = SASL_HEADER + frame(0, described(INIT, listed(symbol("ANONYMOUS"), binary(b""))), 1) + HEADER
_BIG = 0x7FFFFFFF


def opening(container: str = "peer", frame_size: int = 0xFFFF, idle_ms: int | None = None) -> bytes:
    idle = NULL if idle_ms is None else uint(idle_ms)
    return frame(0, described(OPEN, listed(text(container), NULL, uint(frame_size), ushort(255), idle)))


def begin(channel: int = 0, window: int = _BIG) -> bytes:
    return frame(channel, described(BEGIN, listed(NULL, uint(0), uint(window), uint(_BIG), uint(_BIG))))


def source(address: str | None, *, dynamic: bool = False, mode: str | None = None) -> bytes:
    named = NULL if address is None else text(address)
    way = NULL if mode is None else symbol(mode)
    return described(SOURCE, listed(named, NULL, NULL, NULL, boolean(dynamic), NULL, way))


def target(address: str | None) -> bytes:
    return described(TARGET, listed(NULL if address is None else text(address)))


def coordinator() -> bytes:
    return described(COORDINATOR, listed(symbols(())))


def attach_sender(end: bytes, handle: int = 0, name: str = "sender", channel: int = 0) -> bytes:
    """The peer sends."""
    fields = (text(name), uint(handle), boolean(False), ubyte(2), ubyte(0), source("here"), end, NULL, NULL, uint(0))
    return frame(channel, described(ATTACH, listed(*fields)))


def attach_receiver(
    end: bytes, handle: int = 0, name: str = "receiver", channel: int = 0, settled: bool = False
) -> bytes:
    fields = (text(name), uint(handle), boolean(True), ubyte(1 if settled else 0), ubyte(0), end, target("there"))
    return frame(channel, described(ATTACH, listed(*fields)))


def flow(
    credit: int, handle: int = 0, *, count: int = 0, drain: bool = False, window: int = _BIG, got: int = 0
) -> bytes:
    fields = (
        uint(got),
        uint(window),
        uint(0),
        uint(_BIG),
        uint(handle),
        uint(count),
        uint(credit),
        NULL,
        boolean(drain),
    )
    return frame(0, described(FLOW, listed(*fields)))


def transfer(
    payload: bytes,
    number: int = 0,
    handle: int = 0,
    *,
    settled: bool = False,
    more: bool = False,
    first: bool = True,
    aborted: bool = False,
    state: bytes = NULL,
) -> bytes:
    identity = (uint(number), binary(b"%d" % number), uint(0)) if first else (NULL, NULL, NULL)
    flags = (boolean(settled), boolean(more), NULL, state, NULL, boolean(aborted))
    return frame(0, described(TRANSFER, listed(uint(handle), *identity, *flags)) + payload)


def disposition(first: int, last: int, state: bytes, *, settled: bool = True) -> bytes:
    fields = (boolean(True), uint(first), uint(last), boolean(settled), state)
    return frame(0, described(DISPOSITION, listed(*fields)))


def detach(handle: int = 0, *, closed: bool = True) -> bytes:
    return frame(0, described(DETACH, listed(uint(handle), boolean(closed))))


def data(body: bytes) -> bytes:
    return b"\0\x53\x75" + binary(body)


Received = tuple[int, int, list[Any], bytes]  # the channel, the number of the body, its fields, the payload


class RawPeer:
    """Sends any bytes, and reads frames until one of a kind comes."""

    def __init__(self, connection: socket.socket, login: bool = True) -> None:
        self.connection = connection
        self._buffer = b""
        if login:
            self.write(LOGIN + opening() + begin())
            self.until(BEGIN)

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def write(self, data: bytes) -> None:
        self.connection.sendall(data)

    def _more(self) -> bool:
        found = self.connection.recv(1 << 16)
        self._buffer += found
        return bool(found)

    def read(self) -> Received | None:
        """The next frame with a body; None at the end of the connection."""
        while True:
            if self._buffer[:4] == b"AMQP" and len(self._buffer) >= 8:
                self._buffer = self._buffer[8:]
                continue
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < max(size, 8):
                try:
                    if not self._more():
                        return None
                except ConnectionResetError:
                    return None
                continue
            whole, self._buffer = self._buffer[:size], self._buffer[size:]
            _, offset, _, channel = FRAME.unpack_from(whole)
            if size > 4 * offset:
                code, fields, at = read_body(whole, 4 * offset, size)
                return channel, code, fields, whole[at:]

    def until(self, code: int) -> list[Any]:
        """The fields of the next frame of this kind. Others are skipped."""
        return self.frame(code)[2]

    def frame(self, code: int) -> Received:
        while (found := self.read()) is not None:
            if found[1] == code:
                return found
            assert found[1] != CLOSE, f"closed: {found[2]}"
        raise AssertionError(f"the connection ended before {code:#04x}")

    def closed_with(self) -> str:
        """The condition with which the other end closes the connection; empty if there is none."""
        while (found := self.read()) is not None:
            if found[1] == CLOSE:
                return str(found[2][0].value[0]) if found[2] else ""
        return ""


def sections(payload: bytes) -> dict[int, Any]:
    """The sections of a message by number."""
    at, found = 0, {}
    while at < len(payload):
        section, at = read_value(payload, at, len(payload))
        found[section.descriptor] = section.value
    return found
