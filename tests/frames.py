"""More packets as bytes: the session frames of [MS-MQQB] 4.1, and our own for what that capture lacks.

These are bytes only, written by hand. The tests that use them say what they mean.
"""

from __future__ import annotations

from tests.vectors import FRAME_7, FRAME_8, V1, V2

# [MS-MQQB] 4.1.1 and 4.1.2, a ping and its answer. The unused flag bits are as the stack left them.
FRAME_1 = bytes.fromhex("017d485504000000d1587355509195954997b6e611ea26c6")
FRAME_2 = bytes.fromhex("95b24855040000000789cd434c39118f44459078909ea0fc")

# [MS-MQQB] 4.1.3 and 4.1.4, an EstablishConnection request and response. The GUIDs of the response are from another
# capture, so the two do not belong together, but both layouts are right.
FRAME_3 = (
    bytes.fromhex(
        "10c00b004c494f523c020000ffffffff00000200"
        "d1587355509195954997b6e611ea26c60789cd434c39118f44459078909ea0fc4ecade1d10030000"
    )
    + b"\x5a" * 512
)
FRAME_4 = (
    bytes.fromhex(
        "105a0b004c494f523c020000ffffffff00000200"
        "0523741f5ebe7741bc77c4dd7719e474eb6a3a3c67f5434187d385cf4d68ceb44ecade1d10030000"
    )
    + b"\x5a" * 512
)

# [MS-MQQB] 4.1.5 and 4.1.6, ConnectionParameters: request and response have the same bytes. The text beside the
# response gives a window of 32, but its bytes give 64.
FRAME_5 = bytes.fromhex("10c00b004c494f5220000000ffffffff00000300d8050000c0d4010000004000")
FRAME_6 = FRAME_5

# An OrderAck to private queue 4: sequence (7, 9), number 5, previous number 4.
ORDER_ACK = bytes.fromhex(
    "100000004c494f52c0000000ffffffff"
    "443322116655887799aabbccddeeff000403020106050807090a0b0c0d0e0f10ffffffff0000006502000000000c200004000000"
    "0010ff0000000000000000000000000000000000000000000000000000000000"
    "240000002400000000000000048000000168000000000000"
    "51004d0020004f00720064006500720069006e0067002000410063006b000000"
    "070000000900000005000000040000000000000000000000000000000000000000000000"
)

# A FinalAck to TCP:10.0.0.5\PRIVATE$\order_queue$: received, number 5 after 3, message 6 of its source.
FINAL_ACK = bytes.fromhex(
    "100000004c494f5204010000ffffffff"
    "443322116655887799aabbccddeeff0000000000000000000000000000000000ffffffff0000006502000000201c2000"
    "46005400430050003a00310030002e0030002e0030002e0035005c0050005200490056004100540045002400"
    "5c006f0072006400650072005f007100750065007500650024000000"
    "001000400000000000000000000000000000000000000000000000000000000024000000240000000000000004800000"
    "0168000000000000"
    "51004d0020004f00720064006500720069006e0067002000410063006b000000"
    "07000000090000000500000003000000a3a2a1a0a5a4a7a6a8a9aaabacadaeaf06000000"
)

# Every header that a UserMessage can have. Bits and padding without a meaning are not zero.
EVERY_HEADER = bytes.fromhex(
    # BaseHeader: session and debug headers follow, tracing
    "10ee30014c494f52c001000000460500"
    # UserHeader: 2 hops, recoverable, both journals, DQ 7, AQ 6, RQ 4, connector type
    "443322116655887799aabbccddeeff000403020106050807090a0b0c0d0e0f10100e00000000006506000000a2dffc11"
    "10005400430050003a0031005c0071000000bebe"
    "b0b1b2b3b4b5b6b7b8b9babbbcbdbebf09000000"
    "0a000000"
    "c0c1c2c3c4c5c6c7c8c9cacbcccdcecf"
    # TransactionHeader with a connector; first and last of transaction 0x12345, final acknowledgment wanted
    "5f34120007000000090000000200000001000000d0d1d2d3d4d5d6d7d8d9dadbdcdddedf"
    # SecurityHeader: a SID, a signature of 5 bytes, a certificate of 3, provider 1 "p"
    "81030c00000005000300000008000000"
    "010100000000000100000000"
    "5152535455bebebe"
    "c1c2c3be"
    "0100000070000000"
    # MessagePropertiesHeader: label "L", extension of 2 bytes, body of 3
    "050200000102030405060708090a0b0c0d0e0f101112131411000000785634120300000003000000000000000e80000010660000"
    "020000004c000000e1e2626f79bebebe"
    # DebugHeader: a public queue
    "01000000e0e1e2e3e4e5e6e7e8e9eaebecedeeef"
    # SoapHeader: "<" and "<>"
    "20030000020000003c000000"
    "84030000030000003c003e000000bebe"
    # MultiQueueFormatHeader: four destinations, one administration queue (HeaderSize without padding), no response
    "500000006400000004000000"
    "030061000000"
    "0100f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
    "0200bebef0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0b000000"
    "0600bebef0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
    "12000000c800000001000000030062000000bebe"
    "0c0000002c01000000000000"
    "5e01000003000000aabbccbe"
    # SessionHeader, not counted in PacketSize
    "03000100050000000200020040000000"
)

PINGS = (FRAME_1, FRAME_2)
SESSION_PACKETS = (FRAME_3, FRAME_4, FRAME_5, FRAME_7, FRAME_8, V1, V2, ORDER_ACK, FINAL_ACK, EVERY_HEADER)
