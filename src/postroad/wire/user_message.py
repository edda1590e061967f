"""A whole UserMessage packet as values, [MS-MQMQ] 2.2.20, to build a packet or to read all of one."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.errors import LocalProtocolError
from postroad.wire.constants import BASE_HEADER_SIZE, MAX_PACKET_SIZE, BaseFlags, UserFlags
from postroad.wire.headers import (
    BaseHeader,
    DebugHeader,
    MessagePropertiesHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    SoapHeader,
    TransactionHeader,
    UserHeader,
)
from postroad.wire.internal import SessionHeader
from postroad.wire.octets import Reader, Writer
from postroad.wire.view import MessageView

# Plain integers: each operation on an IntFlag costs a microsecond.
_SESSION = BaseFlags.SESSION_HEADER.value
_DEBUG = BaseFlags.DEBUG_HEADER.value
_TRACING = BaseFlags.TRACING.value
_BASE_PRESENCE = _SESSION | _DEBUG | BaseFlags.INTERNAL.value
_DELIVERY = UserFlags.DELIVERY.value
_SECURITY = UserFlags.SECURITY_HEADER.value
_TRANSACTION = UserFlags.TRANSACTION_HEADER.value
_PROPERTIES = UserFlags.MESSAGE_PROPERTIES_HEADER.value
_MULTI_QUEUE = UserFlags.MULTI_QUEUE_HEADER.value
_SOAP = UserFlags.SOAP_HEADER.value
_USER_PRESENCE = _SECURITY | _TRANSACTION | _PROPERTIES | _MULTI_QUEUE | _SOAP


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The headers of one packet, in order. The presence of a header sets the flag that announces it."""

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
        """The values of a view. The view has already checked the packet."""
        reader = Reader(view.data, BASE_HEADER_SIZE, view.packet_size)
        user = UserHeader.decode(reader)
        transaction = TransactionHeader.decode(reader) if view.transactional else None
        security = SecurityHeader.decode(reader) if user.flags & _SECURITY else None
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
        if self.base.flags & _TRACING and self.debug is None:
            raise LocalProtocolError("a traced message must have a DebugHeader")
        if self.transaction is not None and not self.user.flags & _DELIVERY:
            raise LocalProtocolError("a transactional message must be recoverable")
        base_flags = self.base.flags & ~_BASE_PRESENCE
        user_flags = self.user.flags & ~_USER_PRESENCE | _PROPERTIES
        writer = Writer()
        writer.size = BASE_HEADER_SIZE  # written last, when the size is known
        for header, flag in (
            (self.transaction, _TRANSACTION),
            (self.security, _SECURITY),
            (self.soap, _SOAP),
            (self.multi_queue, _MULTI_QUEUE),
        ):
            if header is not None:
                user_flags |= flag
        if self.debug is not None:
            base_flags |= _DEBUG
        if self.session is not None:
            base_flags |= _SESSION
        self.user.encode(writer, user_flags)
        for optional in (self.transaction, self.security):
            if optional is not None:
                optional.encode(writer)
        self.properties.encode(writer)
        for trailer in (self.debug, self.soap, self.multi_queue):
            if trailer is not None:
                trailer.encode(writer)
        if writer.size > MAX_PACKET_SIZE:
            raise LocalProtocolError(
                f"a packet must have at most {MAX_PACKET_SIZE} bytes, got {writer.size}: make the body smaller"
            )
        base = BaseHeader(base_flags, writer.size, self.base.time_to_reach_queue, self.base.reserved)
        session = self.session.encode() if self.session is not None else b""
        return base.encode() + writer.getvalue() + session
