// Which properties a read brings, and what sent objects get.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.ComponentModel;
    using System.Runtime.CompilerServices;

    /// <summary>The properties of a message that a read brings. Reading another one raises InvalidOperationException.</summary>
    [TypeConverter(typeof(ExpandableObjectConverter))]
    public class MessagePropertyFilter
    {
        [Flags]
        internal enum Property : ulong
        {
            AcknowledgeType = 1, Acknowledgment = 1 << 1, AdministrationQueue = 1 << 2, AppSpecific = 1 << 3,
            ArrivedTime = 1 << 4, AttachSenderId = 1 << 5, Authenticated = 1 << 6, AuthenticationProviderName = 1 << 7,
            AuthenticationProviderType = 1 << 8, Body = 1 << 9, ConnectorType = 1 << 10, CorrelationId = 1 << 11,
            DestinationQueue = 1 << 12, DestinationSymmetricKey = 1 << 13, DigitalSignature = 1 << 14,
            EncryptionAlgorithm = 1 << 15, Extension = 1 << 16, HashAlgorithm = 1 << 17, Id = 1 << 18,
            IsFirstInTransaction = 1 << 19, IsLastInTransaction = 1 << 20, Label = 1 << 21, LookupId = 1 << 22,
            MessageType = 1 << 23, Priority = 1 << 24, Recoverable = 1 << 25, ResponseQueue = 1 << 26,
            SenderCertificate = 1 << 27, SenderId = 1 << 28, SenderVersion = 1 << 29, SentTime = 1 << 30,
            SourceMachine = 1UL << 31, TimeToBeReceived = 1UL << 32, TimeToReachQueue = 1UL << 33,
            TransactionId = 1UL << 34, TransactionStatusQueue = 1UL << 35, UseAuthentication = 1UL << 36,
            UseDeadLetterQueue = 1UL << 37, UseEncryption = 1UL << 38, UseJournalQueue = 1UL << 39, UseTracing = 1UL << 40,
            All = (1UL << 41) - 1,
            Defaults = Acknowledgment | AdministrationQueue | Body | Id | Label | LookupId | MessageType | ResponseQueue,
        }

        const int DefaultBody = 1024;
        const int DefaultText = 255;
        internal Property Chosen;
        int bodySize = DefaultBody;
        int extensionSize = DefaultText;
        int labelSize = DefaultText;

        public MessagePropertyFilter()
        {
            SetDefaults();
        }

        internal MessagePropertyFilter(Property chosen)
        {
            Chosen = chosen;
        }

        [DefaultValue(false)]
        public bool AcknowledgeType
        {
            get => Get(Property.AcknowledgeType);
            set => Set(Property.AcknowledgeType, value);
        }

        [DefaultValue(true)]
        public bool Acknowledgment
        {
            get => Get(Property.Acknowledgment);
            set => Set(Property.Acknowledgment, value);
        }

        [DefaultValue(true)]
        public bool AdministrationQueue
        {
            get => Get(Property.AdministrationQueue);
            set => Set(Property.AdministrationQueue, value);
        }

        [DefaultValue(false)]
        public bool AppSpecific
        {
            get => Get(Property.AppSpecific);
            set => Set(Property.AppSpecific, value);
        }

        [DefaultValue(false)]
        public bool ArrivedTime
        {
            get => Get(Property.ArrivedTime);
            set => Set(Property.ArrivedTime, value);
        }

        [DefaultValue(false)]
        public bool AttachSenderId
        {
            get => Get(Property.AttachSenderId);
            set => Set(Property.AttachSenderId, value);
        }

        [DefaultValue(false)]
        public bool Authenticated
        {
            get => Get(Property.Authenticated);
            set => Set(Property.Authenticated, value);
        }

        [DefaultValue(false)]
        public bool AuthenticationProviderName
        {
            get => Get(Property.AuthenticationProviderName);
            set => Set(Property.AuthenticationProviderName, value);
        }

        [DefaultValue(false)]
        public bool AuthenticationProviderType
        {
            get => Get(Property.AuthenticationProviderType);
            set => Set(Property.AuthenticationProviderType, value);
        }

        [DefaultValue(true)]
        public bool Body
        {
            get => Get(Property.Body);
            set => Set(Property.Body, value);
        }

        [DefaultValue(false)]
        public bool ConnectorType
        {
            get => Get(Property.ConnectorType);
            set => Set(Property.ConnectorType, value);
        }

        [DefaultValue(false)]
        public bool CorrelationId
        {
            get => Get(Property.CorrelationId);
            set => Set(Property.CorrelationId, value);
        }

        [DefaultValue(false)]
        public bool DestinationQueue
        {
            get => Get(Property.DestinationQueue);
            set => Set(Property.DestinationQueue, value);
        }

        [DefaultValue(false)]
        public bool DestinationSymmetricKey
        {
            get => Get(Property.DestinationSymmetricKey);
            set => Set(Property.DestinationSymmetricKey, value);
        }

        [DefaultValue(false)]
        public bool DigitalSignature
        {
            get => Get(Property.DigitalSignature);
            set => Set(Property.DigitalSignature, value);
        }

        [DefaultValue(false)]
        public bool EncryptionAlgorithm
        {
            get => Get(Property.EncryptionAlgorithm);
            set => Set(Property.EncryptionAlgorithm, value);
        }

        [DefaultValue(false)]
        public bool Extension
        {
            get => Get(Property.Extension);
            set => Set(Property.Extension, value);
        }

        [DefaultValue(false)]
        public bool HashAlgorithm
        {
            get => Get(Property.HashAlgorithm);
            set => Set(Property.HashAlgorithm, value);
        }

        [DefaultValue(true)]
        public bool Id
        {
            get => Get(Property.Id);
            set => Set(Property.Id, value);
        }

        [DefaultValue(false)]
        public bool IsFirstInTransaction
        {
            get => Get(Property.IsFirstInTransaction);
            set => Set(Property.IsFirstInTransaction, value);
        }

        [DefaultValue(false)]
        public bool IsLastInTransaction
        {
            get => Get(Property.IsLastInTransaction);
            set => Set(Property.IsLastInTransaction, value);
        }

        [DefaultValue(true)]
        public bool Label
        {
            get => Get(Property.Label);
            set => Set(Property.Label, value);
        }

        [DefaultValue(true)]
        public bool LookupId
        {
            get => Get(Property.LookupId);
            set => Set(Property.LookupId, value);
        }

        [DefaultValue(true)]
        public bool MessageType
        {
            get => Get(Property.MessageType);
            set => Set(Property.MessageType, value);
        }

        [DefaultValue(false)]
        public bool Priority
        {
            get => Get(Property.Priority);
            set => Set(Property.Priority, value);
        }

        [DefaultValue(false)]
        public bool Recoverable
        {
            get => Get(Property.Recoverable);
            set => Set(Property.Recoverable, value);
        }

        [DefaultValue(true)]
        public bool ResponseQueue
        {
            get => Get(Property.ResponseQueue);
            set => Set(Property.ResponseQueue, value);
        }

        [DefaultValue(false)]
        public bool SenderCertificate
        {
            get => Get(Property.SenderCertificate);
            set => Set(Property.SenderCertificate, value);
        }

        [DefaultValue(false)]
        public bool SenderId
        {
            get => Get(Property.SenderId);
            set => Set(Property.SenderId, value);
        }

        [DefaultValue(false)]
        public bool SenderVersion
        {
            get => Get(Property.SenderVersion);
            set => Set(Property.SenderVersion, value);
        }

        [DefaultValue(false)]
        public bool SentTime
        {
            get => Get(Property.SentTime);
            set => Set(Property.SentTime, value);
        }

        [DefaultValue(false)]
        public bool SourceMachine
        {
            get => Get(Property.SourceMachine);
            set => Set(Property.SourceMachine, value);
        }

        [DefaultValue(false)]
        public bool TimeToBeReceived
        {
            get => Get(Property.TimeToBeReceived);
            set => Set(Property.TimeToBeReceived, value);
        }

        [DefaultValue(false)]
        public bool TimeToReachQueue
        {
            get => Get(Property.TimeToReachQueue);
            set => Set(Property.TimeToReachQueue, value);
        }

        [DefaultValue(false)]
        public bool TransactionId
        {
            get => Get(Property.TransactionId);
            set => Set(Property.TransactionId, value);
        }

        [DefaultValue(false)]
        public bool TransactionStatusQueue
        {
            get => Get(Property.TransactionStatusQueue);
            set => Set(Property.TransactionStatusQueue, value);
        }

        [DefaultValue(false)]
        public bool UseAuthentication
        {
            get => Get(Property.UseAuthentication);
            set => Set(Property.UseAuthentication, value);
        }

        [DefaultValue(false)]
        public bool UseDeadLetterQueue
        {
            get => Get(Property.UseDeadLetterQueue);
            set => Set(Property.UseDeadLetterQueue, value);
        }

        [DefaultValue(false)]
        public bool UseEncryption
        {
            get => Get(Property.UseEncryption);
            set => Set(Property.UseEncryption, value);
        }

        [DefaultValue(false)]
        public bool UseJournalQueue
        {
            get => Get(Property.UseJournalQueue);
            set => Set(Property.UseJournalQueue, value);
        }

        [DefaultValue(false)]
        public bool UseTracing
        {
            get => Get(Property.UseTracing);
            set => Set(Property.UseTracing, value);
        }

        /// <summary>A body of any size is read whole; the value is kept for compatibility.</summary>
        [DefaultValue(DefaultBody)]
        public int DefaultBodySize
        {
            get => bodySize;
            set => bodySize = NotNegative(value);
        }

        /// <summary>An extension of any size is read whole; the value is kept for compatibility.</summary>
        [DefaultValue(DefaultText)]
        public int DefaultExtensionSize
        {
            get => extensionSize;
            set => extensionSize = NotNegative(value);
        }

        /// <summary>A label of any size is read whole; the value is kept for compatibility.</summary>
        [DefaultValue(DefaultText)]
        public int DefaultLabelSize
        {
            get => labelSize;
            set => labelSize = NotNegative(value);
        }

        public void ClearAll()
        {
            Chosen = 0;
        }

        public void SetAll()
        {
            Chosen = Property.All;
        }

        public void SetDefaults()
        {
            Chosen = Property.Defaults;
            bodySize = DefaultBody;
            extensionSize = labelSize = DefaultText;
        }

        bool Get(Property property)
        {
            return (Chosen & property) != 0;
        }

        void Set(Property property, bool value)
        {
            Chosen = value ? Chosen | property : Chosen & ~property;
        }

        static int NotNegative(int value, [CallerMemberName] string name = null)
        {
            return value >= 0 ? value : throw new ArgumentException($"{name} must not be negative, got {value}");
        }
    }

    /// <summary>The properties that objects get which are sent without a Message of their own.</summary>
    [TypeConverter(typeof(ExpandableObjectConverter))]
    public class DefaultPropertiesToSend
    {
        internal readonly Message Message = new Message();

        public AcknowledgeTypes AcknowledgeType
        {
            get => Message.AcknowledgeType;
            set => Message.AcknowledgeType = value;
        }

        public MessageQueue AdministrationQueue
        {
            get => Message.AdministrationQueue;
            set => Message.AdministrationQueue = value;
        }

        public int AppSpecific
        {
            get => Message.AppSpecific;
            set => Message.AppSpecific = value;
        }

        public bool AttachSenderId
        {
            get => Message.AttachSenderId;
            set => Message.AttachSenderId = value;
        }

        public EncryptionAlgorithm EncryptionAlgorithm
        {
            get => Message.EncryptionAlgorithm;
            set => Message.EncryptionAlgorithm = value;
        }

        public byte[] Extension
        {
            get => Message.Extension;
            set => Message.Extension = value;
        }

        public HashAlgorithm HashAlgorithm
        {
            get => Message.HashAlgorithm;
            set => Message.HashAlgorithm = value;
        }

        public string Label
        {
            get => Message.Label;
            set => Message.Label = value;
        }

        public MessagePriority Priority
        {
            get => Message.Priority;
            set => Message.Priority = value;
        }

        public bool Recoverable
        {
            get => Message.Recoverable;
            set => Message.Recoverable = value;
        }

        public MessageQueue ResponseQueue
        {
            get => Message.ResponseQueue;
            set => Message.ResponseQueue = value;
        }

        public TimeSpan TimeToBeReceived
        {
            get => Message.TimeToBeReceived;
            set => Message.TimeToBeReceived = value;
        }

        public TimeSpan TimeToReachQueue
        {
            get => Message.TimeToReachQueue;
            set => Message.TimeToReachQueue = value;
        }

        public MessageQueue TransactionStatusQueue
        {
            get => Message.TransactionStatusQueue;
            set => Message.TransactionStatusQueue = value;
        }

        public bool UseAuthentication
        {
            get => Message.UseAuthentication;
            set => Message.UseAuthentication = value;
        }

        public bool UseDeadLetterQueue
        {
            get => Message.UseDeadLetterQueue;
            set => Message.UseDeadLetterQueue = value;
        }

        public bool UseEncryption
        {
            get => Message.UseEncryption;
            set => Message.UseEncryption = value;
        }

        public bool UseJournalQueue
        {
            get => Message.UseJournalQueue;
            set => Message.UseJournalQueue = value;
        }

        public bool UseTracing
        {
            get => Message.UseTracing;
            set => Message.UseTracing = value;
        }
    }
}
