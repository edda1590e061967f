// A queue: its name, its properties and permissions, and how queues are made and found. Reads and sends are in
// MessageQueue.Messages.cs.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Collections;
    using System.Collections.Concurrent;
    using System.Collections.Generic;
    using System.ComponentModel;
    using System.Linq;

    /// <summary>A queue of Message Queuing, through the HTTP API of a Postroad queue manager.</summary>
    [DefaultEvent("ReceiveCompleted")]
    public partial class MessageQueue : Component, IEnumerable
    {
        public static readonly long InfiniteQueueSize = uint.MaxValue;
        public static readonly TimeSpan InfiniteTimeout = TimeSpan.FromSeconds(uint.MaxValue);
        const int MaxLabel = 124;
        static string localManager;
        static readonly DateTime Epoch = new DateTime(1970, 1, 1, 0, 0, 0, DateTimeKind.Utc);

        string path = "";
        bool denySharedReceive;
        IMessageFormatter formatter;
        DefaultPropertiesToSend defaults = new DefaultPropertiesToSend();
        MessagePropertyFilter filter = new MessagePropertyFilter();
        Dictionary<string, object> properties; // as the manager has told them
        string apiName;
        string machine; // that was set before a queue

        public MessageQueue()
        {
        }

        public MessageQueue(string path)
            : this(path, false, false, QueueAccessMode.SendAndReceive)
        {
        }

        public MessageQueue(string path, QueueAccessMode accessMode)
            : this(path, false, false, accessMode)
        {
        }

        public MessageQueue(string path, bool sharedModeDenyReceive)
            : this(path, sharedModeDenyReceive, false, QueueAccessMode.SendAndReceive)
        {
        }

        public MessageQueue(string path, bool sharedModeDenyReceive, bool enableCache)
            : this(path, sharedModeDenyReceive, enableCache, QueueAccessMode.SendAndReceive)
        {
        }

        public MessageQueue(string path, bool sharedModeDenyReceive, bool enableCache, QueueAccessMode accessMode)
        {
            Path = path;
            AccessMode = Enum.IsDefined(typeof(QueueAccessMode), accessMode)
                ? accessMode
                : throw new InvalidEnumArgumentException(nameof(accessMode), (int)accessMode, typeof(QueueAccessMode));
            DenySharedReceive = sharedModeDenyReceive;
        }

        // Queue managers

        /// <summary>
        /// The URL of the local queue manager's API, such as http://127.0.0.1:8180. Without one, that of the environment
        /// variable POSTROAD_API. A user and a password may stand in front of the host.
        /// </summary>
        public static string LocalManager
        {
            get
            {
                if (localManager != null)
                    return localManager;
                var given = Environment.GetEnvironmentVariable("POSTROAD_API");
                return string.IsNullOrEmpty(given) ? Manager.DefaultUrl : given;
            }
            set => localManager = value;
        }

        /// <summary>
        /// URLs of the APIs of other queue managers, by computer name: queues of these computers can be read and managed,
        /// too. Without an entry, messages can only be sent to them.
        /// </summary>
        public static IDictionary<string, string> RemoteManagers { get; } =
            new ConcurrentDictionary<string, string>(StringComparer.OrdinalIgnoreCase);

        /// <summary>How long calls wait for a queue manager that has answered before and is being restarted.</summary>
        public static TimeSpan ReconnectTimeout
        {
            get => Manager.ReconnectTimeout;
            set => Manager.ReconnectTimeout = value;
        }

        /// <summary>Idle connections are always kept for the next call.</summary>
        public static bool EnableConnectionCache { get; set; }

        /// <summary>Closes the idle connections of all queues.</summary>
        public static void ClearConnectionCache()
        {
            Manager.ClearAllConnections();
        }

        internal static Manager Local => Manager.At(LocalManager);

        internal Manager Manager => ManagerOf(Names.Machine(path));

        static Manager ManagerOf(string machine)
        {
            return !Names.IsLocal(machine) && RemoteManagers.TryGetValue(machine, out var url) ? Manager.At(url) : Local;
        }

        // Create, delete and find

        public static MessageQueue Create(string path)
        {
            return Create(path, false);
        }

        public static MessageQueue Create(string path, bool transactional)
        {
            CheckPath(path, "a queue can be created only by");
            var manager = ManagerOf(Names.Machine(path));
            manager.Do("POST", "/queues", new JsonWriter().Add("path", Names.ForApi(path)).Add("transactional", transactional));
            return new MessageQueue(path);
        }

        public static void Delete(string path)
        {
            CheckSyntax(path);
            using (var queue = new MessageQueue(path))
                queue.Manager.Do("DELETE", Manager.QueuePath(queue.ApiName));
        }

        public static bool Exists(string path)
        {
            CheckSyntax(path);
            if (Names.IsFormatName(path))
                throw new InvalidOperationException($"whether a queue exists can be asked only by its path or label, got {path}");
            using (var queue = new MessageQueue(path))
            {
                try
                {
                    queue.Load();
                    return true;
                }
                catch (MessageQueueException fault)
                {
                    switch (fault.MessageQueueErrorCode)
                    {
                        case MessageQueueErrorCode.AccessDenied when fault.HttpStatus == 403:
                            return true; // somebody else's
                        case MessageQueueErrorCode.QueueNotFound:
                            return Listed().Any(each => string.Equals(each.Path, path, StringComparison.OrdinalIgnoreCase));
                        default:
                            throw;
                    }
                }
            }
        }

        /// <summary>The id of a queue manager: of the local one, or of one in the directory.</summary>
        public static Guid GetMachineId(string machineName)
        {
            CheckMachine(machineName);
            var manager = ManagerOf(machineName);
            var own = manager.GetObject("/manager");
            if (Names.IsLocal(machineName) || manager != Local || Same((string)own["name"], machineName))
                return Guid.Parse((string)own["id"]);
            foreach (var each in Objects(manager.GetObject("/directory"), "managers"))
            {
                if (Same((string)each["name"], machineName))
                    return Guid.Parse((string)each["id"]);
            }
            throw new MessageQueueException(MessageQueueErrorCode.MachineNotFound, $"the directory has no queue manager {machineName}");
        }

        /// <summary>A context for messages that are signed by the operating system's user, which only Windows has.</summary>
        public static SecurityContext GetSecurityContext()
        {
            return new SecurityContext();
        }

        public static MessageQueue[] GetPrivateQueuesByMachine(string machineName)
        {
            CheckMachine(machineName);
            var manager = ManagerOf(machineName);
            if (manager == Local && !Names.IsLocal(machineName) && !Same(machineName, manager.Name))
                throw new MessageQueueException(
                    MessageQueueErrorCode.RemoteMachineNotAvailable,
                    $"the queues of {machineName} are not known here: set MessageQueue.RemoteManagers[\"{machineName}\"] to the URL of its API");
            var found = new List<MessageQueue>();
            foreach (var each in Objects(manager.GetObject("/queues"), "queues"))
            {
                var name = (string)each["path"];
                if ((string)each["type"] == "private" && !name.EndsWith("$", StringComparison.Ordinal))
                    found.Add(new MessageQueue(Names.FromApi(name, machineName)) { properties = each });
            }
            return found.ToArray();
        }

        public static MessageQueue[] GetPublicQueues()
        {
            return Listed().ToArray();
        }

        public static MessageQueue[] GetPublicQueues(MessageQueueCriteria criteria)
        {
            return criteria == null ? GetPublicQueues() : Listed().Where(criteria.Matches).ToArray();
        }

        public static MessageQueue[] GetPublicQueuesByCategory(Guid category)
        {
            return GetPublicQueues(new MessageQueueCriteria { Category = category });
        }

        public static MessageQueue[] GetPublicQueuesByLabel(string label)
        {
            return GetPublicQueues(new MessageQueueCriteria { Label = label ?? throw new ArgumentNullException(nameof(label)) });
        }

        public static MessageQueue[] GetPublicQueuesByMachine(string machineName)
        {
            return GetPublicQueues(new MessageQueueCriteria { MachineName = machineName });
        }

        public static MessageQueueEnumerator GetMessageQueueEnumerator()
        {
            return new MessageQueueEnumerator(null);
        }

        public static MessageQueueEnumerator GetMessageQueueEnumerator(MessageQueueCriteria criteria)
        {
            return new MessageQueueEnumerator(criteria);
        }

        /// <summary>The public queues of the local manager with all properties, and those of the directory by name.</summary>
        static List<MessageQueue> Listed()
        {
            var found = new List<MessageQueue>();
            var known = new HashSet<Guid>();
            var manager = Local;
            foreach (var each in Objects(manager.GetObject("/queues"), "queues"))
            {
                if ((string)each["type"] == "public" && known.Add(Guid.Parse((string)each["id"])))
                    found.Add(new MessageQueue((string)each["path"]) { properties = each });
            }
            try
            {
                foreach (var each in Objects(manager.GetObject("/directory?queues=true"), "queues"))
                {
                    if (known.Add(Guid.Parse((string)each["id"])))
                        found.Add(new MessageQueue((string)each["path"]) { directoryId = Guid.Parse((string)each["id"]) });
                }
            }
            catch (MessageQueueException fault) when (fault.MessageQueueErrorCode == MessageQueueErrorCode.AccessDenied)
            {
            }
            return found;
        }

        Guid directoryId;

        // Names

        public string Path
        {
            get => path;
            set
            {
                var wanted = value ?? "";
                if (wanted.Length > 0)
                    CheckSyntax(wanted);
                if (wanted == path)
                    return;
                Close();
                path = wanted;
                apiName = null;
                properties = null;
            }
        }

        public string QueueName
        {
            get
            {
                if (path.Length == 0 || Names.IsFormatName(path) || Names.IsLabel(path))
                {
                    if (path.Length == 0)
                        return "";
                    var listed = (string)Property("path");
                    return Names.IsPath(listed) && !listed.StartsWith("private$", StringComparison.OrdinalIgnoreCase)
                        ? listed.Substring(listed.IndexOf('\\') + 1)
                        : listed;
                }
                return path.Substring(path.IndexOf('\\') + 1);
            }
            set
            {
                if (string.IsNullOrEmpty(value))
                    throw new ArgumentException("QueueName must not be empty");
                Path = $"{(path.Length == 0 ? machine ?? "." : MachineName)}\\{value}";
            }
        }

        public string MachineName
        {
            get
            {
                if (Names.IsFormatName(path) || Names.IsLabel(path))
                    return Manager.Name;
                return path.Length == 0 ? machine ?? "" : Names.Machine(path);
            }
            set
            {
                CheckMachine(value);
                machine = value;
                if (path.Length > 0)
                    Path = $"{value}\\{QueueName}";
            }
        }

        /// <summary>The format name: a direct one for a private queue, that of the directory for a public queue.</summary>
        public string FormatName
        {
            get
            {
                if (Names.IsFormatName(path))
                    return path.Substring(Names.FormatName.Length);
                var name = ApiName;
                if (name.StartsWith(";", StringComparison.Ordinal))
                    return $"DIRECT=OS:{Manager.Name}\\SYSTEM${name.ToUpperInvariant()}";
                if (name.StartsWith("private$\\", StringComparison.OrdinalIgnoreCase))
                    return $"DIRECT=OS:{Manager.Name}\\{name}";
                if (name.IndexOf('\\') is var slash && name.IndexOf("\\private$\\", StringComparison.OrdinalIgnoreCase) == slash)
                    return $"DIRECT=OS:{name}";
                return directoryId != Guid.Empty ? $"PUBLIC={directoryId}" : (string)Property("format_name");
            }
        }

        /// <summary>The name of this queue in requests.</summary>
        internal string ApiName
        {
            get
            {
                if (apiName == null)
                {
                    if (path.Length == 0)
                        throw new InvalidOperationException("Path is not set: it must name a queue");
                    apiName = Names.IsLabel(path) ? Labelled(path.Substring(Names.Label.Length)) : Names.ForApi(path);
                }
                return apiName;
            }
        }

        /// <summary>The name of this queue in a message, which others read: a dot would mean their own computer.</summary>
        internal string NameForOthers
        {
            get
            {
                const string Here = @"DIRECT=OS:.\";
                return ApiName.StartsWith(Here, StringComparison.OrdinalIgnoreCase)
                    ? $"DIRECT=OS:{Manager.Name}\\{ApiName.Substring(Here.Length)}"
                    : ApiName;
            }
        }

        internal static MessageQueue Named(string formatName)
        {
            return formatName == null ? null : new MessageQueue(Names.FormatName + formatName);
        }

        static string Labelled(string label)
        {
            var found = Objects(Local.GetObject("/queues"), "queues").Where(each => Same((string)each["label"], label)).ToList();
            if (found.Count == 1)
                return (string)found[0]["path"];
            throw found.Count == 0
                ? new MessageQueueException(MessageQueueErrorCode.QueueNotFound, $"no queue has the label {label}")
                : new MessageQueueException(MessageQueueErrorCode.IllegalQueuePathName, $"{found.Count} queues have the label {label}: use a path");
        }

        // Properties

        public QueueAccessMode AccessMode { get; private set; } = QueueAccessMode.SendAndReceive;

        public bool Authenticate
        {
            get => (bool)Property("authenticate");
            set => Change(new JsonWriter().Add("authenticate", value));
        }

        public short BasePriority
        {
            get => (short)(long)Property("base_priority");
            set => Change(new JsonWriter().Add("base_priority", value));
        }

        public bool CanRead => (AccessMode & (QueueAccessMode.Receive | QueueAccessMode.Peek)) != 0 && May("receive", "peek");

        public bool CanWrite => (AccessMode & QueueAccessMode.Send) != 0 && May("write");

        /// <summary>The manager keeps no category for queues: always empty.</summary>
        public Guid Category
        {
            get
            {
                Property("type");
                return Guid.Empty;
            }
            set
            {
                if (value != Guid.Empty)
                    throw new MessageQueueException(MessageQueueErrorCode.UnsupportedOperation, "Category: the queue manager keeps no category of a queue");
            }
        }

        public DateTime CreateTime => Epoch.AddSeconds((long)Property("created_at_s")).ToLocalTime();

        /// <summary>The manager keeps no time of changes: when the queue was created.</summary>
        public DateTime LastModifyTime => CreateTime;

        public DefaultPropertiesToSend DefaultPropertiesToSend
        {
            get => defaults;
            set => defaults = value ?? throw new ArgumentNullException(nameof(value));
        }

        /// <summary>Whether nobody else may read the queue while this object has it open.</summary>
        public bool DenySharedReceive
        {
            get => denySharedReceive;
            set
            {
                if (value == denySharedReceive)
                    return;
                Close();
                denySharedReceive = value;
            }
        }

        public EncryptionRequired EncryptionRequired
        {
            get => (EncryptionRequired)Enum.Parse(typeof(EncryptionRequired), (string)Property("privacy"), true);
            set
            {
                if (!Enum.IsDefined(typeof(EncryptionRequired), value))
                    throw new InvalidEnumArgumentException(nameof(value), (int)value, typeof(EncryptionRequired));
                Change(new JsonWriter().Add("privacy", value.ToString().ToLowerInvariant()));
            }
        }

        public IMessageFormatter Formatter
        {
            get => formatter ?? (formatter = new XmlMessageFormatter());
            set => formatter = value;
        }

        public Guid Id => directoryId != Guid.Empty ? directoryId : Guid.Parse((string)Property("id"));

        public string Label
        {
            get => (string)Property("label");
            set
            {
                if (value == null)
                    throw new ArgumentNullException(nameof(value));
                if (value.Length > MaxLabel)
                    throw new ArgumentException($"Label must have at most {MaxLabel} characters, got {value.Length}");
                Change(new JsonWriter().Add("label", value));
            }
        }

        /// <summary>In KiB; InfiniteQueueSize is no limit.</summary>
        public long MaximumJournalSize
        {
            get => Size("journal_quota_kb");
            set => Change("journal_quota_kb", value);
        }

        /// <summary>In KiB; InfiniteQueueSize is no limit.</summary>
        public long MaximumQueueSize
        {
            get => Size("quota_kb");
            set => Change("quota_kb", value);
        }

        public MessagePropertyFilter MessageReadPropertyFilter
        {
            get => filter;
            set => filter = value ?? throw new ArgumentNullException(nameof(value));
        }

        public string MulticastAddress
        {
            get => (string)Property("multicast_address") ?? "";
            set
            {
                var change = new JsonWriter();
                Change(string.IsNullOrEmpty(value) ? change.Null("multicast_address") : change.Add("multicast_address", value));
            }
        }

        public ISynchronizeInvoke SynchronizingObject { get; set; }

        public bool Transactional => (bool)Property("transactional");

        public bool UseJournalQueue
        {
            get => (bool)Property("journal");
            set => Change(new JsonWriter().Add("journal", value));
        }

        public IntPtr ReadHandle => throw NoHandle();

        public IntPtr WriteHandle => throw NoHandle();

        internal static PlatformNotSupportedException NoHandle()
        {
            return new PlatformNotSupportedException("handles of mqrt.dll exist on Windows only");
        }

        /// <summary>Forgets the properties, so that the next use asks the queue manager.</summary>
        public void Refresh()
        {
            properties = null;
        }

        object Property(string name)
        {
            return (properties ?? Load())[name];
        }

        Dictionary<string, object> Load()
        {
            return properties = Manager.GetObject(Manager.QueuePath(ApiName));
        }

        void Change(JsonWriter change)
        {
            properties = Manager.Do("PATCH", Manager.QueuePath(ApiName), change, repeatable: true);
        }

        void Change(string quota, long size)
        {
            if (size < 0 || size > InfiniteQueueSize)
                throw new ArgumentException($"the size must be from 0 to {InfiniteQueueSize} KiB, got {size}");
            Change(size == InfiniteQueueSize ? new JsonWriter().Null(quota) : new JsonWriter().Add(quota, size));
        }

        long Size(string quota)
        {
            return Property(quota) is long size ? size : InfiniteQueueSize;
        }

        bool May(params string[] rights)
        {
            try
            {
                var who = Manager.GetObject("/whoami?queue=" + Uri.EscapeDataString(ApiName));
                return ((Dictionary<string, object>)who["queues"]).Values.Any(each => ((List<object>)each).Any(rights.Contains));
            }
            catch (MessageQueueException fault) when (
                fault.MessageQueueErrorCode == MessageQueueErrorCode.QueueNotFound || fault.MessageQueueErrorCode == MessageQueueErrorCode.AccessDenied)
            {
                return rights.Contains("write") && fault.MessageQueueErrorCode == MessageQueueErrorCode.QueueNotFound && !Names.IsLocal(Names.Machine(path));
            }
        }

        // Permissions

        public void ResetPermissions()
        {
            Manager.Do("PATCH", Acl, new JsonWriter().Null("sddl"));
        }

        public void SetPermissions(string user, MessageQueueAccessRights rights)
        {
            SetPermissions(user, rights, AccessControlEntryType.Allow);
        }

        public void SetPermissions(string user, MessageQueueAccessRights rights, AccessControlEntryType entryType)
        {
            SetPermissions(new MessageQueueAccessControlEntry(new Trustee(user), rights, entryType));
        }

        public void SetPermissions(MessageQueueAccessControlEntry ace)
        {
            if (ace == null)
                throw new ArgumentNullException(nameof(ace));
            Apply(ace);
        }

        public void SetPermissions(AccessControlList dacl)
        {
            if (dacl == null)
                throw new ArgumentNullException(nameof(dacl));
            foreach (AccessControlEntry each in dacl)
                Apply(each);
        }

        string Acl => Manager.QueuePath(ApiName, "/acl");

        void Apply(AccessControlEntry entry)
        {
            var who = entry.Trustee?.Name ?? throw new InvalidOperationException("Trustee: an entry of an access list must name one");
            var words = AccessControlEntry.Words(entry.Mask);
            switch (entry.EntryType)
            {
                case AccessControlEntryType.Revoke:
                    Edit("revoke", who, new[] { "full" });
                    break;
                case AccessControlEntryType.Set:
                    Edit("revoke", who, new[] { "full" });
                    Edit("grant", who, words);
                    break;
                case AccessControlEntryType.Deny:
                    Edit("deny", who, words);
                    break;
                default:
                    Edit("grant", who, words);
                    break;
            }
        }

        void Edit(string edit, string who, IEnumerable<string> words)
        {
            Manager.Do("POST", Acl, new JsonWriter().Add(edit, new JsonWriter().Add("who", who).Add("rights", words)));
        }

        // Checks

        static IEnumerable<Dictionary<string, object>> Objects(Dictionary<string, object> answer, string member)
        {
            return ((List<object>)answer[member]).Cast<Dictionary<string, object>>();
        }

        internal static bool Same(string left, string right)
        {
            return string.Equals(left, right, StringComparison.OrdinalIgnoreCase);
        }

        static void CheckSyntax(string given)
        {
            if (given == null)
                throw new ArgumentNullException("path");
            if (given.Length == 0)
                throw new ArgumentException("the path must not be empty");
            if (!Names.IsFormatName(given) && !Names.IsLabel(given) && Names.ForApi(given) == null)
                throw new ArgumentException($"the path must be such as .\\private$\\orders, MACHINE\\orders, FormatName:... or Label:..., got {given}");
        }

        static void CheckPath(string given, string what)
        {
            CheckSyntax(given);
            if (Names.IsFormatName(given) || Names.IsLabel(given))
                throw new ArgumentException($"{what} its path, got {given}");
        }

        static void CheckMachine(string given)
        {
            if (string.IsNullOrEmpty(given) || given.IndexOf('\\') >= 0)
                throw new ArgumentException($"the name of a computer must be such as . or SERVER01, got {given}");
        }
    }

    /// <summary>What GetPublicQueues looks for.</summary>
    public class MessageQueueCriteria
    {
        Guid? category;
        DateTime? createdAfter;
        DateTime? createdBefore;
        DateTime? modifiedAfter;
        DateTime? modifiedBefore;
        string label;
        string machineName;

        public Guid Category
        {
            get => Given(category, nameof(Category));
            set => category = value;
        }

        public DateTime CreatedAfter
        {
            get => Given(createdAfter, nameof(CreatedAfter));
            set => createdAfter = value;
        }

        public DateTime CreatedBefore
        {
            get => Given(createdBefore, nameof(CreatedBefore));
            set => createdBefore = value;
        }

        public string Label
        {
            get => label ?? throw Missing(nameof(Label));
            set => label = value ?? throw new ArgumentNullException(nameof(value));
        }

        public string MachineName
        {
            get => machineName ?? throw Missing(nameof(MachineName));
            set => machineName = string.IsNullOrEmpty(value) ? throw new ArgumentException("MachineName must not be empty") : value;
        }

        public DateTime ModifiedAfter
        {
            get => Given(modifiedAfter, nameof(ModifiedAfter));
            set => modifiedAfter = value;
        }

        public DateTime ModifiedBefore
        {
            get => Given(modifiedBefore, nameof(ModifiedBefore));
            set => modifiedBefore = value;
        }

        public void ClearAll()
        {
            category = null;
            createdAfter = createdBefore = modifiedAfter = modifiedBefore = null;
            label = machineName = null;
        }

        internal bool Matches(MessageQueue queue)
        {
            if (machineName != null && !OnMachine(queue))
                return false;
            try
            {
                return (label == null || MessageQueue.Same(queue.Label, label))
                    && (category == null || queue.Category == category)
                    && (createdAfter == null || queue.CreateTime >= createdAfter)
                    && (createdBefore == null || queue.CreateTime <= createdBefore)
                    && (modifiedAfter == null || queue.LastModifyTime >= modifiedAfter)
                    && (modifiedBefore == null || queue.LastModifyTime <= modifiedBefore);
            }
            catch (MessageQueueException)
            {
                return false; // a queue of another computer: the directory tells its name alone
            }
        }

        bool OnMachine(MessageQueue queue)
        {
            var wanted = Names.IsLocal(machineName) ? MessageQueue.Local.Name : machineName;
            return MessageQueue.Same(Names.Machine(queue.Path), wanted);
        }

        static T Given<T>(T? value, string name)
            where T : struct
        {
            return value ?? throw Missing(name);
        }

        static InvalidOperationException Missing(string name)
        {
            return new InvalidOperationException($"{name} is not set");
        }
    }

    /// <summary>Walks the public queues.</summary>
    public class MessageQueueEnumerator : MarshalByRefObject, IEnumerator, IDisposable
    {
        readonly MessageQueueCriteria criteria;
        MessageQueue[] found;
        int at = -1;

        internal MessageQueueEnumerator(MessageQueueCriteria criteria)
        {
            this.criteria = criteria;
        }

        ~MessageQueueEnumerator()
        {
            Dispose(false);
        }

        public MessageQueue Current => found != null && at >= 0 && at < found.Length
            ? found[at]
            : throw new InvalidOperationException("the enumerator is not at a queue");

        object IEnumerator.Current => Current;

        public IntPtr LocatorHandle => throw MessageQueue.NoHandle();

        public bool MoveNext()
        {
            found = found ?? (criteria == null ? MessageQueue.GetPublicQueues() : MessageQueue.GetPublicQueues(criteria));
            return ++at < found.Length;
        }

        public void Reset()
        {
            Close();
        }

        public void Close()
        {
            found = null;
            at = -1;
        }

        public void Dispose()
        {
            Dispose(true);
            GC.SuppressFinalize(this);
        }

        protected virtual void Dispose(bool disposing)
        {
            Close();
        }
    }
}
