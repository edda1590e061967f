// The error of every call that a queue manager refused or could not answer, and its codes.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Runtime.InteropServices;
    using System.Runtime.Serialization;

    /// <summary>A queue manager refused a call, or did not answer. The code is that of Message Queuing.</summary>
    [Serializable]
    public class MessageQueueException : ExternalException
    {
        const string Code = "NativeErrorCode";
        readonly MessageQueueErrorCode code;

        internal MessageQueueException(MessageQueueErrorCode code, string message, Exception inner = null)
            : base(message, inner)
        {
            this.code = code;
            HResult = (int)code;
        }

        protected MessageQueueException(SerializationInfo info, StreamingContext context)
            : base(info, context)
        {
            code = (MessageQueueErrorCode)info.GetInt32(Code);
        }

        public override string Message => base.Message;

        public MessageQueueErrorCode MessageQueueErrorCode => code;

        /// <summary>The status of the answer, if there was one.</summary>
        internal int HttpStatus { get; set; }

        public override int ErrorCode => (int)code;

        public override void GetObjectData(SerializationInfo info, StreamingContext context)
        {
            if (info == null)
                throw new ArgumentNullException(nameof(info));
            info.AddValue(Code, (int)code);
            base.GetObjectData(info, context);
        }
    }

    /// <summary>The HRESULTs of Message Queuing, [MS-MQMQ] 2.4.</summary>
    public enum MessageQueueErrorCode
    {
        Base = unchecked((int)0xC00E0000),
        Generic = unchecked((int)0xC00E0001),
        Property = unchecked((int)0xC00E0002),
        QueueNotFound = unchecked((int)0xC00E0003),
        QueueExists = unchecked((int)0xC00E0005),
        InvalidParameter = unchecked((int)0xC00E0006),
        InvalidHandle = unchecked((int)0xC00E0007),
        OperationCanceled = unchecked((int)0xC00E0008),
        SharingViolation = unchecked((int)0xC00E0009),
        ServiceNotAvailable = unchecked((int)0xC00E000B),
        MachineNotFound = unchecked((int)0xC00E000D),
        IllegalSort = unchecked((int)0xC00E0010),
        IllegalUser = unchecked((int)0xC00E0011),
        NoDs = unchecked((int)0xC00E0013),
        IllegalQueuePathName = unchecked((int)0xC00E0014),
        IllegalPropertyValue = unchecked((int)0xC00E0018),
        IllegalPropertyVt = unchecked((int)0xC00E0019),
        BufferOverflow = unchecked((int)0xC00E001A),
        IOTimeout = unchecked((int)0xC00E001B),
        IllegalCursorAction = unchecked((int)0xC00E001C),
        MessageAlreadyReceived = unchecked((int)0xC00E001D),
        IllegalFormatName = unchecked((int)0xC00E001E),
        FormatNameBufferTooSmall = unchecked((int)0xC00E001F),
        UnsupportedFormatNameOperation = unchecked((int)0xC00E0020),
        IllegalSecurityDescriptor = unchecked((int)0xC00E0021),
        SenderIdBufferTooSmall = unchecked((int)0xC00E0022),
        SecurityDescriptorBufferTooSmall = unchecked((int)0xC00E0023),
        CannotImpersonateClient = unchecked((int)0xC00E0024),
        AccessDenied = unchecked((int)0xC00E0025),
        PrivilegeNotHeld = unchecked((int)0xC00E0026),
        InsufficientResources = unchecked((int)0xC00E0027),
        UserBufferTooSmall = unchecked((int)0xC00E0028),
        MessageStorageFailed = unchecked((int)0xC00E002A),
        SenderCertificateBufferTooSmall = unchecked((int)0xC00E002B),
        InvalidCertificate = unchecked((int)0xC00E002C),
        CorruptedInternalCertificate = unchecked((int)0xC00E002D),
        NoInternalUserCertificate = unchecked((int)0xC00E002F),
        CorruptedSecurityData = unchecked((int)0xC00E0030),
        CorruptedPersonalCertStore = unchecked((int)0xC00E0031),
        ComputerDoesNotSupportEncryption = unchecked((int)0xC00E0033),
        BadSecurityContext = unchecked((int)0xC00E0035),
        CouldNotGetUserSid = unchecked((int)0xC00E0036),
        CouldNotGetAccountInfo = unchecked((int)0xC00E0037),
        IllegalCriteriaColumns = unchecked((int)0xC00E0038),
        IllegalPropertyId = unchecked((int)0xC00E0039),
        IllegalRelation = unchecked((int)0xC00E003A),
        IllegalPropertySize = unchecked((int)0xC00E003B),
        IllegalRestrictionPropertyId = unchecked((int)0xC00E003C),
        IllegalQueueProperties = unchecked((int)0xC00E003D),
        PropertyNotAllowed = unchecked((int)0xC00E003E),
        InsufficientProperties = unchecked((int)0xC00E003F),
        MachineExists = unchecked((int)0xC00E0040),
        IllegalMessageProperties = unchecked((int)0xC00E0041),
        DsIsFull = unchecked((int)0xC00E0042),
        DsError = unchecked((int)0xC00E0043),
        InvalidOwner = unchecked((int)0xC00E0044),
        UnsupportedAccessMode = unchecked((int)0xC00E0045),
        ResultBufferTooSmall = unchecked((int)0xC00E0046),
        DeleteConnectedNetworkInUse = unchecked((int)0xC00E0048),
        NoResponseFromObjectServer = unchecked((int)0xC00E0049),
        ObjectServerNotAvailable = unchecked((int)0xC00E004A),
        QueueNotAvailable = unchecked((int)0xC00E004B),
        DtcConnect = unchecked((int)0xC00E004C),
        TransactionImport = unchecked((int)0xC00E004E),
        TransactionUsage = unchecked((int)0xC00E0050),
        TransactionSequence = unchecked((int)0xC00E0051),
        MissingConnectorType = unchecked((int)0xC00E0055),
        StaleHandle = unchecked((int)0xC00E0056),
        TransactionEnlist = unchecked((int)0xC00E0058),
        QueueDeleted = unchecked((int)0xC00E005A),
        IllegalContext = unchecked((int)0xC00E005B),
        IllegalSortPropertyId = unchecked((int)0xC00E005C),
        LabelBufferTooSmall = unchecked((int)0xC00E005E),
        MqisServerEmpty = unchecked((int)0xC00E005F),
        MqisReadOnlyMode = unchecked((int)0xC00E0060),
        SymmetricKeyBufferTooSmall = unchecked((int)0xC00E0061),
        SignatureBufferTooSmall = unchecked((int)0xC00E0062),
        ProviderNameBufferTooSmall = unchecked((int)0xC00E0063),
        IllegalOperation = unchecked((int)0xC00E0064),
        WriteNotAllowed = unchecked((int)0xC00E0065),
        WksCantServeClient = unchecked((int)0xC00E0066),
        DependentClientLicenseOverflow = unchecked((int)0xC00E0067),
        CorruptedQueueWasDeleted = unchecked((int)0xC00E0068),
        RemoteMachineNotAvailable = unchecked((int)0xC00E0069),
        UnsupportedOperation = unchecked((int)0xC00E006A),
        EncryptionProviderNotSupported = unchecked((int)0xC00E006B),
        CannotSetCryptographicSecurityDescriptor = unchecked((int)0xC00E006C),
        CertificateNotProvided = unchecked((int)0xC00E006D),
        QDnsPropertyNotSupported = unchecked((int)0xC00E006E),
        CannotCreateCertificateStore = unchecked((int)0xC00E006F),
        CannotOpenCertificateStore = unchecked((int)0xC00E0070),
        IllegalEnterpriseOperation = unchecked((int)0xC00E0071),
        CannotGrantAddGuid = unchecked((int)0xC00E0072),
        CannotLoadMsmqOcm = unchecked((int)0xC00E0073),
        NoEntryPointMsmqOcm = unchecked((int)0xC00E0074),
        NoMsmqServersOnDc = unchecked((int)0xC00E0075),
        CannotJoinDomain = unchecked((int)0xC00E0076),
        CannotCreateOnGlobalCatalog = unchecked((int)0xC00E0077),
        GuidNotMatching = unchecked((int)0xC00E0078),
        PublicKeyNotFound = unchecked((int)0xC00E0079),
        PublicKeyDoesNotExist = unchecked((int)0xC00E007A),
        IllegalPrivateProperties = unchecked((int)0xC00E007B),
        NoGlobalCatalogInDomain = unchecked((int)0xC00E007C),
        NoMsmqServersOnGlobalCatalog = unchecked((int)0xC00E007D),
        CannotGetDistinguishedName = unchecked((int)0xC00E007E),
        CannotHashDataEx = unchecked((int)0xC00E007F),
        CannotSignDataEx = unchecked((int)0xC00E0080),
        CannotCreateHashEx = unchecked((int)0xC00E0081),
        FailVerifySignatureEx = unchecked((int)0xC00E0082),
        MessageNotFound = unchecked((int)0xC00E0088),
    }
}
