// A message as a manager stores it: the UserMessage packet, [MS-MQMQ] 2.2.20, read on demand, and names of queues.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Collections.Generic;
    using System.Globalization;
    using System.Text;

    /// <summary>One message of a queue. The properties are views of the packet's bytes.</summary>
    sealed class Packet
    {
        const int RecordSize = 28;
        const int PropertiesSize = 56;
        static readonly int[] QueueSizes = { 0, 0, 4, 4, 4, 16, 20, -1 };
        static readonly DateTime Epoch = new DateTime(1970, 1, 1, 0, 0, 0, DateTimeKind.Utc);

        readonly byte[] data;
        readonly int start;
        readonly uint flags;
        readonly int adminAt;
        readonly int responseAt;
        readonly int connectorAt;
        readonly int transactionAt;
        readonly int securityAt;
        readonly int propertiesAt;

        Packet(byte[] data, int record)
        {
            this.data = data;
            LookupId = BitConverter.ToUInt64(data, record);
            ArrivedMs = BitConverter.ToUInt64(data, record + 8);
            Reason = BitConverter.ToUInt16(data, record + 20);
            start = record + RecordSize;
            flags = U32(60);
            adminAt = After(64, flags >> 10 & 7);
            responseAt = After(adminAt, flags >> 13 & 7);
            connectorAt = After(responseAt, flags >> 16 & 7);
            var at = connectorAt + (Has(0x400000) ? 16 : 0);
            if (Has(0x100000))
            {
                transactionAt = at;
                at += (U32(at) & 1) != 0 ? 36 : 20;
            }
            if (Has(0x080000))
            {
                securityAt = at;
                at += 16 + Padded(U16(at + 2)) + Padded(U16(at + 4)) + Padded(U16(at + 6)) + Padded((int)U32(at + 8)) + Padded((int)U32(at + 12));
            }
            propertiesAt = at;
        }

        public ulong LookupId { get; }

        ulong ArrivedMs { get; }

        int Reason { get; }

        /// <summary>All messages of an answer. Raises an error if it is none.</summary>
        public static List<Packet> ReadAll(byte[] data)
        {
            var packets = new List<Packet>();
            try
            {
                var at = 0;
                while (at < data.Length)
                {
                    var size = BitConverter.ToInt32(data, at + 24);
                    if (size < 0 || size > data.Length - at - RecordSize)
                        throw new ArgumentException("a record is longer than the answer");
                    packets.Add(new Packet(data, at));
                    at += RecordSize + size;
                }
                if (at == data.Length)
                    return packets;
            }
            catch (Exception fault) when (fault is ArgumentException || fault is IndexOutOfRangeException || fault is OverflowException)
            {
            }
            throw new MessageQueueException(MessageQueueErrorCode.Generic, "the answer of the queue manager is not a list of messages");
        }

        public static Packet ReadOne(byte[] data)
        {
            return ReadAll(data)[0];
        }

        public string Id => $"{SourceMachine:D}\\{U32(56).ToString(CultureInfo.InvariantCulture)}";

        public Guid SourceMachine => GuidAt(16);

        public bool HasId(Guid manager, uint number)
        {
            return U32(56) == number && SourceMachine == manager;
        }

        public MessagePriority Priority => (MessagePriority)(data[start + 2] & 7);

        public bool Tracing => (data[start + 3] & 1) != 0;

        public uint TimeToReachQueue => U32(12);

        public uint TimeToBeReceived => U32(48);

        public DateTime SentTime => Epoch.AddSeconds(U32(52)).ToLocalTime();

        public DateTime ArrivedTime => Epoch.AddMilliseconds(ArrivedMs).ToLocalTime();

        public bool Recoverable => (flags & 0x60) != 0 || Transactional;

        public bool UseDeadLetterQueue => Has(0x100);

        public bool UseJournalQueue => Has(0x200);

        public bool Transactional => transactionAt != 0;

        public bool FirstInTransaction => Transactional && (U32(transactionAt) & 4) != 0;

        public bool LastInTransaction => Transactional && (U32(transactionAt) & 8) != 0;

        public string TransactionId => Transactional ? $"{SourceMachine:D}\\{(U32(transactionAt) & 0xFFFFF0) >> 4}" : "";

        public Guid ConnectorType => Has(0x400000) ? GuidAt(connectorAt) : Guid.Empty;

        public string DestinationQueue => Queue(flags >> 10 & 7, 64);

        public string AdminQueue => Queue(flags >> 13 & 7, adminAt);

        public string ResponseQueue
        {
            get
            {
                var code = flags >> 16 & 7;
                if (code == 1) // that of acknowledgments
                    return AdminQueue;
                if (code == 4 && (flags >> 13 & 7) == 6) // on its manager
                    return Private(GuidAt(adminAt), responseAt);
                return Queue(code, responseAt);
            }
        }

        public byte[] SenderId => securityAt != 0 && (U16(securityAt) & 15) == 1 ? Bytes(securityAt + 16, U16(securityAt + 2)) : new byte[0];

        public byte[] SymmetricKey => Item(1);

        public byte[] Signature => Item(2);

        public byte[] Certificate => Item(3);

        /// <summary>Whether the sender is proved. The digests of SOAP, 9, prove none.</summary>
        public bool Authenticated => securityAt != 0 && (U16(securityAt) >> 8 & 15) is var level && level != 0 && level != 9;

        public bool Encrypted => securityAt != 0 && ((U16(securityAt) & 0x20) != 0 || U16(securityAt + 4) > 0);

        public int AckFlags => data[start + propertiesAt];

        /// <summary>The class of the message; of a dead letter, why it died.</summary>
        public int Class => Reason != 0 ? Reason : U16(propertiesAt + 2);

        public string CorrelationId => $"{GuidAt(propertiesAt + 4):D}\\{U32(propertiesAt + 20).ToString(CultureInfo.InvariantCulture)}";

        public bool Answers(Guid manager, uint number)
        {
            return U32(propertiesAt + 20) == number && GuidAt(propertiesAt + 4) == manager;
        }

        public int BodyType => (int)U32(propertiesAt + 24);

        public int AppSpecific => (int)U32(propertiesAt + 28);

        public HashAlgorithm HashAlgorithm => (HashAlgorithm)U32(propertiesAt + 44);

        public EncryptionAlgorithm EncryptionAlgorithm => Encrypted ? (EncryptionAlgorithm)U32(propertiesAt + 48) : EncryptionAlgorithm.None;

        public string Label
        {
            get
            {
                var units = LabelUnits;
                return units == 0 ? "" : Encoding.Unicode.GetString(data, start + propertiesAt + PropertiesSize, 2 * units - 2);
            }
        }

        public byte[] Extension => Bytes(propertiesAt + PropertiesSize + 2 * LabelUnits, (int)U32(propertiesAt + 52));

        public byte[] Body => Bytes(propertiesAt + PropertiesSize + 2 * LabelUnits + (int)U32(propertiesAt + 52), (int)U32(propertiesAt + 32));

        int LabelUnits => data[start + propertiesAt + 1];

        byte[] Item(int which)
        {
            if (securityAt == 0)
                return new byte[0];
            var at = securityAt + 16;
            int Size(int each) => each < 3 ? U16(securityAt + 2 + 2 * each) : (int)U32(securityAt + 8 + 4 * (each - 3));
            for (var each = 0; each < which; each++)
                at += Padded(Size(each));
            return Bytes(at, Size(which));
        }

        string Queue(uint code, int at)
        {
            switch (code)
            {
                case 2:
                    return Private(SourceMachine, at);
                case 3:
                    return Private(GuidAt(32), at);
                case 4:
                    return Private(Guid.Empty, at);
                case 5:
                    return "PUBLIC=" + GuidAt(at);
                case 6:
                    return Private(GuidAt(at), at + 16);
                case 7:
                    var name = Encoding.Unicode.GetString(data, start + at + 2, U16(at)).TrimEnd('\0');
                    return name.StartsWith("MULTICAST=", StringComparison.OrdinalIgnoreCase) ? name : "DIRECT=" + name;
                default:
                    return null;
            }
        }

        string Private(Guid manager, int at)
        {
            return $"PRIVATE={manager}\\{U32(at):x}";
        }

        int After(int at, uint code)
        {
            return code == 7 ? at + Padded(2 + U16(at)) : at + QueueSizes[code];
        }

        bool Has(uint flag)
        {
            return (flags & flag) != 0;
        }

        static int Padded(int size)
        {
            return checked(size + 3) & ~3;
        }

        int U16(int at)
        {
            return BitConverter.ToUInt16(data, start + at);
        }

        uint U32(int at)
        {
            return BitConverter.ToUInt32(data, start + at);
        }

        Guid GuidAt(int at)
        {
            return new Guid(Bytes(at, 16));
        }

        byte[] Bytes(int at, int size)
        {
            var copy = new byte[size];
            Buffer.BlockCopy(data, start + at, copy, 0, size);
            return copy;
        }
    }

    /// <summary>Paths and format names of System.Messaging, and the names that the HTTP API takes.</summary>
    static class Names
    {
        public const string FormatName = "FormatName:";
        public const string Label = "Label:";
        static readonly Dictionary<string, string> Tails = new Dictionary<string, string>(StringComparer.OrdinalIgnoreCase)
        {
            { "Journal$", ";journal" },
            { "Deadletter$", ";deadletter" },
            { "XactDeadletter$", ";deadxact" },
            { "DeadXact$", ";deadxact" },
        };

        public static bool IsFormatName(string path)
        {
            return path.StartsWith(FormatName, StringComparison.OrdinalIgnoreCase);
        }

        public static bool IsLabel(string path)
        {
            return path.StartsWith(Label, StringComparison.OrdinalIgnoreCase);
        }

        /// <summary>Whether a path has the form MACHINE\QUEUE, MACHINE\private$\QUEUE, or one of these with a journal.</summary>
        public static bool IsPath(string path)
        {
            var parts = path.Split('\\');
            if (parts.Length < 2 || parts.Length > 4 || parts[0].Trim().Length == 0 || IsPrivateWord(parts[0]))
                return false;
            for (var i = 1; i < parts.Length; i++)
            {
                if (parts[i].Trim().Length == 0)
                    return false;
            }
            var isPrivate = IsPrivateWord(parts[1]);
            return parts.Length == 2 ? !isPrivate : parts.Length == 3 ? isPrivate || Is(parts[2], "Journal$") : isPrivate && Is(parts[3], "Journal$");
        }

        static bool IsPrivateWord(string part)
        {
            return Is(part, "private$");
        }

        static bool Is(string part, string word)
        {
            return string.Equals(part, word, StringComparison.OrdinalIgnoreCase);
        }

        /// <summary>Whether a machine's name means the local queue manager.</summary>
        public static bool IsLocal(string machine)
        {
            return machine == "." || Is(machine, "localhost") || Is(machine, Environment.MachineName);
        }

        /// <summary>The machine of a path, or of a direct format name; "." for all others.</summary>
        public static string Machine(string path)
        {
            var name = path;
            if (IsFormatName(path))
            {
                name = path.Substring(FormatName.Length);
                if (!name.StartsWith("DIRECT=", StringComparison.OrdinalIgnoreCase) || name.IndexOf(',') >= 0)
                    return ".";
                name = name.Substring(name.IndexOf(':') + 1);
            }
            else if (IsLabel(path))
            {
                return ".";
            }
            return name.Split('\\')[0];
        }

        /// <summary>The name that the HTTP API takes for a path, or null if the path is none.</summary>
        public static string ForApi(string path)
        {
            if (IsFormatName(path))
            {
                var name = path.Substring(FormatName.Length).Trim();
                const string Direct = "DIRECT=OS:";
                var slash = name.IndexOf('\\');
                return name.IndexOf(',') < 0
                    && name.StartsWith(Direct, StringComparison.OrdinalIgnoreCase)
                    && slash > Direct.Length
                    && IsLocal(name.Substring(Direct.Length, slash - Direct.Length))
                    ? Direct + "." + name.Substring(slash)
                    : name;
            }
            var semicolon = path.IndexOf(';');
            var subqueue = semicolon < 0 ? "" : path.Substring(semicolon);
            var plain = semicolon < 0 ? path : path.Substring(0, semicolon);
            if (!IsPath(plain))
                return null;
            var parts = plain.Split('\\');
            var machine = IsLocal(parts[0]) ? "." : parts[0];
            if (parts.Length == 2 && Tails.TryGetValue(parts[1], out var tail))
                return machine == "." ? tail : $"DIRECT=OS:{machine}\\SYSTEM${tail.ToUpperInvariant()}";
            if (Is(parts[parts.Length - 1], "Journal$"))
                return Join(machine, parts, parts.Length - 1) + ";journal";
            return Join(machine, parts, parts.Length) + subqueue;
        }

        static string Join(string machine, string[] parts, int count)
        {
            var queue = string.Join("\\", parts, 1, count - 1);
            return machine == "." && IsPrivateWord(parts[1]) ? queue : $"{machine}\\{queue}";
        }

        /// <summary>The path of a queue that the API has listed.</summary>
        public static string FromApi(string listed, string machine)
        {
            return listed.StartsWith("private$\\", StringComparison.OrdinalIgnoreCase) ? $"{machine}\\{listed}" : listed;
        }

        /// <summary>A message id, `{guid}\number`, or false.</summary>
        public static bool ReadId(string id, out Guid manager, out uint number)
        {
            manager = Guid.Empty;
            number = 0;
            var slash = id.IndexOf('\\');
            return slash > 0
                && Guid.TryParse(id.Substring(0, slash), out manager)
                && uint.TryParse(id.Substring(slash + 1), NumberStyles.None, CultureInfo.InvariantCulture, out number);
        }
    }
}
