// Access lists of queues, and the permissions of code access security, which .NET no longer asks for.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Collections;
    using System.Collections.Generic;
    using System.ComponentModel;
    using System.Security;
    using System.Security.Permissions;

    /// <summary>Somebody who gets or loses rights: the name of a user or a group, or a SID.</summary>
    public class Trustee
    {
        string name;
        TrusteeType type;

        public Trustee()
        {
        }

        public Trustee(string name)
            : this(name, null)
        {
        }

        public Trustee(string name, string systemName)
            : this(name, systemName, TrusteeType.Unknown)
        {
        }

        public Trustee(string name, string systemName, TrusteeType trusteeType)
        {
            Name = name;
            SystemName = systemName;
            TrusteeType = trusteeType;
        }

        public string Name
        {
            get => name;
            set => name = value ?? throw new ArgumentNullException(nameof(value));
        }

        public string SystemName { get; set; }

        public TrusteeType TrusteeType
        {
            get => type;
            set => type = Enum.IsDefined(typeof(TrusteeType), value)
                ? value
                : throw new InvalidEnumArgumentException(nameof(value), (int)value, typeof(TrusteeType));
        }
    }

    /// <summary>The rights of one trustee.</summary>
    public class AccessControlEntry
    {
        static readonly Dictionary<int, string> Rights = new Dictionary<int, string>
        {
            { (int)MessageQueueAccessRights.ReceiveMessage, "receive" },
            { (int)MessageQueueAccessRights.ReceiveJournalMessage, "receive-journal" },
            { (int)MessageQueueAccessRights.PeekMessage, "peek" },
            { (int)MessageQueueAccessRights.WriteMessage, "write" },
            { (int)MessageQueueAccessRights.SetQueueProperties, "set-properties" },
            { (int)MessageQueueAccessRights.GetQueueProperties, "get-properties" },
            { (int)MessageQueueAccessRights.DeleteQueue, "delete" },
            { (int)MessageQueueAccessRights.GetQueuePermissions, "get-permissions" },
            { (int)MessageQueueAccessRights.ChangeQueuePermissions, "set-permissions" },
            { (int)MessageQueueAccessRights.TakeQueueOwnership, "take-ownership" },
        };

        AccessControlEntryType entryType = AccessControlEntryType.Allow;
        Trustee trustee;

        public AccessControlEntry()
        {
        }

        public AccessControlEntry(Trustee trustee)
        {
            Trustee = trustee;
        }

        public AccessControlEntry(
            Trustee trustee,
            GenericAccessRights genericAccessRights,
            StandardAccessRights standardAccessRights,
            AccessControlEntryType entryType)
        {
            Trustee = trustee;
            GenericAccessRights = genericAccessRights;
            StandardAccessRights = standardAccessRights;
            EntryType = entryType;
        }

        public AccessControlEntryType EntryType
        {
            get => entryType;
            set => entryType = Enum.IsDefined(typeof(AccessControlEntryType), value)
                ? value
                : throw new InvalidEnumArgumentException(nameof(value), (int)value, typeof(AccessControlEntryType));
        }

        public GenericAccessRights GenericAccessRights { get; set; }

        public StandardAccessRights StandardAccessRights { get; set; }

        public Trustee Trustee
        {
            get => trustee;
            set => trustee = value ?? throw new ArgumentNullException(nameof(value));
        }

        protected int CustomAccessRights { get; set; }

        /// <summary>All rights of the entry, those of queues in place of generic ones.</summary>
        internal int Mask
        {
            get
            {
                var mask = CustomAccessRights | (int)StandardAccessRights;
                if ((GenericAccessRights & GenericAccessRights.All) != 0)
                    mask |= (int)MessageQueueAccessRights.FullControl;
                if ((GenericAccessRights & GenericAccessRights.Read) != 0)
                    mask |= (int)MessageQueueAccessRights.GenericRead;
                if ((GenericAccessRights & GenericAccessRights.Write) != 0)
                    mask |= (int)MessageQueueAccessRights.GenericWrite;
                return mask;
            }
        }

        /// <summary>The words of the HTTP API for rights. A right to delete alone is that to receive.</summary>
        internal static IEnumerable<string> Words(int mask)
        {
            var words = new List<string>();
            if ((mask & (int)MessageQueueAccessRights.FullControl) == (int)MessageQueueAccessRights.FullControl)
                return new[] { "full" };
            if ((mask & (int)MessageQueueAccessRights.DeleteMessage) != 0)
                mask |= (int)MessageQueueAccessRights.ReceiveMessage;
            if ((mask & (int)MessageQueueAccessRights.DeleteJournalMessage) != 0)
                mask |= (int)MessageQueueAccessRights.ReceiveJournalMessage;
            foreach (var each in Rights)
            {
                if ((mask & each.Key) == each.Key)
                    words.Add(each.Value);
            }
            return words;
        }
    }

    /// <summary>The rights of one trustee on a queue.</summary>
    public class MessageQueueAccessControlEntry : AccessControlEntry
    {
        public MessageQueueAccessControlEntry(Trustee trustee, MessageQueueAccessRights rights)
            : base(trustee)
        {
            MessageQueueAccessRights = rights;
        }

        public MessageQueueAccessControlEntry(Trustee trustee, MessageQueueAccessRights rights, AccessControlEntryType entryType)
            : this(trustee, rights)
        {
            EntryType = entryType;
        }

        public MessageQueueAccessRights MessageQueueAccessRights
        {
            get => (MessageQueueAccessRights)CustomAccessRights;
            set => CustomAccessRights = (int)value;
        }
    }

    /// <summary>Entries that are applied one after the other.</summary>
    public class AccessControlList : CollectionBase
    {
        public int Add(AccessControlEntry entry)
        {
            return List.Add(entry);
        }

        public void Insert(int index, AccessControlEntry entry)
        {
            List.Insert(index, entry);
        }

        public int IndexOf(AccessControlEntry entry)
        {
            return List.IndexOf(entry);
        }

        public bool Contains(AccessControlEntry entry)
        {
            return List.Contains(entry);
        }

        public void Remove(AccessControlEntry entry)
        {
            List.Remove(entry);
        }

        public void CopyTo(AccessControlEntry[] array, int index)
        {
            List.CopyTo(array, index);
        }
    }

    /// <summary>The security context of a user on Windows. Off Windows it has no content.</summary>
    public sealed class SecurityContext : IDisposable
    {
        internal SecurityContext()
        {
        }

        public void Dispose()
        {
        }
    }

    /// <summary>Permissions of code. .NET asks for none: this class compares and keeps them.</summary>
    [Serializable]
    public sealed class MessageQueuePermission : IPermission
    {
        readonly bool unrestricted;

        public MessageQueuePermission()
        {
            PermissionEntries = new MessageQueuePermissionEntryCollection();
        }

        internal MessageQueuePermission(bool unrestricted)
            : this()
        {
            this.unrestricted = unrestricted;
        }

        public MessageQueuePermission(MessageQueuePermissionAccess permissionAccess, string path)
            : this(new[] { new MessageQueuePermissionEntry(permissionAccess, path) })
        {
        }

        public MessageQueuePermission(MessageQueuePermissionAccess permissionAccess, string machineName, string label, string category)
            : this(new[] { new MessageQueuePermissionEntry(permissionAccess, machineName, label, category) })
        {
        }

        public MessageQueuePermission(MessageQueuePermissionEntry[] permissionAccessEntries)
            : this()
        {
            PermissionEntries.AddRange(permissionAccessEntries);
        }

        public MessageQueuePermissionEntryCollection PermissionEntries { get; }

        public IPermission Copy()
        {
            return Of(unrestricted, PermissionEntries);
        }

        public void Demand()
        {
        }

        public IPermission Intersect(IPermission target)
        {
            var other = Own(target);
            if (other == null)
                return null;
            if (unrestricted)
                return other.Copy();
            if (other.unrestricted)
                return Copy();
            var common = new MessageQueuePermission();
            foreach (MessageQueuePermissionEntry each in PermissionEntries)
            {
                if (other.Covers(each))
                    common.PermissionEntries.Add(each);
            }
            return common.PermissionEntries.Count == 0 ? null : common;
        }

        public bool IsSubsetOf(IPermission target)
        {
            var other = Own(target);
            if (other == null)
                return !unrestricted && PermissionEntries.Count == 0;
            if (other.unrestricted)
                return true;
            if (unrestricted)
                return false;
            foreach (MessageQueuePermissionEntry each in PermissionEntries)
            {
                if (!other.Covers(each))
                    return false;
            }
            return true;
        }

        public bool IsUnrestricted()
        {
            return unrestricted;
        }

        public IPermission Union(IPermission target)
        {
            var other = Own(target);
            if (other == null)
                return Copy();
            var union = Of(unrestricted || other.unrestricted, PermissionEntries);
            union.PermissionEntries.AddRange(other.PermissionEntries);
            return union;
        }

        public void FromXml(SecurityElement securityElement)
        {
            throw new PlatformNotSupportedException("permissions of code are not kept as XML: .NET asks for none");
        }

        public SecurityElement ToXml()
        {
            throw new PlatformNotSupportedException("permissions of code are not kept as XML: .NET asks for none");
        }

        static MessageQueuePermission Of(bool unrestricted, MessageQueuePermissionEntryCollection entries)
        {
            var made = new MessageQueuePermission(unrestricted);
            made.PermissionEntries.AddRange(entries);
            return made;
        }

        static MessageQueuePermission Own(IPermission target)
        {
            return target == null
                ? null
                : target as MessageQueuePermission ?? throw new ArgumentException("the other permission must be a MessageQueuePermission");
        }

        bool Covers(MessageQueuePermissionEntry entry)
        {
            foreach (MessageQueuePermissionEntry each in PermissionEntries)
            {
                if (each.Covers(entry))
                    return true;
            }
            return false;
        }
    }

    /// <summary>Demands a MessageQueuePermission for a class or a method. .NET asks for none.</summary>
    [AttributeUsage(
        AttributeTargets.Assembly | AttributeTargets.Class | AttributeTargets.Struct | AttributeTargets.Constructor
            | AttributeTargets.Method | AttributeTargets.Event,
        AllowMultiple = true,
        Inherited = false)]
    [Serializable]
    public class MessageQueuePermissionAttribute : CodeAccessSecurityAttribute
    {
        public MessageQueuePermissionAttribute(SecurityAction action)
            : base(action)
        {
        }

        public string Category { get; set; }

        public string Label { get; set; }

        public string MachineName { get; set; }

        public string Path { get; set; }

        public MessageQueuePermissionAccess PermissionAccess { get; set; }

        public override IPermission CreatePermission()
        {
            if (Unrestricted)
                return new MessageQueuePermission(true);
            return Path != null
                ? new MessageQueuePermission(PermissionAccess, Path)
                : new MessageQueuePermission(PermissionAccess, MachineName, Label, Category);
        }
    }

    /// <summary>What may be done with which queues.</summary>
    [Serializable]
    public class MessageQueuePermissionEntry
    {
        public MessageQueuePermissionEntry(MessageQueuePermissionAccess permissionAccess, string path)
        {
            PermissionAccess = permissionAccess;
            Path = path ?? throw new ArgumentNullException(nameof(path));
        }

        public MessageQueuePermissionEntry(MessageQueuePermissionAccess permissionAccess, string machineName, string label, string category)
        {
            if (machineName == null && label == null && category == null)
                throw new ArgumentNullException(nameof(machineName));
            PermissionAccess = permissionAccess;
            MachineName = machineName;
            Label = label;
            Category = category;
        }

        public string Category { get; }

        public string Label { get; }

        public string MachineName { get; }

        public string Path { get; }

        public MessageQueuePermissionAccess PermissionAccess { get; }

        internal bool Covers(MessageQueuePermissionEntry other)
        {
            return (other.PermissionAccess & ~PermissionAccess) == 0
                && (Path == "*" || Path == other.Path)
                && MachineName == other.MachineName
                && Label == other.Label
                && Category == other.Category;
        }
    }

    /// <summary>Entries of a MessageQueuePermission.</summary>
    [Serializable]
    public class MessageQueuePermissionEntryCollection : CollectionBase
    {
        internal MessageQueuePermissionEntryCollection()
        {
        }

        public MessageQueuePermissionEntry this[int index]
        {
            get => (MessageQueuePermissionEntry)List[index];
            set => List[index] = value;
        }

        public int Add(MessageQueuePermissionEntry value)
        {
            return List.Add(value);
        }

        public void AddRange(MessageQueuePermissionEntry[] value)
        {
            foreach (var each in value ?? throw new ArgumentNullException(nameof(value)))
                Add(each);
        }

        public void AddRange(MessageQueuePermissionEntryCollection value)
        {
            foreach (MessageQueuePermissionEntry each in value ?? throw new ArgumentNullException(nameof(value)))
                Add(each);
        }

        public bool Contains(MessageQueuePermissionEntry value)
        {
            return List.Contains(value);
        }

        public void CopyTo(MessageQueuePermissionEntry[] array, int index)
        {
            List.CopyTo(array, index);
        }

        public int IndexOf(MessageQueuePermissionEntry value)
        {
            return List.IndexOf(value);
        }

        public void Insert(int index, MessageQueuePermissionEntry value)
        {
            List.Insert(index, value);
        }

        public void Remove(MessageQueuePermissionEntry value)
        {
            List.Remove(value);
        }

        protected override void OnClear()
        {
            base.OnClear();
        }

        protected override void OnInsert(int index, object value)
        {
            base.OnInsert(index, value);
        }

        protected override void OnRemove(int index, object value)
        {
            base.OnRemove(index, value);
        }

        protected override void OnSet(int index, object oldValue, object newValue)
        {
            base.OnSet(index, oldValue, newValue);
        }
    }

    /// <summary>A description that designers show.</summary>
    [AttributeUsage(AttributeTargets.All)]
    public class MessagingDescriptionAttribute : DescriptionAttribute
    {
        public MessagingDescriptionAttribute(string description)
            : base(description)
        {
        }

        public override string Description => base.Description;
    }
}
