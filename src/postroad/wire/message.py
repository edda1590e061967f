"""The whole UserMessage packet as values, [MS-MQMQ] 2.2.20: what a builder fills in, and what a reader unfolds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from postroad.errors import LocalProtocolError
from postroad.wire.base_header import BaseHeader
from postroad.wire.constants import BASE_HEADER_SIZE, MAX_PACKET_SIZE, BaseFlags, UserFlags
from postroad.wire.layout import Reader, Writer
from postroad.wire.multi_queue_header import MultiQueueFormatHeader
from postroad.wire.properties_header import MessagePropertiesHeader
from postroad.wire.security_header import SecurityHeader
from postroad.wire.session_header import SessionHeader
from postroad.wire.soap_header import SoapHeader
from postroad.wire.trace_header import DebugHeader
from postroad.wire.transaction_header import TransactionHeader
from postroad.wire.user_header import UserHeader
from postroad.wire.view import MessageView

_BASE_PRESENCE = (BaseFlags.SESSION_HEADER | BaseFlags.DEBUG_HEADER | BaseFlags.INTERNAL).value
_USER_PRESENCE = (
    UserFlags.SECURITY_HEADER
    | UserFlags.TRANSACTION_HEADER
    | UserFlags.MESSAGE_PROPERTIES_HEADER
    | UserFlags.MULTI_QUEUE_HEADER
    | UserFlags.SOAP_HEADER
).value


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The headers of one packet, in its order. The flags that announce a header follow from its presence."""

    base: BaseHeader
    user: UserHeader
    properties: MessagePropertiesHeader
    transaction: TransactionHeader | None = None
    security: SecurityHeader | None = None
    debug: DebugHeader | None = None
    soap: SoapHeader | None = None
    multi_queue: MultiQueueFormatHeader | None = None
    session: SessionHeader | None = None

    @classmethod
    def decode(cls, data: bytes) -> UserMessage:
        return cls.of(MessageView(data))

    @classmethod
    def of(cls, view: MessageView) -> UserMessage:
        """Unfolds a view, which has checked the packet already."""
        reader = Reader(view.data, BASE_HEADER_SIZE, view.packet_size)
        user = UserHeader.decode(reader)
        transaction = TransactionHeader.decode(reader) if view.transactional else None
        security = SecurityHeader.decode(reader) if user.flags & UserFlags.SECURITY_HEADER else None
        return cls(
            base=BaseHeader.decode(view.data),
            user=user,
            properties=MessagePropertiesHeader.decode(reader),
            transaction=transaction,
            security=security,
            debug=view.debug_header,
            soap=view.soap_header,
            multi_queue=view.multi_queue_header,
            session=view.session_header,
        )

    def encode(self) -> bytes:
        """The packet, with its sizes and presence flags filled in."""
        base_flags = self.base.flags & ~_BASE_PRESENCE
        user_flags = self.user.flags & ~_USER_PRESENCE | UserFlags.MESSAGE_PROPERTIES_HEADER
        writer = Writer()
        writer.size = BASE_HEADER_SIZE  # written last, when the size is known
        for header, flag in (
            (self.transaction, UserFlags.TRANSACTION_HEADER),
            (self.security, UserFlags.SECURITY_HEADER),
            (self.soap, UserFlags.SOAP_HEADER),
            (self.multi_queue, UserFlags.MULTI_QUEUE_HEADER),
        ):
            if header is not None:
                user_flags |= flag
        if self.debug is not None:
            base_flags |= BaseFlags.DEBUG_HEADER
        if self.session is not None:
            base_flags |= BaseFlags.SESSION_HEADER
        replace(self.user, flags=user_flags).encode(writer)
        for optional in (self.transaction, self.security):
            if optional is not None:
                optional.encode(writer)
        self.properties.encode(writer)
        for trailer in (self.debug, self.soap, self.multi_queue):
            if trailer is not None:
                trailer.encode(writer)
        if writer.size > MAX_PACKET_SIZE:
            raise LocalProtocolError(
                f"a packet of {writer.size} bytes is above the limit of {MAX_PACKET_SIZE}: the body must be smaller"
            )
        base = replace(self.base, flags=base_flags, packet_size=writer.size)
        session = self.session.encode() if self.session is not None else b""
        return base.encode() + writer.getvalue() + session
