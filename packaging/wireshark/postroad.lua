-- Wireshark dissector for the packets of Message Queuing: the binary protocol, MS-MQQB with the packets of MS-MQMQ, on
-- TCP 1801, and its pings on UDP 3527. Names of fields are the specifications'; a filter is written in snake_case, with
-- the words of `postroad decode --json`: mqqb.base_header.packet_size.
--
-- Lua 5.2 to 5.4, Wireshark 3.6 and later. README.md says how to install it.

local BASE_SIZE, SESSION_SIZE, MAX_PACKET = 16, 16, 0x00400000
local VERSION, LIOR = 0x10, 0x524F494C
local MAX_ELEMENTS = 4096 -- of a list of queues, so that a hostile packet cannot keep Wireshark busy

local mqqb = Proto("mqqb", "Message Queuing Binary Protocol")
local ping = Proto("mqping", "Message Queuing Ping")
local F, P = {}, {} -- the fields by their filter without the protocol's name

-- Numbers with words, MS-MQMQ 2.2.18 and 2.2.19

local CLASSES = {
    [0x0000] = "MQMSG_CLASS_NORMAL", [0x0001] = "MQMSG_CLASS_REPORT", [0x0002] = "MQMSG_CLASS_ACK_REACH_QUEUE",
    [0x00FF] = "MQMSG_CLASS_ORDER_ACK", [0x4000] = "MQMSG_CLASS_ACK_RECEIVE",
    [0x8000] = "MQMSG_CLASS_NACK_BAD_DST_Q", [0x8001] = "MQMSG_CLASS_NACK_DELETED",
    [0x8002] = "MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT", [0x8003] = "MQMSG_CLASS_NACK_Q_EXCEED_QUOTA",
    [0x8004] = "MQMSG_CLASS_NACK_ACCESS_DENIED", [0x8005] = "MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED",
    [0x8006] = "MQMSG_CLASS_NACK_BAD_SIGNATURE", [0x8007] = "MQMSG_CLASS_NACK_BAD_ENCRYPTION",
    [0x8009] = "MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q", [0x800A] = "MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG",
    [0x800B] = "MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER", [0xC000] = "MQMSG_CLASS_NACK_Q_DELETED",
    [0xC001] = "MQMSG_CLASS_NACK_Q_PURGED", [0xC002] = "MQMSG_CLASS_NACK_RECEIVE_TIMEOUT",
    [0xC004] = "MQMSG_CLASS_NACK_RECEIVE_REJECTED",
}
local BODY_TYPES = {
    [0] = "VT_EMPTY", [1] = "VT_NULL", [2] = "VT_I2", [3] = "VT_I4", [4] = "VT_R4", [5] = "VT_R8", [6] = "VT_CY",
    [7] = "VT_DATE", [8] = "VT_BSTR", [11] = "VT_BOOL", [12] = "VT_VARIANT", [16] = "VT_I1", [17] = "VT_UI1",
    [18] = "VT_UI2", [19] = "VT_UI4", [20] = "VT_I8", [21] = "VT_UI8", [30] = "VT_LPSTR", [31] = "VT_LPWSTR",
    [65] = "VT_BLOB", [68] = "VT_STREAMED_OBJECT", [72] = "VT_CLSID", [768] = "BinaryFormatter (System.Messaging)",
    [0x1011] = "VT_VECTOR | VT_UI1",
}
local HASHES = {
    [0x8001] = "MD2", [0x8002] = "MD4", [0x8003] = "MD5", [0x8004] = "SHA-1", [0x800C] = "SHA-256", [0x800E] = "SHA-512",
}
local CIPHERS = {
    [0x6602] = "RC2", [0x660E] = "AES-128", [0x660F] = "AES-192", [0x6610] = "AES-256", [0x6801] = "RC4",
}
local PRIVACY = { [0] = "none", [1] = "base, 40 bits", [3] = "enhanced, 128 bits", [5] = "AES" }
local SENDER_TYPES = { [0] = "none", [1] = "SID", [2] = "queue manager" }
local PACKET_TYPES = { [1] = "SessionAck", [2] = "EstablishConnection", [3] = "ConnectionParameters" }
local QUEUE_CODES = {
    [0] = "none", [1] = "same as the administration queue", [2] = "private, on the source's manager",
    [3] = "private, on the destination's manager", [4] = "private, on the administration queue's manager",
    [5] = "public", [6] = "private, on another manager", [7] = "direct",
}
local FORMAT_TYPES = { [1] = "public", [2] = "private", [3] = "direct", [6] = "distribution list" }
local DELIVERY = { [0] = "express", [1] = "recoverable" }

-- Fields. A table for each header: filter, name in the specification, kind, and what its values mean.

local function define(fields, protocol, header, rows)
    for _, row in ipairs(rows) do
        local word, name, kind, values, mask = row[1], row[2], row[3], row[4], row[5]
        local filter = header .. "." .. word
        local abbreviation = protocol .. "." .. filter
        local field
        if kind == "guid" or kind == "bytes" or kind == "string" then
            field = ProtoField[kind](abbreviation, name)
        elseif kind == "bool" then
            field = ProtoField.bool(abbreviation, name, values, nil, mask)
        elseif kind == "time" then
            field = ProtoField.uint32(abbreviation, name, base.DEC)
        elseif kind:sub(1, 3) == "hex" then
            field = ProtoField["uint" .. kind:sub(4)](abbreviation, name, base.HEX, values, mask)
        else
            field = ProtoField[kind](abbreviation, name, base.DEC, values, mask)
        end
        fields[filter] = field
    end
end

local function queue_rows(word, name)
    return {
        { word .. ".code", name .. " code", "uint32", QUEUE_CODES },
        { word .. ".direct_name", "DirectFormatName", "string" },
        { word .. ".guid", "QueueManager or queue", "guid" },
        { word .. ".number", "PrivateQueueIdentifier", "uint32" },
    }
end

define(F, "mqqb", "base_header", {
    { "version", "VersionNumber", "hex8" }, { "reserved", "Reserved", "hex8" }, { "flags", "Flags", "hex16" },
    { "flags.pr", "PR (priority)", "uint16", nil, 0x0007 }, { "flags.in", "IN (internal)", "bool", 16, 0x0008 },
    { "flags.sh", "SH (SessionHeader)", "bool", 16, 0x0010 }, { "flags.dh", "DH (DebugHeader)", "bool", 16, 0x0020 },
    { "flags.tr", "TR (tracing)", "bool", 16, 0x0100 },
    { "signature", "Signature", "hex32" }, { "packet_size", "PacketSize", "uint32" },
    { "time_to_reach_queue", "TimeToReachQueue", "uint32" },
})
define(F, "mqqb", "internal_header", {
    { "reserved", "Reserved", "hex16" }, { "flags", "Flags", "hex16" },
    { "packet_type", "PT", "uint16", PACKET_TYPES, 0x000F }, { "refused", "CS (connection refused)", "bool", 16, 0x0010 },
})
define(F, "mqqb", "establish_connection_header", {
    { "client_guid", "ClientGuid", "guid" }, { "server_guid", "ServerGuid", "guid" },
    { "time_stamp", "TimeStamp", "uint32" }, { "operating_system", "OperatingSystem", "hex16" },
    { "operating_system.re", "RE", "hex16", nil, 0x00FF }, { "operating_system.se", "SE (no ping)", "bool", 16, 0x0100 },
    { "operating_system.os", "OS (server)", "bool", 16, 0x0200 },
    { "operating_system.qs", "QS (quality of service)", "bool", 16, 0x0400 },
    { "reserved", "Reserved", "hex16" }, { "padding", "Padding", "bytes" },
})
define(F, "mqqb", "connection_parameters_header", {
    { "recoverable_ack_timeout_ms", "RecoverableAckTimeout", "uint32" }, { "ack_timeout_ms", "AckTimeout", "uint32" },
    { "reserved", "Reserved", "hex16" }, { "window_size", "WindowSize", "uint16" },
})
define(F, "mqqb", "session_header", {
    { "ack_sequence_number", "AckSequenceNumber", "uint16" },
    { "recoverable_msg_ack_seq_number", "RecoverableMsgAckSeqNumber", "uint16" },
    { "recoverable_msg_ack_flags", "RecoverableMsgAckFlags", "hex32" },
    { "user_msg_sequence_number", "UserMsgSequenceNumber", "uint16" },
    { "recoverable_msg_seq_number", "RecoverableMsgSeqNumber", "uint16" },
    { "window_size", "WindowSize", "uint16" }, { "reserved", "Reserved", "hex16" },
})
define(F, "mqqb", "user_header", {
    { "source_queue_manager", "SourceQueueManager", "guid" }, { "queue_manager_address", "QueueManagerAddress", "guid" },
    { "time_to_be_received", "TimeToBeReceived", "uint32" }, { "sent_time", "SentTime", "time" },
    { "message_id", "MessageID", "uint32" }, { "flags", "Flags", "hex32" },
    { "flags.rc", "RC (hops)", "uint32", nil, 0x1F }, { "flags.dm", "DM (delivery)", "uint32", DELIVERY, 0x60 },
    { "flags.jn", "JN (dead letter)", "bool", 32, 0x100 }, { "flags.jp", "JP (journal)", "bool", 32, 0x200 },
    { "flags.dq", "DQ", "uint32", QUEUE_CODES, 0x1C00 }, { "flags.aq", "AQ", "uint32", QUEUE_CODES, 0xE000 },
    { "flags.rq", "RQ", "uint32", QUEUE_CODES, 0x70000 }, { "flags.sh", "SH (SecurityHeader)", "bool", 32, 0x80000 },
    { "flags.th", "TH (TransactionHeader)", "bool", 32, 0x100000 },
    { "flags.mp", "MP (MessagePropertiesHeader)", "bool", 32, 0x200000 },
    { "flags.cq", "CQ (ConnectorType)", "bool", 32, 0x400000 },
    { "flags.mq", "MQ (MultiQueueFormatHeader)", "bool", 32, 0x800000 },
    { "flags.ah", "AH (arrived by HTTP)", "bool", 32, 0x2000000 },
    { "flags.hh", "HH (SoapHeader)", "bool", 32, 0x10000000 },
    { "connector_type", "ConnectorType", "guid" },
})
define(F, "mqqb", "user_header", queue_rows("destination_queue", "DestinationQueue"))
define(F, "mqqb", "user_header", queue_rows("admin_queue", "AdminQueue"))
define(F, "mqqb", "user_header", queue_rows("response_queue", "ResponseQueue"))
define(F, "mqqb", "transaction_header", {
    { "flags", "Flags", "hex32" }, { "flags.cg", "CG (ConnectorQMGuid)", "bool", 32, 0x1 },
    { "flags.fa", "FA (FinalAck wanted)", "bool", 32, 0x2 }, { "flags.fm", "FM (first)", "bool", 32, 0x4 },
    { "flags.lm", "LM (last)", "bool", 32, 0x8 }, { "transaction_id", "ID", "uint32", nil, 0x00FFFFF0 },
    { "sequence_id.ordinal", "TxSequenceID.Ordinal", "uint32" },
    { "sequence_id.time_stamp", "TxSequenceID.TimeStamp", "uint32" },
    { "sequence_number", "TxSequenceNumber", "uint32" },
    { "previous_sequence_number", "PreviousTxSequenceNumber", "uint32" },
    { "connector_qm_guid", "ConnectorQMGuid", "guid" },
})
define(F, "mqqb", "security_header", {
    { "flags", "Flags", "hex16" }, { "sender_id_type", "ST", "uint16", SENDER_TYPES, 0x000F },
    { "flags.au", "AU (authenticated)", "bool", 16, 0x0010 }, { "flags.eb", "EB (encrypted body)", "bool", 16, 0x0020 },
    { "flags.de", "DE (default provider)", "bool", 16, 0x0040 }, { "flags.ai", "AI (SecurityData)", "bool", 16, 0x0080 },
    { "flags.as", "AS (signature type)", "uint16", nil, 0x0F00 },
    { "security_id_size", "SenderIdSize", "uint16" }, { "encryption_key_size", "EncryptionKeySize", "uint16" },
    { "signature_size", "SignatureSize", "uint16" }, { "sender_certificate_size", "SenderCertSize", "uint32" },
    { "provider_info_size", "ProviderInfoSize", "uint32" },
    { "security_id", "SecurityData.SecurityID", "bytes" }, { "sender_id", "Sender", "string" },
    { "encryption_key", "SecurityData.EncryptionKey", "bytes" }, { "signature", "SecurityData.Signature", "bytes" },
    { "sender_certificate", "SecurityData.SenderCert", "bytes" },
    { "provider_info", "SecurityData.ProviderInfo", "bytes" },
})
define(F, "mqqb", "message_properties_header", {
    { "flags", "Flags", "hex8" }, { "flags.pa", "PA (positive arrival)", "bool", 8, 0x01 },
    { "flags.pr", "PR (positive receive)", "bool", 8, 0x02 }, { "flags.na", "NA (negative arrival)", "bool", 8, 0x04 },
    { "flags.nr", "NR (negative receive)", "bool", 8, 0x08 },
    { "label_length", "LabelLength", "uint8" }, { "message_class", "MessageClass", "hex16", CLASSES },
    { "correlation_id", "CorrelationID", "bytes" }, { "correlation_id.text", "CorrelationID as an id", "string" },
    { "body_type", "BodyType", "uint32", BODY_TYPES }, { "application_tag", "ApplicationTag", "uint32" },
    { "message_size", "MessageSize", "uint32" }, { "allocation_body_size", "AllocationBodySize", "uint32" },
    { "privacy_level", "PrivacyLevel", "uint32", PRIVACY }, { "hash_algorithm", "HashAlgorithm", "hex32", HASHES },
    { "encryption_algorithm", "EncryptionAlgorithm", "hex32", CIPHERS }, { "extension_size", "ExtensionSize", "uint32" },
    { "label", "Label", "string" }, { "extension", "ExtensionData", "bytes" }, { "body", "MessageBody", "bytes" },
})
define(F, "mqqb", "ordering", {
    { "sequence_id.ordinal", "TxSequenceID.Ordinal", "uint32" },
    { "sequence_id.time_stamp", "TxSequenceID.TimeStamp", "uint32" },
    { "sequence_number", "TxSequenceNumber", "uint32" },
    { "previous_sequence_number", "TxPreviousSequenceNumber", "uint32" },
    { "source_guid", "SourceGUID", "guid" }, { "acknowledged_message_id", "MessageID", "uint32" },
})
define(F, "mqqb", "debug_header", {
    { "flags", "Flags", "hex16" }, { "flags.qt", "QT", "uint16", nil, 0x0003 }, { "reserved", "Reserved", "hex16" },
    { "queue_identifier", "QueueIdentifier", "guid" },
})
define(F, "mqqb", "soap_header", {
    { "header_section_id", "HeaderSectionID", "hex16" }, { "header_reserved", "Reserved", "hex16" },
    { "header_data_length", "HeaderDataLength", "uint32" }, { "header", "Header", "string" },
    { "body_section_id", "BodySectionID", "hex16" }, { "body_reserved", "Reserved1", "hex16" },
    { "body_data_length", "BodyDataLength", "uint32" }, { "body", "Body", "string" },
})
for word, name in pairs({ destination = "Destination", administration = "Administration", response = "Response" }) do
    define(F, "mqqb", "multi_queue_format_header", {
        { word .. ".header_size", name .. ".HeaderSize", "uint32" }, { word .. ".header_id", name .. ".HeaderID", "hex16" },
        { word .. ".reserved", name .. ".Reserved", "hex16" }, { word .. ".element_count", name .. ".ElementCount", "uint32" },
        { word, name .. ".FormatNameList", "string" },
    })
end
define(F, "mqqb", "multi_queue_format_header", {
    { "signature_id", "Signature.ID", "hex16" }, { "signature_reserved", "Signature.Reserved", "hex16" },
    { "signature_size", "Signature.Size", "uint32" }, { "signature", "Signature.Signature", "bytes" },
})
define(P, "mqping", "ping", {
    { "flags", "Flags", "hex16" }, { "flags.rc", "RC (independent client)", "bool", 16, 0x0001 },
    { "flags.rf", "RF (refused)", "bool", 16, 0x0002 }, { "signature", "Signature", "hex16" },
    { "cookie", "Cookie", "uint32" }, { "queue_manager", "QMGuid", "guid" },
})

local function listed(fields)
    local found = {}
    for _, field in pairs(fields) do
        found[#found + 1] = field
    end
    return found
end

mqqb.fields = listed(F)
ping.fields = listed(P)
local FAULT = ProtoExpert.new("mqqb.fault", "The packet breaks a rule of its layout", expert.group.PROTOCOL, expert.severity.WARN)
local MIDDLE = ProtoExpert.new(
    "mqqb.middle", "These bytes do not begin with a BaseHeader", expert.group.SEQUENCE, expert.severity.NOTE
)
local PING_FAULT = ProtoExpert.new("mqping.fault", "This is no ping", expert.group.PROTOCOL, expert.severity.WARN)
mqqb.experts = { FAULT, MIDDLE }
ping.experts = { PING_FAULT }
mqqb.prefs.port = Pref.uint("TCP port", 1801, "Port of the binary protocol")
ping.prefs.port = Pref.uint("UDP port", 3527, "Port of pings")

-- A reader: where the next field starts, and where the packet ends. A fault is a Lua error with a table.

local Reader = {}
Reader.__index = Reader

local function fault(text)
    error({ fault = text }, 0)
end

function Reader.new(tvb, tree)
    return setmetatable({ tvb = tvb, tree = tree, at = 0, stop = tvb:len() }, Reader)
end

function Reader:open(name)
    self.header = self.tree:add(mqqb, self.tvb(self.at, 0), name)
    self.name = name
    self.opened = self.at
end

function Reader:close()
    self.header:set_len(self.at - self.opened)
end

function Reader:take(size, what)
    if self.at + size > self.stop then
        fault((what or self.name) .. " is cut off")
    end
    local range = self.tvb(self.at, size)
    self.at = self.at + size
    return range
end

function Reader:align(size)
    local padded = math.floor((self.at + size - 1) / size) * size
    if padded > self.stop then
        fault(self.name .. " lacks its padding")
    end
    self.at = padded
end

-- Adds fields that stand one after the other: { filter, size } each. Returns their values as numbers, nil for others.
function Reader:fields(header, rows)
    local values = {}
    for _, row in ipairs(rows) do
        local range = self:take(row[2])
        self.header:add_le(F[header .. "." .. row[1]], range)
        if row[2] <= 4 then
            values[row[1]] = range:le_uint()
        end
    end
    return values
end

-- Adds the bits of a field of flags as children of a subtree.
function Reader:bits(header, range, ...)
    for _, word in ipairs({ ... }) do
        self.header:add_le(F[header .. "." .. word], range)
    end
end

-- UTF-16 text of `size` bytes that ends with its terminator, which is not shown.
function Reader:text(filter, size, what)
    if size < 2 or size % 2 == 1 then
        fault(what .. " must be UTF-16 with a terminator")
    end
    local range = self:take(size, what)
    if range(size - 2, 2):le_uint() ~= 0 then
        fault(what .. " must end with a zero")
    end
    local text = size > 2 and range(0, size - 2):le_ustring() or ""
    if filter then
        self.header:add(F[filter], range, text)
    end
    return text
end

function Reader:guid_text(range)
    local b = range:bytes()
    local function hex(...)
        local parts = {}
        for _, index in ipairs({ ... }) do
            parts[#parts + 1] = string.format("%02x", b:get_index(index))
        end
        return table.concat(parts)
    end
    return hex(3, 2, 1, 0) .. "-" .. hex(5, 4) .. "-" .. hex(7, 6) .. "-" .. hex(8, 9) .. "-" .. hex(10, 11, 12, 13, 14, 15)
end

local function sid_text(range)
    if range:len() < 8 or range:len() ~= 8 + 4 * range(1, 1):uint() then
        return nil
    end
    -- MS-DTYP 2.4.2.1: an authority of 2^32 and more is written in hexadecimal.
    local high, low = range(2, 2):uint(), range(4, 4):uint()
    local authority = high == 0 and string.format("%.0f", low) or string.format("0x%04X%08X", high, low)
    local parts = { string.format("S-%d-%s", range(0, 1):uint(), authority) }
    for index = 1, range(1, 1):uint() do
        parts[#parts + 1] = string.format("%.0f", range(4 + 4 * index, 4):le_uint())
    end
    return table.concat(parts, "-")
end

-- The headers, in the order of a packet

local function base_header(r)
    r:open("BaseHeader")
    local values = r:fields("base_header", { { "version", 1 }, { "reserved", 1 }, { "flags", 2 } })
    r:bits("base_header", r.tvb(2, 2), "flags.pr", "flags.in", "flags.sh", "flags.dh", "flags.tr")
    for word, value in pairs(r:fields("base_header", { { "signature", 4 }, { "packet_size", 4 }, { "time_to_reach_queue", 4 } })) do
        values[word] = value
    end
    r:close()
    return values
end

local function queue(r, word, code)
    local filter = "user_header." .. word
    local item = r.header:add(F[filter .. ".code"], r.tvb(r.at, 0), code)
    item:set_generated()
    if code == 2 or code == 3 or code == 4 then
        local range = r:take(4, word)
        r.header:add_le(F[filter .. ".number"], range)
        return string.format("private queue %x", range:le_uint())
    elseif code == 5 then
        local range = r:take(16, word)
        r.header:add_le(F[filter .. ".guid"], range)
        return "PUBLIC=" .. r:guid_text(range)
    elseif code == 6 then
        local range = r:take(20, word)
        r.header:add_le(F[filter .. ".guid"], range(0, 16))
        r.header:add_le(F[filter .. ".number"], range(16, 4))
        return string.format("PRIVATE=%s\\%x", r:guid_text(range(0, 16)), range(16, 4):le_uint())
    elseif code == 7 then
        local text = r:text(filter .. ".direct_name", r:take(2, word):le_uint(), word)
        r:align(4)
        return "DIRECT=" .. text
    end
    return nil
end

local function user_header(r)
    r:open("UserHeader")
    r:fields("user_header", {
        { "source_queue_manager", 16 }, { "queue_manager_address", 16 }, { "time_to_be_received", 4 },
    })
    local sent = r:take(4)
    r.header:add_le(F["user_header.sent_time"], sent):append_text(os.date("!  (%Y-%m-%d %H:%M:%SZ)", sent:le_uint()))
    r:fields("user_header", { { "message_id", 4 } })
    local range = r:take(4)
    local flags = range:le_uint()
    r.header:add_le(F["user_header.flags"], range)
    r:bits("user_header", range, "flags.rc", "flags.dm", "flags.jn", "flags.jp", "flags.dq", "flags.aq", "flags.rq",
        "flags.sh", "flags.th", "flags.mp", "flags.cq", "flags.mq", "flags.ah", "flags.hh")
    local function bit(mask)
        return math.floor(flags / mask) % 2 == 1
    end
    local found = {
        security = bit(0x80000), transaction = bit(0x100000), multi = bit(0x800000), soap = bit(0x10000000),
        delivery = math.floor(flags / 0x20) % 4,
    }
    found.to = queue(r, "destination_queue", math.floor(flags / 0x400) % 8)
    queue(r, "admin_queue", math.floor(flags / 0x2000) % 8)
    queue(r, "response_queue", math.floor(flags / 0x10000) % 8)
    if bit(0x400000) then
        r:fields("user_header", { { "connector_type", 16 } })
    end
    r:close()
    return found
end

local function transaction_header(r)
    r:open("TransactionHeader")
    local range = r:take(4)
    r.header:add_le(F["transaction_header.flags"], range)
    r:bits("transaction_header", range, "flags.cg", "flags.fa", "flags.fm", "flags.lm", "transaction_id")
    r:fields("transaction_header", {
        { "sequence_id.ordinal", 4 }, { "sequence_id.time_stamp", 4 }, { "sequence_number", 4 },
        { "previous_sequence_number", 4 },
    })
    if range:le_uint() % 2 == 1 then
        r:fields("transaction_header", { { "connector_qm_guid", 16 } })
    end
    r:close()
end

local function security_header(r)
    r:open("SecurityHeader")
    local range = r:take(2)
    r.header:add_le(F["security_header.flags"], range)
    r:bits("security_header", range, "sender_id_type", "flags.au", "flags.eb", "flags.de", "flags.ai", "flags.as")
    local kind = range:le_uint() % 16
    if kind > 2 then
        fault("the sender id type must be 0, 1 or 2")
    end
    local sizes = r:fields("security_header", {
        { "security_id_size", 2 }, { "encryption_key_size", 2 }, { "signature_size", 2 }, { "sender_certificate_size", 4 },
        { "provider_info_size", 4 },
    })
    for _, word in ipairs({ "security_id", "encryption_key", "signature", "sender_certificate", "provider_info" }) do
        local size = sizes[word .. "_size"]
        if size > 0 then
            local data = r:take(size, word)
            r.header:add(F["security_header." .. word], data)
            if word == "security_id" then
                local text = kind == 2 and size == 16 and r:guid_text(data) or kind == 1 and sid_text(data) or nil
                if text then
                    r.header:add(F["security_header.sender_id"], data, text):set_generated()
                end
            end
            r:align(4)
        end
    end
    r:close()
    return math.floor(range:le_uint() / 0x20) % 2 == 1
end

local function properties_header(r)
    r:open("MessagePropertiesHeader")
    local range = r:take(1)
    r.header:add_le(F["message_properties_header.flags"], range)
    r:bits("message_properties_header", range, "flags.pa", "flags.pr", "flags.na", "flags.nr")
    local values = r:fields("message_properties_header", { { "label_length", 1 }, { "message_class", 2 } })
    local correlation = r:take(20)
    r.header:add(F["message_properties_header.correlation_id"], correlation)
    if correlation:bytes():tohex():find("[^0]") then
        local text = string.format("{%s}\\%.0f", r:guid_text(correlation(0, 16)), correlation(16, 4):le_uint())
        r.header:add(F["message_properties_header.correlation_id.text"], correlation, text):set_generated()
    end
    for word, value in pairs(r:fields("message_properties_header", {
        { "body_type", 4 }, { "application_tag", 4 }, { "message_size", 4 }, { "allocation_body_size", 4 },
        { "privacy_level", 4 }, { "hash_algorithm", 4 }, { "encryption_algorithm", 4 }, { "extension_size", 4 },
    })) do
        values[word] = value
    end
    if values.label_length > 0 then
        values.label = r:text("message_properties_header.label", 2 * values.label_length, "Label")
    end
    if values.extension_size > 0 then
        r.header:add(F["message_properties_header.extension"], r:take(values.extension_size, "ExtensionData"))
    end
    if values.allocation_body_size > 0 then
        values.body = r:take(values.allocation_body_size, "MessageBody")
        r.header:add(F["message_properties_header.body"], values.body)
    end
    r:align(4)
    r:close()
    return values
end

-- MS-MQQB 2.2.4: ordering acknowledgments go to order_queue$, by its direct name or by its number.
local function is_order_queue(name)
    return name == "private queue 4" or (name or ""):lower():find("\\private$\\order_queue$", 1, true) ~= nil
end

-- The body of an OrderAck or FinalAck, MS-MQQB 2.2.4 and 2.2.5.
local function ordering(r, name, body)
    local header = r.tree:add(mqqb, body, name)
    local function add(word, at, size)
        header:add_le(F["ordering." .. word], body(at, size))
    end
    add("sequence_id.ordinal", 0, 4)
    add("sequence_id.time_stamp", 4, 4)
    add("sequence_number", 8, 4)
    add("previous_sequence_number", 12, 4)
    if name == "FinalAck" then
        add("source_guid", 16, 16)
        add("acknowledged_message_id", 32, 4)
    end
end

local function debug_header(r)
    r:open("DebugHeader")
    local range = r:take(2)
    r.header:add_le(F["debug_header.flags"], range)
    r:bits("debug_header", range, "flags.qt")
    r:fields("debug_header", { { "reserved", 2 } })
    local kind = range:le_uint() % 4
    if kind > 1 then
        fault("the queue type of a DebugHeader must be 0 or 1")
    elseif kind == 1 then
        r:fields("debug_header", { { "queue_identifier", 16 } })
    end
    r:close()
end

local function soap_section(r, word, expected)
    local values = r:fields("soap_header", { { word .. "_section_id", 2 }, { word .. "_reserved", 2 }, { word .. "_data_length", 4 } })
    if values[word .. "_section_id"] ~= expected then
        fault(string.format("a section of a SoapHeader must be 0x%04x", expected))
    end
    local units = values[word .. "_data_length"]
    if units > 0 then
        r:text("soap_header." .. word, 2 * units, "SoapHeader")
    end
end

local function soap_header(r)
    r:open("SoapHeader")
    soap_section(r, "header", 0x0320)
    -- The specification has no rule for padding between the sections: both forms are read.
    local boundary = math.floor((r.at + 3) / 4) * 4
    if boundary + 2 <= r.stop and r.tvb(boundary, 2):le_uint() == 0x0384 then
        r.at = boundary
    end
    soap_section(r, "body", 0x0384)
    r:align(4)
    r:close()
end

-- One element of a list, as a format name. A public one may or may not start on a multiple of 4.
local function element(r, align_public)
    local kind = r:take(2, "FormatType"):le_uint()
    if not FORMAT_TYPES[kind] then
        fault("the type of a format name must be 1, 2, 3 or 6")
    end
    if kind == 3 then
        r:align(2)
        local start = r.at
        repeat
            local unit = r:take(2, "a direct element"):le_uint()
        until unit == 0
        local range = r.tvb(start, r.at - start - 2)
        return "DIRECT=" .. (range:len() > 0 and range:le_ustring() or "")
    end
    if kind ~= 1 or align_public then
        r:align(4)
    end
    local guid = r:guid_text(r:take(16, "an element"))
    if kind == 2 then
        return string.format("PRIVATE=%s\\%x", guid, r:take(4, "an element"):le_uint())
    end
    return (kind == 1 and "PUBLIC=" or "DL=") .. guid
end

local function address_list(r, word)
    local start = r.at
    local filter = word .. "."
    local values = r:fields("multi_queue_format_header", {
        { filter .. "header_size", 4 }, { filter .. "header_id", 2 }, { filter .. "reserved", 2 },
        { filter .. "element_count", 4 },
    })
    local size, count = values[filter .. "header_size"], values[filter .. "element_count"]
    if size < 12 or start + size > r.stop or count > math.min(size, MAX_ELEMENTS) then
        fault("a list of queues does not fit its packet")
    end
    local function read(align_public)
        local names, inner = {}, Reader.new(r.tvb, r.tree)
        inner.at, inner.stop, inner.name, inner.header = start + 12, start + size, word, r.header
        for _ = 1, count do
            local from = inner.at
            names[#names + 1] = { r.tvb(from, 0), element(inner, align_public), from }
            names[#names][1] = r.tvb(from, inner.at - from)
        end
        if math.floor((inner.at + 3) / 4) ~= math.floor((start + size + 3) / 4) then
            fault("a list of queues is longer than its elements")
        end
        return names, inner.at
    end
    local is_read, names, after = pcall(read, false)
    if not is_read then
        names, after = read(true)
    end
    for _, name in ipairs(names) do
        r.header:add(F["multi_queue_format_header." .. word], name[1], name[2])
    end
    r.at = after
    r:align(4)
end

local function multi_queue_header(r)
    r:open("MultiQueueFormatHeader")
    for _, word in ipairs({ "destination", "administration", "response" }) do
        address_list(r, word)
    end
    local size = r:fields("multi_queue_format_header", {
        { "signature_id", 2 }, { "signature_reserved", 2 }, { "signature_size", 4 },
    }).signature_size
    if size > 0 then
        r.header:add(F["multi_queue_format_header.signature"], r:take(size, "Signature"))
    end
    r:align(4)
    r:close()
end

local function session_header(r)
    r:open("SessionHeader")
    local values = r:fields("session_header", {
        { "ack_sequence_number", 2 }, { "recoverable_msg_ack_seq_number", 2 }, { "recoverable_msg_ack_flags", 4 },
        { "user_msg_sequence_number", 2 }, { "recoverable_msg_seq_number", 2 }, { "window_size", 2 }, { "reserved", 2 },
    })
    r:close()
    return values
end

local function user_message(r, base_flags, packet_size)
    r.stop = math.min(r.stop, packet_size)
    local user = user_header(r)
    if user.transaction then
        transaction_header(r)
    end
    local is_encrypted = user.security and security_header(r)
    local values = properties_header(r)
    local name = "UserMessage"
    if base_flags == 0 and values.label == "QM Ordering Ack" and is_order_queue(user.to) and not is_encrypted then
        if values.message_class == 0x00FF and values.message_size == 36 then
            name = "OrderAck"
        elseif values.message_class >= 0x4000 then
            name = "FinalAck"
        end
        if name ~= "UserMessage" then
            if values.message_size ~= 36 or not values.body then
                fault("the body of an ordering acknowledgment must have 36 bytes")
            end
            ordering(r, name, values.body)
        end
    end
    if math.floor(base_flags / 0x20) % 2 == 1 then
        debug_header(r)
    end
    if user.soap then
        soap_header(r)
    end
    if user.multi then
        multi_queue_header(r)
    end
    if math.floor(base_flags / 0x10) % 2 == 1 then
        r.at, r.stop = packet_size, r.tvb:len()
        session_header(r)
    end
    local facts = { name }
    if user.to then
        facts[#facts + 1] = user.to
    end
    if values.label and values.label ~= "" then
        facts[#facts + 1] = '"' .. values.label .. '"'
    end
    if name == "UserMessage" and values.message_class ~= 0 then
        facts[#facts + 1] = CLASSES[values.message_class] or string.format("class 0x%04x", values.message_class)
    end
    return table.concat(facts, " ")
end

local function internal_packet(r)
    r:open("InternalHeader")
    local flags = r:take(4)
    r.header:add_le(F["internal_header.reserved"], flags(0, 2))
    r.header:add_le(F["internal_header.flags"], flags(2, 2))
    r:bits("internal_header", flags(2, 2), "packet_type", "refused")
    r:close()
    local value = flags(2, 2):le_uint()
    local kind = value % 16
    local refused = math.floor(value / 16) % 2 == 1 and ", refused" or ""
    if kind == 1 then
        local session = session_header(r)
        return string.format("SessionAck %d, recoverable %d", session.ack_sequence_number, session.recoverable_msg_ack_seq_number)
    elseif kind == 2 then
        r:open("EstablishConnectionHeader")
        r:fields("establish_connection_header", { { "client_guid", 16 }, { "server_guid", 16 }, { "time_stamp", 4 } })
        local system = r:take(2)
        r.header:add_le(F["establish_connection_header.operating_system"], system)
        r:bits("establish_connection_header", system, "operating_system.re", "operating_system.se", "operating_system.os",
            "operating_system.qs")
        r:fields("establish_connection_header", { { "reserved", 2 } })
        r.header:add(F["establish_connection_header.padding"], r:take(512))
        r:close()
    elseif kind == 3 then
        r:open("ConnectionParametersHeader")
        r:fields("connection_parameters_header", {
            { "recoverable_ack_timeout_ms", 4 }, { "ack_timeout_ms", 4 }, { "reserved", 2 }, { "window_size", 2 },
        })
        r:close()
    else
        fault(string.format("the type of an internal packet must be 1, 2 or 3, got %d", kind))
    end
    return PACKET_TYPES[kind] .. refused
end

-- Packets in a TCP stream. Wireshark gives whole packets: `packet_length` says how long each is.

local function begins_packet(tvb, at)
    if tvb:len() - at < 12 then
        return false
    end
    local size = tvb(at + 8, 4):le_uint()
    return tvb(at, 1):uint() == VERSION and tvb(at + 4, 4):le_uint() == LIOR and size >= BASE_SIZE and size <= MAX_PACKET
end

local function packet_length(tvb, _, at)
    if not begins_packet(tvb, at) then
        return tvb:len() - at
    end
    local flags, size = tvb(at + 2, 2):le_uint(), tvb(at + 8, 4):le_uint()
    -- MS-MQMQ 2.2.19.1: PacketSize does not count the SessionHeader after a UserMessage, and only that one.
    local has_session = math.floor(flags / 0x10) % 2 == 1 and math.floor(flags / 0x08) % 2 == 0
    return has_session and size + SESSION_SIZE or size
end

local function packet(tvb, pinfo, root)
    pinfo.cols.protocol = "MQQB"
    local tree = root:add(mqqb, tvb())
    if not begins_packet(tvb, 0) then
        tree:add_proto_expert_info(MIDDLE)
        pinfo.cols.info:append(string.format(" [%d bytes without a BaseHeader]", tvb:len()))
        return tvb:len()
    end
    local reader = Reader.new(tvb, tree)
    local is_read, found = pcall(function()
        local base = base_header(reader)
        if math.floor(base.flags / 0x08) % 2 == 1 then
            return internal_packet(reader)
        end
        return user_message(reader, base.flags, base.packet_size)
    end)
    if is_read then
        tree:append_text(", " .. found)
        pinfo.cols.info:append(" " .. found)
    else
        local text = type(found) == "table" and found.fault or tostring(found)
        tree:add_proto_expert_info(FAULT, text)
        pinfo.cols.info:append(" [" .. text .. "]")
    end
    return tvb:len()
end

function mqqb.dissector(tvb, pinfo, tree)
    pinfo.cols.info:clear()
    dissect_tcp_pdus(tvb, tree, BASE_SIZE, packet_length, packet)
    return tvb:len()
end

function ping.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "MQPING"
    local tree = root:add(ping, tvb())
    if tvb:len() ~= 24 or tvb(2, 2):le_uint() ~= 0x5548 then
        tree:add_proto_expert_info(PING_FAULT)
        return tvb:len()
    end
    local flags = tvb(0, 2)
    for _, word in ipairs({ "flags", "flags.rc", "flags.rf" }) do
        tree:add_le(P["ping." .. word], flags)
    end
    tree:add_le(P["ping.signature"], tvb(2, 2))
    tree:add_le(P["ping.cookie"], tvb(4, 4))
    tree:add_le(P["ping.queue_manager"], tvb(8, 16))
    pinfo.cols.info = string.format("Ping, cookie %u%s", tvb(4, 4):le_uint(), math.floor(flags:le_uint() / 2) % 2 == 1 and ", refused" or "")
    return tvb:len()
end

local function listen(protocol, layer)
    local port
    local function move()
        local dissectors = DissectorTable.get(layer)
        if port and port ~= protocol.prefs.port then
            dissectors:remove(port, protocol)
        end
        port = protocol.prefs.port
        dissectors:add(port, protocol)
    end
    protocol.prefs_changed = move
    move()
end

listen(mqqb, "tcp.port")
listen(ping, "udp.port")
