"""The numbers of [MS-MQMQ] 2.2 and [MS-MQQB] 2.2, under the specifications' own names. No layout and no rules here."""

from __future__ import annotations

from enum import IntEnum, IntFlag

VERSION = 0x10
SIGNATURE = 0x524F494C  # the bytes "LIOR"
MAX_PACKET_SIZE = 0x00400000  # 4 MiB, without a trailing SessionHeader
# ResendTimerTable, [MS-MQQB] 3.1.3.1 and [MC-MQSRM] 3.1.3.1: how long to wait before each time messages are resent.
RESEND_TABLE_S = (30.0, 30.0, 30.0, 300.0, 300.0, 300.0, 1800.0, 1800.0, 1800.0, 21600.0)
INFINITE = 0xFFFFFFFF
DEFAULT_TIME_TO_REACH_QUEUE_S = 0x54600  # [MS-MQDMPR] 3.1.1.12: four days
MAX_HOP_COUNT = 0x1D
MAX_LABEL_UNITS = 250  # UTF-16 units, with the terminator
MAX_CERTIFICATE_SIZE = 0xFFFF

BASE_HEADER_SIZE = 16
USER_HEADER_SIZE = 48
INTERNAL_HEADER_SIZE = 4
SESSION_HEADER_SIZE = 16
PROPERTIES_HEADER_SIZE = 56


class BaseFlags(IntFlag):
    """[MS-MQMQ] 2.2.19.1 BaseHeader.Flags"""

    PRIORITY = 0x0007
    INTERNAL = 0x0008  # IN
    SESSION_HEADER = 0x0010  # SH
    DEBUG_HEADER = 0x0020  # DH
    TRACING = 0x0100  # TR
    RESERVED = 0xFEC0


class UserFlags(IntFlag):
    """[MS-MQMQ] 2.2.19.2 UserHeader.Flags"""

    HOP_COUNT = 0x0000001F  # RC
    DELIVERY = 0x00000060  # DM
    NEGATIVE_JOURNALING = 0x00000100  # JN
    POSITIVE_JOURNALING = 0x00000200  # JP
    DESTINATION_QUEUE = 0x00001C00  # DQ
    ADMIN_QUEUE = 0x0000E000  # AQ
    RESPONSE_QUEUE = 0x00070000  # RQ
    SECURITY_HEADER = 0x00080000  # SH
    TRANSACTION_HEADER = 0x00100000  # TH
    MESSAGE_PROPERTIES_HEADER = 0x00200000  # MP
    CONNECTOR_TYPE = 0x00400000  # CQ
    MULTI_QUEUE_HEADER = 0x00800000  # MQ
    ARRIVED_BY_HTTP = 0x02000000  # AH
    SOAP_HEADER = 0x10000000  # HH
    RESERVED = 0xED000080


DELIVERY_SHIFT = 5
DESTINATION_SHIFT = 10
ADMIN_SHIFT = 13
RESPONSE_SHIFT = 16


class TransactionFlags(IntFlag):
    """[MS-MQMQ] 2.2.20.5 TransactionHeader.Flags. Bits 4 to 23 are the 20-bit transaction id."""

    CONNECTOR_QM_GUID = 0x00000001  # CG
    FINAL_ACK = 0x00000002  # FA
    FIRST = 0x00000004  # FM
    LAST = 0x00000008  # LM
    IDENTIFIER = 0x00FFFFF0  # ID
    RESERVED = 0xFF000000


TRANSACTION_ID_SHIFT = 4


class SecurityFlags(IntFlag):
    """[MS-MQMQ] 2.2.20.6 SecurityHeader.Flags"""

    SENDER_ID_TYPE = 0x000F  # ST
    AUTHENTICATED = 0x0010  # AU
    ENCRYPTED_BODY = 0x0020  # EB
    DEFAULT_PROVIDER = 0x0040  # DE
    SECURITY_DATA = 0x0080  # AI
    SIGNATURE_TYPE = 0x0F00  # AS
    RESERVED = 0xF000


class AckFlags(IntFlag):
    """[MS-MQMQ] 2.2.19.3 MessagePropertiesHeader.Flags: the administration acknowledgments that the sender requests."""

    POSITIVE_ARRIVAL = 0x01  # PA
    POSITIVE_RECEIVE = 0x02  # PR
    NEGATIVE_ARRIVAL = 0x04  # NA
    NEGATIVE_RECEIVE = 0x08  # NR
    RESERVED = 0xF0


class PingFlags(IntFlag):
    """[MS-MQQB] 2.2.7"""

    INDEPENDENT_CLIENT = 0x0001  # RC
    REFUSED = 0x0002  # RF


class OperatingSystemFlags(IntFlag):
    """[MS-MQQB] 2.2.3.1 EstablishConnectionHeader.OperatingSystem. The low byte RE is the constant 0x10."""

    CONSTANT = 0x0010
    NO_PING = 0x0100  # SE
    SERVER = 0x0200  # OS
    GUARANTEED_QOS = 0x0400  # QS


class QueueCode(IntEnum):
    """[MS-MQMQ] 2.2.19.2 DQ, AQ and RQ: the form of a queue name in the UserHeader."""

    NONE = 0
    SAME_AS_ADMIN = 1  # RQ alone
    PRIVATE_ON_SOURCE = 2
    PRIVATE_ON_DESTINATION = 3
    PRIVATE_ON_ADMIN = 4  # RQ alone
    PUBLIC = 5
    PRIVATE_ON_OTHER = 6
    DIRECT = 7


DESTINATION_CODES = frozenset({0, 3, 5, 7})
ADMIN_CODES = frozenset({0, 2, 3, 5, 6, 7})
QUEUE_CODE_SIZES = (0, 0, 4, 4, 4, 16, 20, -1)  # bytes by QueueCode; a direct name has its own length field


class FormatType(IntEnum):
    """[MS-MQMQ] 2.2.18.1.4 MQFFormatNameElement.FormatType"""

    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    DISTRIBUTION_LIST = 6


class SectionId(IntEnum):
    """[MS-MQMQ] 2.2.20.2, 2.2.20.3, 2.2.20.7"""

    DESTINATION = 0x0064
    ADMINISTRATION = 0x00C8
    RESPONSE = 0x012C
    SIGNATURE = 0x015E
    SOAP_HEADER = 0x0320
    SOAP_BODY = 0x0384


class Delivery(IntEnum):
    """DM. A transactional message is a recoverable one with a TransactionHeader."""

    EXPRESS = 0
    RECOVERABLE = 1


class PacketType(IntEnum):
    """[MS-MQQB] 2.2.1 InternalHeader.Flags.PT"""

    SESSION_ACK = 1
    ESTABLISH_CONNECTION = 2
    CONNECTION_PARAMETERS = 3


class MessageClass(IntEnum):
    """[MS-MQMQ] 2.2.18.1.6 MESSAGE_CLASS_VALUES"""

    NORMAL = 0x0000
    REPORT = 0x0001
    ACK_REACH_QUEUE = 0x0002
    ORDER_ACK = 0x00FF
    ACK_RECEIVE = 0x4000
    NACK_BAD_DST_Q = 0x8000
    NACK_DELETED = 0x8001
    NACK_REACH_QUEUE_TIMEOUT = 0x8002
    NACK_Q_EXCEED_QUOTA = 0x8003
    NACK_ACCESS_DENIED = 0x8004
    NACK_HOP_COUNT_EXCEEDED = 0x8005
    NACK_BAD_SIGNATURE = 0x8006
    NACK_BAD_ENCRYPTION = 0x8007
    NACK_NOT_TRANSACTIONAL_Q = 0x8009
    NACK_NOT_TRANSACTIONAL_MSG = 0x800A
    NACK_UNSUPPORTED_CRYPTO_PROVIDER = 0x800B
    NACK_Q_DELETED = 0xC000
    NACK_Q_PURGED = 0xC001
    NACK_RECEIVE_TIMEOUT = 0xC002
    NACK_RECEIVE_REJECTED = 0xC004


CUSTOM_CLASS_MASK = 0xE1FF


def class_name(message_class: int) -> str:
    """The specification's name of a class, in lower case with hyphens. For a class without a name, its number."""
    try:
        return MessageClass(message_class).name.lower().replace("_", "-")
    except ValueError:
        return f"class-{message_class:#06x}"


class SenderIdType(IntEnum):
    """[MS-MQMQ] 2.2.20.6 ST"""

    NONE = 0
    SID = 1
    QUEUE_MANAGER = 2


class PrivacyLevel(IntEnum):
    """[MS-MQMQ] 2.2.19.3"""

    NONE = 0
    BASE = 1  # 40 bits
    ENHANCED = 3  # 128 bits
    ADVANCED = 5  # AES


class HashAlgorithm(IntEnum):
    """[MS-MQMQ] 2.2.19.3"""

    MD2 = 0x8001
    MD4 = 0x8002
    MD5 = 0x8003
    SHA1 = 0x8004
    SHA256 = 0x800C
    SHA512 = 0x800E


class EncryptionAlgorithm(IntEnum):
    """[MS-MQMQ] 2.2.19.3"""

    RC2 = 0x6602
    AES_128 = 0x660E
    AES_192 = 0x660F
    AES_256 = 0x6610
    RC4 = 0x6801


class BodyType(IntEnum):
    """[MS-MQMQ] 2.2.12 VARENUM, with VT_LPSTR and VT_BSTR, which Windows applications write."""

    VT_EMPTY = 0
    VT_NULL = 1
    VT_I2 = 2
    VT_I4 = 3
    VT_R4 = 4
    VT_R8 = 5
    VT_CY = 6
    VT_DATE = 7
    VT_BSTR = 8
    VT_BOOL = 11
    VT_VARIANT = 12
    VT_I1 = 16
    VT_UI1 = 17
    VT_UI2 = 18
    VT_UI4 = 19
    VT_I8 = 20
    VT_UI8 = 21
    VT_LPSTR = 30
    VT_LPWSTR = 31
    VT_BLOB = 65
    VT_STREAMED_OBJECT = 68
    VT_CLSID = 72
    VT_VECTOR = 0x1000
