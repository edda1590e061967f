"""The parts of a running manager that others can reach: its carriers, its remote readers, and its listeners.

The server registers each of them here once it is open. Everybody else only reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.remote_read.readers import RemoteReaders
from postroad.reports.info import ListenerInfo

if TYPE_CHECKING:
    from postroad.amqp.service import AmqpService
    from postroad.binary.service import BinaryService
    from postroad.soap.multicast import MulticastService
    from postroad.soap.service import SoapService


class Doors:
    """What is open. A field is None or empty if nothing of its kind is open."""

    def __init__(self) -> None:
        self.binary: BinaryService | None = None
        self.soap: SoapService | None = None
        self.multicast: MulticastService | None = None
        self.amqp: AmqpService | None = None
        self.remote_read = RemoteReaders()
        self.exposure: tuple[ListenerInfo, ...] = ()

    def open(
        self,
        *,
        binary: BinaryService | None = None,
        soap: SoapService | None = None,
        multicast: MulticastService | None = None,
        amqp: AmqpService | None = None,
        remote_read: RemoteReaders | None = None,
    ) -> None:
        """Registers services that are open from now on. Others stay as they are."""
        self.binary = binary or self.binary
        self.soap = soap or self.soap
        self.multicast = multicast or self.multicast
        self.amqp = amqp or self.amqp
        self.remote_read = remote_read or self.remote_read

    def expose(self, listeners: tuple[ListenerInfo, ...]) -> None:
        """Replaces the list of open listeners."""
        self.exposure = listeners
