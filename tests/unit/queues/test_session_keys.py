"""The session keys of a manager over time, [MS-MQQB] 3.1.6.10 to 3.1.6.13, by a monotonic clock."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.manager.composition import SECRET
from postroad.manager.keys import Keys
from postroad.message import Message
from postroad.names import PrivateName
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.security.encryption import CERTIFICATE_LIFETIME_S, KEY_LIFETIME_S
from postroad.security.guard import Opened, Protection, Sealer
from postroad.store import MemoryStore
from postroad.wire.view import MessageView
from tests.security_vectors import REGISTERED, RING, SIGNED_2_0, Counted

BETA = UUID(int=0xB)
FAR = PrivateName(BETA, 8)


class Managed:
    """A core whose peer publishes keys. `uptime` is the monotonic clock; `send` gets the time of the system's clock."""

    def __init__(self) -> None:
        self.uptime = 0.0
        self.protection = Protection(Counted(), RING, REGISTERED)
        self.core = LocalQueueManager(
            "alpha",
            UUID(int=0xA),
            MemoryStore(),
            SECRET,
            protection=self.protection,
            public_keys=lambda manager: RING.public_keys,
            key_clock=lambda: self.uptime,
        )
        self.core.start(1000.0)
        self.keys = Keys(self.core, None, None, lambda: 1000.0, lambda: self.uptime)

    def send(self, now: float) -> bytes:
        """Sends an encrypted message at this system time. Returns the session key in it."""
        self.core.send(FAR, [Message("x", encrypt="")], now)
        queue = self.core.queues.outgoing[FAR]
        header = MessageView(list(queue.everything())[-1].packet).security_header
        assert header is not None
        return header.encryption_key


def sealed(packet: bytes) -> bytes:
    found = Sealer(Counted()).seal(packet, RING.public_keys, "aes256", 0.0)
    assert isinstance(found, bytes)
    return found


@pytest.mark.spec("QB-3.1.6.11-01", "QB-3.1.7.1.5-17")
def test_a_key_is_dropped_after_its_time_without_another_send() -> None:
    managed = Managed()
    managed.send(1000.0)
    managed.keys.cleanup()
    managed.uptime = KEY_LIFETIME_S + 59
    managed.keys.cleanup()
    assert len(managed.protection.sealer.session_keys) == 1  # the timer has a minute more
    managed.uptime = KEY_LIFETIME_S + 61
    managed.keys.cleanup()
    assert len(managed.protection.sealer.session_keys) == 0


@pytest.mark.spec("QB-3.1.6.11-01")
def test_an_old_key_is_not_used_whatever_the_system_clock_says() -> None:
    managed = Managed()
    first = managed.send(1000.0)
    assert managed.send(1_000_000.0) == first  # the system's time was set: nothing has grown older
    managed.uptime = KEY_LIFETIME_S + 1
    assert managed.send(1000.0) != first


@pytest.mark.spec("QB-3.1.5.8.3-10", "QB-3.1.5.8.3-18", "QB-3.1.6.10-01", "QB-3.1.6.13-01")
def test_what_came_in_is_dropped_after_its_time_without_another_message() -> None:
    managed = Managed()
    opener = managed.protection.opener
    assert isinstance(opener.open(sealed(SIGNED_2_0), 0.0), Opened)
    assert (len(opener.session_keys), len(opener.known_certificates)) == (1, 1)
    for uptime, left in (
        (0.0, (1, 1)),
        (KEY_LIFETIME_S + 59, (1, 1)),  # the timer has a minute more
        (KEY_LIFETIME_S + 61, (0, 1)),
        (CERTIFICATE_LIFETIME_S + 59, (0, 1)),
        (CERTIFICATE_LIFETIME_S + 61, (0, 0)),
    ):
        managed.uptime = uptime
        managed.keys.cleanup()
        assert (len(opener.session_keys), len(opener.known_certificates)) == left


@pytest.mark.spec("QB-3.1.6.10-01", "QB-3.1.6.13-01")
def test_the_caches_of_both_guards_are_cleaned() -> None:
    managed = Managed()
    guards = (managed.protection.guard, managed.protection.opener)
    for guard in guards:
        guard.session_keys.put((5, 0x6610, b"", b""), b"key", 0.0)
    managed.uptime = KEY_LIFETIME_S + 1
    managed.keys.cleanup()
    assert [len(guard.session_keys) for guard in guards] == [0, 0]


@pytest.mark.spec("MQ-2.3.12.25-02")
def test_the_later_codes_of_the_connection_history() -> None:
    later = [each.name for each in ConnectionStatus if each >= 0x80000008]
    assert [each.value for each in ConnectionStatus][-6:] == list(range(0x80000008, 0x8000000E))
    assert later == [
        "NAME_RESOLUTION_FAILURE",
        "INVALID_SERVER_CERTIFICATE",
        "CONNECTION_LIMIT_REACHED",
        "CONNECTION_REFUSED",
        "ROUTING_DATA_UNAVAILABLE",
        "LOW_RESOURCE",
    ]
