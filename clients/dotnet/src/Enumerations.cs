// The enumerations of System.Messaging, with the values that its documentation and [MS-MQMQ] give. The error codes
// are in MessageQueueException.cs.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;

    /// <summary>What an entry of an access list does.</summary>
    public enum AccessControlEntryType
    {
        Allow = 1,
        Set = 2,
        Deny = 3,
        Revoke = 4,
    }

    /// <summary>The acknowledgments that a sender wants.</summary>
    [Flags]
    public enum AcknowledgeTypes
    {
        None = 0,
        PositiveArrival = 1,
        PositiveReceive = 2,
        NotAcknowledgeReachQueue = 4,
        FullReachQueue = 5,
        NegativeReceive = 8,
        NotAcknowledgeReceive = 12,
        FullReceive = 14,
    }

    /// <summary>What an acknowledgment says: the message class of the protocol.</summary>
    public enum Acknowledgment
    {
        None = 0,
        ReachQueue = 2,
        Receive = 0x4000,
        BadDestinationQueue = 0x8000,
        Purged = 0x8001,
        ReachQueueTimeout = 0x8002,
        QueueExceedMaximumSize = 0x8003,
        AccessDenied = 0x8004,
        HopCountExceeded = 0x8005,
        BadSignature = 0x8006,
        BadEncryption = 0x8007,
        CouldNotEncrypt = 0x8008,
        NotTransactionalQueue = 0x8009,
        NotTransactionalMessage = 0x800a,
        QueueDeleted = 0xc000,
        QueuePurged = 0xc001,
        ReceiveTimeout = 0xc002,
    }

    /// <summary>The type of a cryptographic provider, PROV_*.</summary>
    public enum CryptographicProviderType
    {
        None = 0,
        RsaFull = 1,
        RsqSig = 2,
        Dss = 3,
        Fortezza = 4,
        MicrosoftExchange = 5,
        Ssl = 6,
        SttMer = 7,
        SttAcq = 8,
        SttBrnd = 9,
        SttRoot = 10,
        SttIss = 11,
    }

    /// <summary>The cipher of a body, CALG_*.</summary>
    public enum EncryptionAlgorithm
    {
        None = 0,
        Rc2 = 0x6602,
        Rc4 = 0x6801,
    }

    /// <summary>Which bodies a queue accepts: plain ones, encrypted ones, or both.</summary>
    public enum EncryptionRequired
    {
        None = 0,
        Optional = 1,
        Body = 2,
    }

    /// <summary>Generic rights of an access list.</summary>
    [Flags]
    public enum GenericAccessRights
    {
        None = 0,
        All = 0x10000000,
        Execute = 0x20000000,
        Write = 0x40000000,
        Read = unchecked((int)0x80000000),
    }

    /// <summary>The hash of a signature, CALG_*.</summary>
    public enum HashAlgorithm
    {
        None = 0,
        Md2 = 0x8001,
        Md4 = 0x8002,
        Md5 = 0x8003,
        Sha = 0x8004,
        Mac = 0x8005,
        Sha256 = 0x800c,
        Sha384 = 0x800d,
        Sha512 = 0x800e,
    }

    /// <summary>Which message a read by lookup id returns.</summary>
    public enum MessageLookupAction
    {
        Current = 0,
        Next = 1,
        Previous = 2,
        First = 3,
        Last = 4,
    }

    /// <summary>Messages with a higher priority are received first.</summary>
    public enum MessagePriority
    {
        Lowest = 0,
        VeryLow = 1,
        Low = 2,
        Normal = 3,
        AboveNormal = 4,
        High = 5,
        VeryHigh = 6,
        Highest = 7,
    }

    /// <summary>Rights on a queue, MQSEC_*.</summary>
    [Flags]
    public enum MessageQueueAccessRights
    {
        DeleteMessage = 1,
        PeekMessage = 2,
        ReceiveMessage = 3,
        WriteMessage = 4,
        DeleteJournalMessage = 8,
        ReceiveJournalMessage = 10,
        SetQueueProperties = 16,
        GetQueueProperties = 32,
        DeleteQueue = 0x10000,
        GetQueuePermissions = 0x20000,
        GenericWrite = 0x20024,
        GenericRead = 0x2002b,
        ChangeQueuePermissions = 0x40000,
        TakeQueueOwnership = 0x80000,
        FullControl = 0xf003f,
    }

    /// <summary>What a MessageQueuePermission allows.</summary>
    [Flags]
    public enum MessageQueuePermissionAccess
    {
        None = 0,
        Browse = 2,
        Send = 6,
        Peek = 10,
        Receive = 26,
        Administer = 62,
    }

    /// <summary>The state of a MessageQueueTransaction.</summary>
    public enum MessageQueueTransactionStatus
    {
        Aborted = 0,
        Committed = 1,
        Initialized = 2,
        Pending = 3,
    }

    /// <summary>How one call takes part in a transaction.</summary>
    public enum MessageQueueTransactionType
    {
        None = 0,
        Automatic = 1,
        Single = 3,
    }

    /// <summary>Whether a message comes from an application or from a queue manager.</summary>
    public enum MessageType
    {
        Acknowledgment = 1,
        Normal = 2,
        Report = 3,
    }

    /// <summary>Which message a peek with a cursor returns.</summary>
    public enum PeekAction
    {
        Current = 0,
        Next = 1,
    }

    /// <summary>What a MessageQueue may do with its queue.</summary>
    public enum QueueAccessMode
    {
        Receive = 1,
        Send = 2,
        SendAndReceive = 3,
        Peek = 32,
        ReceiveAndAdmin = 129,
        PeekAndAdmin = 160,
    }

    /// <summary>Standard rights of an access list.</summary>
    [Flags]
    public enum StandardAccessRights
    {
        None = 0,
        Delete = 0x10000,
        Execute = 0x20000,
        Read = 0x20000,
        ReadSecurity = 0x20000,
        Write = 0x20000,
        WriteSecurity = 0x40000,
        ModifyOwner = 0x80000,
        Required = 0xd0000,
        Synchronize = 0x100000,
        All = 0x1f0000,
    }

    /// <summary>What kind of account a trustee is.</summary>
    public enum TrusteeType
    {
        Unknown = 0,
        User = 1,
        Group = 2,
        Domain = 3,
        Alias = 4,
        Computer = 5,
    }
}
