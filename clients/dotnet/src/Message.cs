// A message to send, or one that was read. Reads copy the properties that the filter names out of the packet.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.ComponentModel;
    using System.IO;
    using System.Runtime.CompilerServices;
    using Property = MessagePropertyFilter.Property;

    /// <summary>A message with its body and properties.</summary>
    public class Message : Component
    {
        public static readonly TimeSpan InfiniteTimeout = TimeSpan.FromSeconds(uint.MaxValue);
        const int MaxLabel = 249;
        // What a message that was not read has no value for.
        const Property Given = Property.Acknowledgment | Property.ArrivedTime | Property.Authenticated | Property.DestinationQueue
            | Property.Id | Property.IsFirstInTransaction | Property.IsLastInTransaction | Property.LookupId | Property.MessageType
            | Property.SenderId | Property.SenderVersion | Property.SentTime | Property.SourceMachine | Property.TransactionId;

        readonly MessagePropertyFilter known;
        readonly Packet packet;
        readonly MessageQueue origin;
        object body;
        bool hasBody;
        bool replaced; // whether the body is no longer that of the packet
        Stream stream;
        IMessageFormatter formatter;
        string id;

        AcknowledgeTypes acknowledgeType;
        MessageQueue administrationQueue;
        int appSpecific;
        bool attachSenderId = true;
        string providerName = "Microsoft Base Cryptographic Provider, Ver. 1.0";
        CryptographicProviderType providerType = CryptographicProviderType.RsaFull;
        int bodyType;
        Guid connectorType;
        string correlationId = "";
        byte[] symmetricKey = Array.Empty<byte>();
        byte[] signature = Array.Empty<byte>();
        EncryptionAlgorithm encryptionAlgorithm = EncryptionAlgorithm.Rc2;
        byte[] extension = Array.Empty<byte>();
        HashAlgorithm hashAlgorithm = HashAlgorithm.Sha512;
        string label = "";
        MessagePriority priority = MessagePriority.Normal;
        bool recoverable;
        MessageQueue responseQueue;
        byte[] certificate = Array.Empty<byte>();
        TimeSpan timeToBeReceived = InfiniteTimeout;
        TimeSpan timeToReachQueue = InfiniteTimeout;
        MessageQueue statusQueue;
        bool useAuthentication;
        bool useDeadLetterQueue;
        bool useEncryption;
        bool useJournalQueue;
        bool useTracing;

        public Message()
        {
            known = new MessagePropertyFilter(Property.All & ~Given);
            GC.SuppressFinalize(this); // a message has nothing to dispose
        }

        public Message(object body)
            : this()
        {
            Body = body;
        }

        public Message(object body, IMessageFormatter formatter)
            : this()
        {
            Formatter = formatter;
            Body = body;
        }

        /// <summary>A message that was read from a queue, with the properties of the filter.</summary>
        internal Message(Packet packet, MessageQueue origin, MessagePropertyFilter filter, IMessageFormatter formatter)
        {
            this.packet = packet;
            this.origin = origin;
            this.formatter = formatter;
            GC.SuppressFinalize(this); // a message has nothing to dispose
            var chosen = filter.Chosen;
            known = new MessagePropertyFilter(chosen);
            bool Has(Property property) => (chosen & property) != 0;
            if (Has(Property.AcknowledgeType))
                acknowledgeType = (AcknowledgeTypes)packet.AckFlags;
            if (Has(Property.AdministrationQueue))
                administrationQueue = MessageQueue.Named(packet.AdminQueue);
            if (Has(Property.AppSpecific))
                appSpecific = packet.AppSpecific;
            if (Has(Property.AttachSenderId))
                attachSenderId = packet.SenderId.Length > 0;
            if (Has(Property.Body))
                bodyType = packet.BodyType; // the body itself and the label are copied when they are asked for
            if (Has(Property.ConnectorType))
                connectorType = packet.ConnectorType;
            if (Has(Property.CorrelationId))
                correlationId = packet.CorrelationId;
            if (Has(Property.DestinationSymmetricKey))
                symmetricKey = packet.SymmetricKey;
            if (Has(Property.DigitalSignature))
                signature = packet.Signature;
            if (Has(Property.EncryptionAlgorithm))
                encryptionAlgorithm = packet.EncryptionAlgorithm;
            if (Has(Property.Extension))
                extension = packet.Extension;
            if (Has(Property.HashAlgorithm))
                hashAlgorithm = packet.HashAlgorithm;
            if (Has(Property.Label))
                label = null;
            if (Has(Property.Priority))
                priority = packet.Priority;
            if (Has(Property.Recoverable))
                recoverable = packet.Recoverable;
            if (Has(Property.ResponseQueue))
                responseQueue = MessageQueue.Named(packet.ResponseQueue);
            if (Has(Property.SenderCertificate))
                certificate = packet.Certificate;
            if (Has(Property.TimeToBeReceived))
                timeToBeReceived = TimeSpan.FromSeconds(packet.TimeToBeReceived);
            if (Has(Property.TimeToReachQueue))
                timeToReachQueue = TimeSpan.FromSeconds(packet.TimeToReachQueue);
            if (Has(Property.UseAuthentication))
                useAuthentication = packet.Signature.Length > 0;
            if (Has(Property.UseDeadLetterQueue))
                useDeadLetterQueue = packet.UseDeadLetterQueue;
            if (Has(Property.UseEncryption))
                useEncryption = packet.Encrypted;
            if (Has(Property.UseJournalQueue))
                useJournalQueue = packet.UseJournalQueue;
            if (Has(Property.UseTracing))
                useTracing = packet.Tracing;
        }

        // Set by senders

        public AcknowledgeTypes AcknowledgeType
        {
            get => Get(acknowledgeType, Property.AcknowledgeType);
            set => Set(ref acknowledgeType, Valid(value, ((int)value & ~15) == 0), Property.AcknowledgeType);
        }

        public MessageQueue AdministrationQueue
        {
            get => Get(administrationQueue, Property.AdministrationQueue);
            set => Set(ref administrationQueue, value, Property.AdministrationQueue);
        }

        public int AppSpecific
        {
            get => Get(appSpecific, Property.AppSpecific);
            set => Set(ref appSpecific, value, Property.AppSpecific);
        }

        /// <summary>The queue manager decides whether a message has the sender's id: for users who have logged in.</summary>
        public bool AttachSenderId
        {
            get => Get(attachSenderId, Property.AttachSenderId);
            set => Set(ref attachSenderId, value, Property.AttachSenderId);
        }

        public string AuthenticationProviderName
        {
            get => Get(providerName, Property.AuthenticationProviderName);
            set => Set(ref providerName, value ?? throw new ArgumentException("AuthenticationProviderName must not be null"), Property.AuthenticationProviderName);
        }

        public CryptographicProviderType AuthenticationProviderType
        {
            get => Get(providerType, Property.AuthenticationProviderType);
            set => Set(ref providerType, Valid(value), Property.AuthenticationProviderType);
        }

        /// <summary>The object that the formatter writes, or reads.</summary>
        public object Body
        {
            get
            {
                Require(Property.Body);
                if (!hasBody && Stream != null && (packet != null || formatter != null))
                {
                    if (formatter == null)
                        throw new InvalidOperationException("Body cannot be read: the message has no Formatter");
                    if (!formatter.CanRead(this))
                        throw new InvalidOperationException(
                            $"Body cannot be read: {formatter.GetType().Name} does not know this body (BodyType {bodyType})");
                    body = formatter.Read(this);
                    hasBody = true;
                }
                return body;
            }
            set
            {
                Learn(Property.Body);
                body = value;
                hasBody = value != null;
                stream = null;
                replaced = true;
            }
        }

        public Stream BodyStream
        {
            get
            {
                Require(Property.Body);
                return Stream ?? (stream = new MemoryStream());
            }
            set
            {
                Learn(Property.Body);
                stream = value;
                body = null;
                hasBody = false;
                replaced = true;
            }
        }

        public int BodyType
        {
            get => Get(bodyType, Property.Body);
            set => Set(ref bodyType, value, Property.Body);
        }

        public Guid ConnectorType
        {
            get => Get(connectorType, Property.ConnectorType);
            set => Set(ref connectorType, value, Property.ConnectorType);
        }

        /// <summary>The id of another message, GUID\NUMBER.</summary>
        public string CorrelationId
        {
            get => Get(correlationId, Property.CorrelationId);
            set
            {
                if (!string.IsNullOrEmpty(value) && !Names.ReadId(value, out _, out _))
                    throw new FormatException($"CorrelationId must be a GUID, a backslash and a number, got {value}");
                Set(ref correlationId, value ?? "", Property.CorrelationId);
            }
        }

        public byte[] DestinationSymmetricKey
        {
            get => Get(symmetricKey, Property.DestinationSymmetricKey);
            set => Set(ref symmetricKey, value ?? Array.Empty<byte>(), Property.DestinationSymmetricKey);
        }

        /// <summary>A signature that the application has made itself. It is sent with SenderCertificate.</summary>
        public byte[] DigitalSignature
        {
            get => Get(signature, Property.DigitalSignature);
            set => Set(ref signature, value ?? Array.Empty<byte>(), Property.DigitalSignature);
        }

        public EncryptionAlgorithm EncryptionAlgorithm
        {
            get => Get(encryptionAlgorithm, Property.EncryptionAlgorithm);
            set
            {
                Set(ref encryptionAlgorithm, Valid(value), Property.EncryptionAlgorithm);
                CipherChosen = true;
            }
        }

        public byte[] Extension
        {
            get => Get(extension, Property.Extension);
            set => Set(ref extension, value ?? Array.Empty<byte>(), Property.Extension);
        }

        public IMessageFormatter Formatter
        {
            get => formatter;
            set => formatter = value ?? throw new ArgumentNullException(nameof(value));
        }

        public HashAlgorithm HashAlgorithm
        {
            get => Get(hashAlgorithm, Property.HashAlgorithm);
            set => Set(ref hashAlgorithm, Valid(value), Property.HashAlgorithm);
        }

        public string Label
        {
            get => Get(label ?? (label = packet.Label), Property.Label);
            set
            {
                if (value != null && value.Length > MaxLabel)
                    throw new ArgumentException($"Label must have at most {MaxLabel} characters, got {value.Length}");
                Set(ref label, value ?? "", Property.Label);
            }
        }

        public MessagePriority Priority
        {
            get => Get(priority, Property.Priority);
            set => Set(ref priority, Valid(value), Property.Priority);
        }

        public bool Recoverable
        {
            get => Get(recoverable, Property.Recoverable);
            set => Set(ref recoverable, value, Property.Recoverable);
        }

        public MessageQueue ResponseQueue
        {
            get => Get(responseQueue, Property.ResponseQueue);
            set => Set(ref responseQueue, value, Property.ResponseQueue);
        }

        public byte[] SenderCertificate
        {
            get => Get(certificate, Property.SenderCertificate);
            set => Set(ref certificate, value ?? Array.Empty<byte>(), Property.SenderCertificate);
        }

        public TimeSpan TimeToBeReceived
        {
            get => Get(timeToBeReceived, Property.TimeToBeReceived);
            set => Set(ref timeToBeReceived, Lifetime(value), Property.TimeToBeReceived);
        }

        /// <summary>Infinite is four days, as on Windows.</summary>
        public TimeSpan TimeToReachQueue
        {
            get => Get(timeToReachQueue, Property.TimeToReachQueue);
            set => Set(ref timeToReachQueue, Lifetime(value), Property.TimeToReachQueue);
        }

        /// <summary>Connector applications alone use this queue. It is not sent.</summary>
        public MessageQueue TransactionStatusQueue
        {
            get => Get(statusQueue, Property.TransactionStatusQueue);
            set => Set(ref statusQueue, value, Property.TransactionStatusQueue);
        }

        public bool UseAuthentication
        {
            get => Get(useAuthentication, Property.UseAuthentication);
            set => Set(ref useAuthentication, value, Property.UseAuthentication);
        }

        public bool UseDeadLetterQueue
        {
            get => Get(useDeadLetterQueue, Property.UseDeadLetterQueue);
            set => Set(ref useDeadLetterQueue, value, Property.UseDeadLetterQueue);
        }

        public bool UseEncryption
        {
            get => Get(useEncryption, Property.UseEncryption);
            set => Set(ref useEncryption, value, Property.UseEncryption);
        }

        public bool UseJournalQueue
        {
            get => Get(useJournalQueue, Property.UseJournalQueue);
            set => Set(ref useJournalQueue, value, Property.UseJournalQueue);
        }

        public bool UseTracing
        {
            get => Get(useTracing, Property.UseTracing);
            set => Set(ref useTracing, value, Property.UseTracing);
        }

        // Set by queue managers

        /// <summary>What an acknowledgment says. It is also why a dead letter died.</summary>
        public Acknowledgment Acknowledgment => (Acknowledgment)Read(Property.Acknowledgment).Class;

        public DateTime ArrivedTime => Read(Property.ArrivedTime).ArrivedTime;

        public bool Authenticated => Read(Property.Authenticated).Authenticated;

        public MessageQueue DestinationQueue => MessageQueue.Named(Read(Property.DestinationQueue).DestinationQueue);

        /// <summary>The id, GUID\NUMBER: of a message that was read or sent.</summary>
        public string Id
        {
            get
            {
                Require(Property.Id);
                return id ?? packet.Id;
            }
        }

        public bool IsFirstInTransaction => Read(Property.IsFirstInTransaction).FirstInTransaction;

        public bool IsLastInTransaction => Read(Property.IsLastInTransaction).LastInTransaction;

        public long LookupId => unchecked((long)Read(Property.LookupId).LookupId);

        public MessageType MessageType
        {
            get
            {
                var messageClass = Read(Property.MessageType).Class;
                return messageClass == 0 ? MessageType.Normal : messageClass == 1 ? MessageType.Report : MessageType.Acknowledgment;
            }
        }

        public byte[] SenderId => Read(Property.SenderId).SenderId;

        /// <summary>0x10, the version of every packet.</summary>
        public long SenderVersion => Read(Property.SenderVersion) == null ? 0 : 0x10;

        public DateTime SentTime => Read(Property.SentTime).SentTime;

        /// <summary>The name of the sending queue manager; its GUID, if nobody knows the name.</summary>
        public string SourceMachine
        {
            get
            {
                var sender = Read(Property.SourceMachine).SourceMachine;
                return origin.Manager.NameOf(sender);
            }
        }

        public string TransactionId => Read(Property.TransactionId).TransactionId;

        /// <summary>A context for the sender's own certificate. Certificates of the user are not kept off Windows.</summary>
        public SecurityContext SecurityContext { get; set; }

        internal bool CipherChosen { get; private set; }

        internal ulong Position => packet.LookupId;

        /// <summary>The stream that was set or written; of a message that was read, its body.</summary>
        Stream Stream
        {
            get
            {
                if (stream == null && packet != null && !replaced && Knows(Property.Body))
                    stream = new MemoryStream(packet.Body, false);
                return stream;
            }
        }

        /// <summary>Writes the body with the formatter of the message, or else with that of the queue.</summary>
        internal byte[] Write(IMessageFormatter other)
        {
            if (hasBody && (Stream == null || packet == null))
                (formatter ?? other).Write(this, body);
            if (Stream == null)
                return Array.Empty<byte>();
            if (stream is MemoryStream memory)
                return memory.ToArray();
            var copy = new MemoryStream();
            if (stream.CanSeek)
                stream.Position = 0;
            stream.CopyTo(copy);
            return copy.ToArray();
        }

        /// <summary>The stream that a formatter writes. The body stays the object that was given.</summary>
        internal void Written(Stream written, int type)
        {
            var kept = body;
            BodyStream = written;
            BodyType = type;
            body = kept;
            hasBody = kept != null;
        }

        /// <summary>The message as JSON for the API.</summary>
        internal byte[] ToJson(IMessageFormatter other, bool transactional)
        {
            var bytes = Write(other);
            var json = new JsonWriter().Add("body_base64", bytes);
            if (bodyType != 0)
                json.Add("body_type", unchecked((uint)bodyType));
            if (Knows(Property.Label) && Label.Length > 0)
                json.Add("label", Label);
            if (priority != MessagePriority.Normal)
                json.Add("priority", (long)priority);
            if (recoverable)
                json.Add("recoverable", true);
            if (transactional)
                json.Add("transactional", true);
            if (appSpecific != 0)
                json.Add("app_tag", unchecked((uint)appSpecific));
            if (correlationId.Length > 0 && Names.ReadId(correlationId, out var manager, out var number) && (number != 0 || manager != Guid.Empty))
                json.Add("correlation_id", $"{manager:B}\\{number}");
            json.Add("response_queue", responseQueue?.NameForOthers).Add("admin_queue", administrationQueue?.NameForOthers);
            if (acknowledgeType != AcknowledgeTypes.None)
                json.Add("ack", (long)acknowledgeType);
            if (timeToReachQueue < InfiniteTimeout)
                json.Add("time_to_reach_queue", (long)timeToReachQueue.TotalSeconds);
            if (timeToBeReceived < InfiniteTimeout)
                json.Add("time_to_be_received", (long)timeToBeReceived.TotalSeconds);
            if (useJournalQueue)
                json.Add("journal", true);
            if (useDeadLetterQueue)
                json.Add("dead_letter", true);
            if (extension.Length > 0)
                json.Add("extension_base64", extension);
            if (connectorType != Guid.Empty)
                json.Add("connector_type", connectorType.ToString());
            if (useEncryption)
                json.Add("encrypt", !CipherChosen ? "" : encryptionAlgorithm == EncryptionAlgorithm.Rc4 ? "rc4" : "rc2");
            if (packet == null && signature.Length > 0 && certificate.Length > 0)
                json.Add("signature_base64", signature).Add("certificate_base64", certificate).Add("hash", HashWord());
            return json.ToBytes();
        }

        /// <summary>What a message has after it was sent.</summary>
        internal void Sent(string sentId)
        {
            id = sentId.Replace("{", "").Replace("}", "");
            Learn(Property.Id);
        }

        string HashWord()
        {
            return hashAlgorithm == HashAlgorithm.Sha ? "sha1" : hashAlgorithm.ToString().ToLowerInvariant();
        }

        Packet Read(Property property)
        {
            Require(property);
            return packet ?? throw Missing(property);
        }

        T Get<T>(T value, Property property)
        {
            Require(property);
            return value;
        }

        void Set<T>(ref T field, T value, Property property)
        {
            field = value;
            Learn(property);
        }

        void Require(Property property)
        {
            if (!Knows(property))
                throw Missing(property);
        }

        bool Knows(Property property)
        {
            return (known.Chosen & property) != 0;
        }

        void Learn(Property property)
        {
            known.Chosen |= property;
        }

        InvalidOperationException Missing(Property property)
        {
            return new InvalidOperationException(
                packet == null
                    ? $"{property} is known only of a message that was {(property == Property.Id ? "sent or read" : "read")}"
                    : $"{property} was not read: set MessageReadPropertyFilter.{property} of the queue before the read");
        }

        static T Valid<T>(T value, bool valid, [CallerMemberName] string name = null)
        {
            return valid ? value : throw new InvalidEnumArgumentException($"{name} must be a value of {typeof(T).Name}, got {value}");
        }

        static T Valid<T>(T value, [CallerMemberName] string name = null)
        {
            return Valid(value, Enum.IsDefined(typeof(T), value), name);
        }

        static TimeSpan Lifetime(TimeSpan value, [CallerMemberName] string name = null)
        {
            if (value < TimeSpan.Zero)
                throw new ArgumentException($"{name} must not be negative, got {value}");
            return value < InfiniteTimeout ? value : InfiniteTimeout;
        }
    }
}
