// Sends and reads of a queue: at once, by id, by cursor, in transactions, asynchronous.

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
    using System.Globalization;
    using System.Threading;
    using System.Threading.Tasks;

    public partial class MessageQueue
    {
        const int PageMessages = 1000;
        readonly HashSet<Withdrawal> reads = new HashSet<Withdrawal>(); // those that wait: Close ends them
        readonly object prefetching = new object();
        Prefetched prefetched;
        int prefetch = 1;
        ReceiveCompletedEventHandler receiveCompleted;
        PeekCompletedEventHandler peekCompleted;

        public event ReceiveCompletedEventHandler ReceiveCompleted
        {
            add => receiveCompleted += value;
            remove => receiveCompleted -= value;
        }

        public event PeekCompletedEventHandler PeekCompleted
        {
            add => peekCompleted += value;
            remove => peekCompleted -= value;
        }

        /// <summary>
        /// How many messages a Receive without a transaction fetches at once; 1, the default, fetches none ahead. The next
        /// ones are fetched when half of them are left. Those that were fetched are locked, and nobody else sees them. A
        /// later call, or Close, removes those that were returned. If the process dies, the others come again, and so may
        /// the last ones that were returned: use it where a message may be processed twice.
        /// </summary>
        public int Prefetch
        {
            get => prefetch;
            set
            {
                if (value < 1 || value > 10000)
                    throw new ArgumentException($"Prefetch must be from 1 to 10000, got {value}");
                if (value != prefetch)
                    ReleasePrefetched();
                prefetch = value;
            }
        }

        // Sends

        public void Send(object obj)
        {
            Send(obj, null, NoTransaction);
        }

        public void Send(object obj, MessageQueueTransaction transaction)
        {
            Send(obj, null, Within(transaction));
        }

        public void Send(object obj, MessageQueueTransactionType transactionType)
        {
            Send(obj, null, Within(transactionType));
        }

        public void Send(object obj, string label)
        {
            Send(obj, label ?? throw new ArgumentNullException(nameof(label)), NoTransaction);
        }

        public void Send(object obj, string label, MessageQueueTransaction transaction)
        {
            Send(obj, label ?? throw new ArgumentNullException(nameof(label)), Within(transaction));
        }

        public void Send(object obj, string label, MessageQueueTransactionType transactionType)
        {
            Send(obj, label ?? throw new ArgumentNullException(nameof(label)), Within(transactionType));
        }

        /// <summary>Sends without blocking the caller. Concurrent sends to a queue share requests.</summary>
        public async Task SendAsync(object obj, string label = null)
        {
            var message = Ready(obj, label);
            message.Sent(await Local.SendAsync(ApiName, message.ToJson(Formatter, false)).ConfigureAwait(false));
        }

        void Send(object obj, string label, Func<Manager, Joining> within)
        {
            var message = Ready(obj, label);
            var manager = Local;
            var joining = within(manager);
            var json = message.ToJson(Formatter, joining.Alone);
            message.Sent(
                joining.Transaction == null && !joining.Alone
                    ? manager.Send(ApiName, json)
                    : manager.Send(ApiName, json, joining.Transaction));
        }

        Message Ready(object obj, string label)
        {
            if ((AccessMode & QueueAccessMode.Send) == 0)
                throw new MessageQueueException(MessageQueueErrorCode.AccessDenied, "this MessageQueue was opened for reading: AccessMode must include Send");
            var message = obj as Message ?? Made(obj);
            if (label != null)
                message.Label = label;
            return message;
        }

        Message Made(object obj)
        {
            var from = defaults;
            var message = new Message
            {
                AcknowledgeType = from.AcknowledgeType,
                AdministrationQueue = from.AdministrationQueue,
                AppSpecific = from.AppSpecific,
                AttachSenderId = from.AttachSenderId,
                Extension = from.Extension,
                HashAlgorithm = from.HashAlgorithm,
                Label = from.Label,
                Priority = from.Priority,
                Recoverable = from.Recoverable,
                ResponseQueue = from.ResponseQueue,
                TimeToBeReceived = from.TimeToBeReceived,
                TimeToReachQueue = from.TimeToReachQueue,
                TransactionStatusQueue = from.TransactionStatusQueue,
                UseAuthentication = from.UseAuthentication,
                UseDeadLetterQueue = from.UseDeadLetterQueue,
                UseEncryption = from.UseEncryption,
                UseJournalQueue = from.UseJournalQueue,
                UseTracing = from.UseTracing,
            };
            if (from.Message.CipherChosen)
                message.EncryptionAlgorithm = from.EncryptionAlgorithm;
            message.Body = obj;
            return message;
        }

        // Transactions

        /// <summary>The id of a transaction at the manager, or whether a send has a transaction alone.</summary>
        struct Joining
        {
            public string Transaction;
            public bool Alone;
        }

        static readonly Func<Manager, Joining> NoTransaction = manager => default;
        static readonly Func<Manager, Joining> SingleTransaction = manager => new Joining { Alone = true };

        static Func<Manager, Joining> Within(MessageQueueTransaction transaction)
        {
            return transaction == null ? NoTransaction : manager => new Joining { Transaction = transaction.IdAt(manager) };
        }

        static Func<Manager, Joining> Within(MessageQueueTransactionType type)
        {
            switch (type)
            {
                case MessageQueueTransactionType.None:
                    return NoTransaction;
                case MessageQueueTransactionType.Single:
                    return SingleTransaction;
                case MessageQueueTransactionType.Automatic:
                    return manager => new Joining { Transaction = AmbientTransaction.IdAt(manager) };
                default:
                    throw new InvalidEnumArgumentException(nameof(type), (int)type, typeof(MessageQueueTransactionType));
            }
        }

        // The first message

        public Message Receive()
        {
            return Receive(InfiniteTimeout, NoTransaction);
        }

        public Message Receive(MessageQueueTransaction transaction)
        {
            return Receive(InfiniteTimeout, Within(transaction));
        }

        public Message Receive(MessageQueueTransactionType transactionType)
        {
            return Receive(InfiniteTimeout, Within(transactionType));
        }

        public Message Receive(TimeSpan timeout)
        {
            return Receive(timeout, NoTransaction);
        }

        public Message Receive(TimeSpan timeout, MessageQueueTransaction transaction)
        {
            return Receive(timeout, Within(transaction));
        }

        public Message Receive(TimeSpan timeout, MessageQueueTransactionType transactionType)
        {
            return Receive(timeout, Within(transactionType));
        }

        public Message Peek()
        {
            return Peek(InfiniteTimeout);
        }

        public Message Peek(TimeSpan timeout)
        {
            return Made(Wait("/peek", "", timeout));
        }

        /// <summary>Receives without blocking the caller. A cancelled receive leaves the message in the queue.</summary>
        public Task<Message> ReceiveAsync(CancellationToken cancellation = default)
        {
            return ReadAsync("/receive", "", InfiniteTimeout, cancellation);
        }

        public Task<Message> ReceiveAsync(TimeSpan timeout, CancellationToken cancellation = default)
        {
            return ReadAsync("/receive", "", timeout, cancellation);
        }

        public Task<Message> ReceiveAsync(TimeSpan timeout, MessageQueueTransaction transaction, CancellationToken cancellation = default)
        {
            return ReadAsync("/receive", Joined(Within(transaction)), timeout, cancellation);
        }

        public Task<Message> PeekAsync(CancellationToken cancellation = default)
        {
            return ReadAsync("/peek", "", InfiniteTimeout, cancellation);
        }

        public Task<Message> PeekAsync(TimeSpan timeout, CancellationToken cancellation = default)
        {
            return ReadAsync("/peek", "", timeout, cancellation);
        }

        Message Receive(TimeSpan timeout, Func<Manager, Joining> within)
        {
            if (prefetch > 1 && within == NoTransaction)
                return ReceivePrefetched(timeout);
            return Made(Wait("/receive", Joined(within), timeout));
        }

        string Joined(Func<Manager, Joining> within)
        {
            var transaction = within(Manager).Transaction; // a receive alone is a transaction of its own
            return transaction == null ? "" : $"transaction={transaction}&";
        }

        // By id

        public Message ReceiveById(string id)
        {
            return Find(id, false, true, TimeSpan.Zero, NoTransaction);
        }

        public Message ReceiveById(string id, MessageQueueTransaction transaction)
        {
            return Find(id, false, true, TimeSpan.Zero, Within(transaction));
        }

        public Message ReceiveById(string id, MessageQueueTransactionType transactionType)
        {
            return Find(id, false, true, TimeSpan.Zero, Within(transactionType));
        }

        public Message ReceiveById(string id, TimeSpan timeout)
        {
            return Find(id, false, true, timeout, NoTransaction);
        }

        public Message ReceiveById(string id, TimeSpan timeout, MessageQueueTransaction transaction)
        {
            return Find(id, false, true, timeout, Within(transaction));
        }

        public Message ReceiveById(string id, TimeSpan timeout, MessageQueueTransactionType transactionType)
        {
            return Find(id, false, true, timeout, Within(transactionType));
        }

        public Message PeekById(string id)
        {
            return Find(id, false, false, TimeSpan.Zero, NoTransaction);
        }

        public Message PeekById(string id, TimeSpan timeout)
        {
            return Find(id, false, false, timeout, NoTransaction);
        }

        public Message ReceiveByCorrelationId(string correlationId)
        {
            return Find(correlationId, true, true, TimeSpan.Zero, NoTransaction);
        }

        public Message ReceiveByCorrelationId(string correlationId, MessageQueueTransaction transaction)
        {
            return Find(correlationId, true, true, TimeSpan.Zero, Within(transaction));
        }

        public Message ReceiveByCorrelationId(string correlationId, MessageQueueTransactionType transactionType)
        {
            return Find(correlationId, true, true, TimeSpan.Zero, Within(transactionType));
        }

        public Message ReceiveByCorrelationId(string correlationId, TimeSpan timeout)
        {
            return Find(correlationId, true, true, timeout, NoTransaction);
        }

        public Message ReceiveByCorrelationId(string correlationId, TimeSpan timeout, MessageQueueTransaction transaction)
        {
            return Find(correlationId, true, true, timeout, Within(transaction));
        }

        public Message ReceiveByCorrelationId(string correlationId, TimeSpan timeout, MessageQueueTransactionType transactionType)
        {
            return Find(correlationId, true, true, timeout, Within(transactionType));
        }

        public Message PeekByCorrelationId(string correlationId)
        {
            return Find(correlationId, true, false, TimeSpan.Zero, NoTransaction);
        }

        public Message PeekByCorrelationId(string correlationId, TimeSpan timeout)
        {
            return Find(correlationId, true, false, timeout, NoTransaction);
        }

        Message Find(string id, bool correlated, bool receive, TimeSpan timeout, Func<Manager, Joining> within)
        {
            if (id == null)
                throw new ArgumentNullException(nameof(id));
            if (!Names.ReadId(id, out var manager, out var number))
                throw new FormatException($"a message id must be a GUID, a backslash and a number, got {id}");
            var which = Uri.EscapeDataString($"{manager:B}\\{number}");
            try
            {
                var query = $"{(correlated ? "correlation_id" : "message_id")}={which}&{(receive ? Joined(within) : "")}";
                return Made(Wait(receive ? "/receive" : "/peek", query, timeout));
            }
            catch (MessageQueueException fault) when (timeout == TimeSpan.Zero && fault.MessageQueueErrorCode == MessageQueueErrorCode.IOTimeout)
            {
                throw new InvalidOperationException($"the queue has no message with the {(correlated ? "correlation id" : "id")} {id}", fault);
            }
        }

        // By lookup id

        public Message PeekByLookupId(long lookupId)
        {
            return Look("GET", MessageLookupAction.Current, lookupId, "");
        }

        public Message PeekByLookupId(MessageLookupAction action, long lookupId)
        {
            return Look("GET", action, lookupId, "");
        }

        public Message ReceiveByLookupId(long lookupId)
        {
            return Look("DELETE", MessageLookupAction.Current, lookupId, "");
        }

        public Message ReceiveByLookupId(MessageLookupAction action, long lookupId, MessageQueueTransaction transaction)
        {
            return Look("DELETE", action, lookupId, Joined(Within(transaction)));
        }

        public Message ReceiveByLookupId(MessageLookupAction action, long lookupId, MessageQueueTransactionType transactionType)
        {
            return Look("DELETE", action, lookupId, Joined(Within(transactionType)));
        }

        Message Look(string method, MessageLookupAction action, long lookupId, string query)
        {
            if (!Enum.IsDefined(typeof(MessageLookupAction), action))
                throw new InvalidEnumArgumentException(nameof(action), (int)action, typeof(MessageLookupAction));
            RequireRead();
            try
            {
                return Made(Take(method, unchecked((ulong)lookupId), action, query));
            }
            catch (MessageQueueException fault) when (
                fault.MessageQueueErrorCode == MessageQueueErrorCode.MessageNotFound || fault.MessageQueueErrorCode == MessageQueueErrorCode.MessageAlreadyReceived)
            {
                throw new InvalidOperationException($"the queue has no message with the lookup id {lookupId}: {fault.Message}", fault);
            }
        }

        Packet Take(string method, ulong lookupId, MessageLookupAction action, string query)
        {
            string Path(string handle) =>
                Manager.QueuePath(ApiName, $"/messages/{lookupId}?{handle}{query}action={action.ToString().ToLowerInvariant()}");
            return Packet.ReadOne(
                Reopened(handle => Manager.Ask(method, Path(handle), null, Manager.Records, repeatable: method == "GET")).Content);
        }

        // By cursor

        public Cursor CreateCursor()
        {
            RequireRead();
            return new Cursor(this);
        }

        public Message Peek(TimeSpan timeout, Cursor cursor, PeekAction action)
        {
            return Made((cursor ?? throw new ArgumentNullException(nameof(cursor))).Peek(this, timeout, action));
        }

        public Message Receive(TimeSpan timeout, Cursor cursor)
        {
            return Receive(timeout, cursor, NoTransaction);
        }

        public Message Receive(TimeSpan timeout, Cursor cursor, MessageQueueTransaction transaction)
        {
            return Receive(timeout, cursor, Within(transaction));
        }

        public Message Receive(TimeSpan timeout, Cursor cursor, MessageQueueTransactionType transactionType)
        {
            return Receive(timeout, cursor, Within(transactionType));
        }

        Message Receive(TimeSpan timeout, Cursor cursor, Func<Manager, Joining> within)
        {
            return Made((cursor ?? throw new ArgumentNullException(nameof(cursor))).Receive(this, timeout, Joined(within)));
        }

        /// <summary>Takes the message with this lookup id. `query` names the transaction.</summary>
        internal Packet Take(ulong lookupId, string query)
        {
            return At("DELETE", lookupId, query);
        }

        internal Packet Show(ulong lookupId)
        {
            return At("GET", lookupId, "");
        }

        Packet At(string method, ulong lookupId, string query)
        {
            try
            {
                return Take(method, lookupId, MessageLookupAction.Current, query);
            }
            catch (MessageQueueException fault) when (fault.MessageQueueErrorCode == MessageQueueErrorCode.MessageNotFound)
            {
                throw new MessageQueueException(MessageQueueErrorCode.MessageAlreadyReceived, fault.Message, fault);
            }
        }

        /// <summary>Up to `count` messages behind this lookup id; waits for the first one.</summary>
        internal List<Packet> After(ulong? lookupId, int count, TimeSpan timeout)
        {
            var after = lookupId == null ? "" : $"after={lookupId.Value.ToString(CultureInfo.InvariantCulture)}&";
            return WaitAll("/peek", $"{after}count={count}&", timeout);
        }

        internal Message RemoveAt(ulong lookupId, MessageQueueTransaction transaction)
        {
            return Made(Take(lookupId, Joined(Within(transaction))));
        }

        internal Message RemoveAt(ulong lookupId, MessageQueueTransactionType transactionType)
        {
            return Made(Take(lookupId, Joined(Within(transactionType))));
        }

        // All messages

        /// <summary>A copy of all messages that are in the queue now, in its order.</summary>
        public Message[] GetAllMessages()
        {
            var found = new List<Message>();
            ulong? last = null;
            while (true)
            {
                List<Packet> page;
                try
                {
                    page = After(last, PageMessages, TimeSpan.Zero);
                }
                catch (MessageQueueException fault) when (fault.MessageQueueErrorCode == MessageQueueErrorCode.IOTimeout)
                {
                    return found.ToArray();
                }
                foreach (var each in page)
                    found.Add(Made(each));
                last = page[page.Count - 1].LookupId;
            }
        }

        public IEnumerator GetEnumerator()
        {
            return GetMessageEnumerator2();
        }

        [Obsolete("Use GetMessageEnumerator2, which is the same.")]
        public MessageEnumerator GetMessageEnumerator()
        {
            return GetMessageEnumerator2();
        }

        public MessageEnumerator GetMessageEnumerator2()
        {
            RequireRead();
            return new MessageEnumerator(this);
        }

        /// <summary>Deletes every message. Those that a reader has locked are deleted when it releases them.</summary>
        public void Purge()
        {
            ReleasePrefetched();
            Manager.Do("POST", Manager.QueuePath(ApiName, "/purge"));
        }

        // Begin and End

        public IAsyncResult BeginReceive()
        {
            return BeginReceive(InfiniteTimeout, null, null);
        }

        public IAsyncResult BeginReceive(TimeSpan timeout)
        {
            return BeginReceive(timeout, null, null);
        }

        public IAsyncResult BeginReceive(TimeSpan timeout, object stateObject)
        {
            return BeginReceive(timeout, stateObject, null);
        }

        public IAsyncResult BeginReceive(TimeSpan timeout, object stateObject, AsyncCallback callback)
        {
            return new AsyncRead(ReadAsync("/receive", "", timeout, default), stateObject, callback ?? (each => Raise(() => receiveCompleted?.Invoke(this, new ReceiveCompletedEventArgs(this, each)))));
        }

        public IAsyncResult BeginReceive(TimeSpan timeout, Cursor cursor, object state, AsyncCallback callback)
        {
            if (cursor == null)
                throw new ArgumentNullException(nameof(cursor));
            return new AsyncRead(Task.Run(() => Receive(timeout, cursor)), state, callback ?? (each => Raise(() => receiveCompleted?.Invoke(this, new ReceiveCompletedEventArgs(this, each)))));
        }

        public Message EndReceive(IAsyncResult asyncResult)
        {
            return AsyncRead.End(asyncResult);
        }

        public IAsyncResult BeginPeek()
        {
            return BeginPeek(InfiniteTimeout, null, null);
        }

        public IAsyncResult BeginPeek(TimeSpan timeout)
        {
            return BeginPeek(timeout, null, null);
        }

        public IAsyncResult BeginPeek(TimeSpan timeout, object stateObject)
        {
            return BeginPeek(timeout, stateObject, null);
        }

        public IAsyncResult BeginPeek(TimeSpan timeout, object stateObject, AsyncCallback callback)
        {
            return new AsyncRead(ReadAsync("/peek", "", timeout, default), stateObject, callback ?? (each => Raise(() => peekCompleted?.Invoke(this, new PeekCompletedEventArgs(this, each)))));
        }

        public IAsyncResult BeginPeek(TimeSpan timeout, Cursor cursor, PeekAction action, object state, AsyncCallback callback)
        {
            if (cursor == null)
                throw new ArgumentNullException(nameof(cursor));
            return new AsyncRead(Task.Run(() => Peek(timeout, cursor, action)), state, callback ?? (each => Raise(() => peekCompleted?.Invoke(this, new PeekCompletedEventArgs(this, each)))));
        }

        public Message EndPeek(IAsyncResult asyncResult)
        {
            return AsyncRead.End(asyncResult);
        }

        void Raise(Action handler)
        {
            var target = SynchronizingObject;
            if (target != null && target.InvokeRequired)
                target.BeginInvoke(handler, null);
            else
                handler();
        }

        // The requests

        Message Made(Packet packet)
        {
            return new Message(packet, this, filter, (IMessageFormatter)Formatter.Clone());
        }

        internal Message Read(Packet packet)
        {
            return Made(packet);
        }

        Packet Wait(string call, string query, TimeSpan timeout)
        {
            return WaitAll(call, query, timeout)[0];
        }

        List<Packet> WaitAll(string call, string query, TimeSpan timeout)
        {
            RequireRead();
            var withdrawal = Begin();
            try
            {
                var path = Manager.QueuePath(ApiName, call);
                return Packet.ReadAll(Reopened(handle => Manager.Wait(path, handle + query, Limit(timeout), null, withdrawal)).Content);
            }
            finally
            {
                End(withdrawal);
            }
        }

        // With DenySharedReceive, reads name the handle that keeps other readers out.

        readonly object opening = new object();
        string opened; // `handle=NUMBER&`, or null

        string Handle()
        {
            if (!denySharedReceive)
                return "";
            lock (opening)
            {
                if (opened == null)
                {
                    var access = (AccessMode & QueueAccessMode.Receive) != 0 ? "receive" : "peek";
                    var wanted = new JsonWriter().Add("queue", ApiName).Add("access", access).Add("share", "deny-receive");
                    opened = $"handle={(long)Manager.Do("POST", "/handles", wanted)["handle"]}&";
                }
                return opened;
            }
        }

        /// <summary>Reads with the handle. After a restart of the manager there is none: it opens the queue again.</summary>
        Answer Reopened(Func<string, Answer> read)
        {
            var handle = Handle();
            try
            {
                return read(handle);
            }
            catch (MessageQueueException fault) when (IsClosed(fault, handle))
            {
                return read(Handle());
            }
        }

        bool IsClosed(MessageQueueException fault, string handle)
        {
            if (handle.Length == 0 || fault.MessageQueueErrorCode != MessageQueueErrorCode.InvalidHandle)
                return false;
            lock (opening)
            {
                if (opened == handle)
                    opened = null;
            }
            return true;
        }

        void CloseHandle()
        {
            string handle;
            lock (opening)
            {
                handle = opened;
                opened = null;
            }
            if (handle == null)
                return;
            try
            {
                Manager.Do("DELETE", "/handles/" + handle.Substring(7).TrimEnd('&'), repeatable: true);
            }
            catch (MessageQueueException fault) when (fault.MessageQueueErrorCode == MessageQueueErrorCode.InvalidHandle)
            {
                // The manager has restarted since.
            }
        }

        async Task<Message> ReadAsync(string call, string query, TimeSpan timeout, CancellationToken cancellation)
        {
            RequireRead();
            cancellation.ThrowIfCancellationRequested();
            var limit = Limit(timeout);
            var path = Manager.QueuePath(ApiName, call);
            var withdrawal = Begin();
            using (cancellation.Register(withdrawal.Cancel))
            {
                try
                {
                    var handle = denySharedReceive ? await Task.Run(Handle).ConfigureAwait(false) : "";
                    Answer answer;
                    try
                    {
                        answer = await Manager.WaitAsync(path, handle + query, limit, withdrawal).ConfigureAwait(false);
                    }
                    catch (MessageQueueException fault) when (IsClosed(fault, handle))
                    {
                        handle = await Task.Run(Handle).ConfigureAwait(false);
                        answer = await Manager.WaitAsync(path, handle + query, limit, withdrawal).ConfigureAwait(false);
                    }
                    return Made(Packet.ReadOne(answer.Content));
                }
                catch (MessageQueueException fault) when (
                    fault.MessageQueueErrorCode == MessageQueueErrorCode.OperationCanceled && cancellation.IsCancellationRequested)
                {
                    throw new OperationCanceledException(fault.Message, fault, cancellation);
                }
                finally
                {
                    End(withdrawal);
                }
            }
        }

        static TimeSpan? Limit(TimeSpan timeout)
        {
            if (timeout < TimeSpan.Zero || timeout > InfiniteTimeout)
                throw new ArgumentException($"the time-out must be from 0 to {uint.MaxValue} seconds, got {timeout}");
            return timeout == InfiniteTimeout ? (TimeSpan?)null : timeout;
        }

        void RequireRead()
        {
            if ((AccessMode & (QueueAccessMode.Receive | QueueAccessMode.Peek)) == 0)
                throw new MessageQueueException(MessageQueueErrorCode.AccessDenied, "this MessageQueue was opened for sending: AccessMode must include Receive or Peek");
        }

        Withdrawal Begin()
        {
            var withdrawal = new Withdrawal();
            lock (reads)
                reads.Add(withdrawal);
            return withdrawal;
        }

        void End(Withdrawal withdrawal)
        {
            lock (reads)
                reads.Remove(withdrawal);
        }

        /// <summary>
        /// Ends the reads that wait, and gives back what was fetched ahead. The object can be used again: it opens the
        /// queue with the next call.
        /// </summary>
        public void Close()
        {
            Withdrawal[] waiting;
            lock (reads)
            {
                waiting = new Withdrawal[reads.Count];
                reads.CopyTo(waiting);
            }
            foreach (var each in waiting)
                each.Cancel();
            ReleasePrefetched();
            CloseHandle();
        }

        protected override void Dispose(bool disposing)
        {
            if (disposing)
            {
                try
                {
                    Close();
                }
                catch (MessageQueueException)
                {
                    // What was fetched ahead goes back by itself when its lease ends.
                }
            }
            base.Dispose(disposing);
        }

        // Messages that were fetched ahead

        Message ReceivePrefetched(TimeSpan timeout)
        {
            RequireRead();
            lock (prefetching)
            {
                prefetched = prefetched ?? new Prefetched(Manager, Manager.QueuePath(ApiName), Reopened);
                var withdrawal = Begin();
                try
                {
                    return Made(prefetched.Next(prefetch, Limit(timeout), withdrawal));
                }
                finally
                {
                    End(withdrawal);
                }
            }
        }

        void ReleasePrefetched()
        {
            lock (prefetching)
            {
                prefetched?.Release();
                prefetched = null;
            }
        }
    }

    /// <summary>
    /// Locked messages of one queue: those to return, and those that were returned and are still to be removed. The next
    /// ones are fetched while the caller works on these.
    /// </summary>
    sealed class Prefetched
    {
        readonly Manager manager;
        readonly string queue;
        readonly Func<Func<string, Answer>, Answer> reopened;
        readonly Queue<Locked> ahead = new Queue<Locked>();
        readonly List<Locked> returned = new List<Locked>();
        Task<List<Locked>> fetching;

        public Prefetched(Manager manager, string queue, Func<Func<string, Answer>, Answer> reopened)
        {
            this.manager = manager;
            this.queue = queue;
            this.reopened = reopened;
        }

        struct Locked
        {
            public Packet Packet;
            public Lease Lease;
        }

        sealed class Lease
        {
            public string Id;
            public int Left;
        }

        public Packet Next(int count, TimeSpan? timeout, Withdrawal withdrawal)
        {
            if (ahead.Count == 0 && fetching != null)
                Add(Fetched());
            if (ahead.Count == 0)
                Add(Lock(count, timeout, withdrawal, Settled()));
            else if (ahead.Count <= count / 2 && fetching == null)
                fetching = FetchSoon(count, Settled());
            var next = ahead.Dequeue();
            returned.Add(next);
            return next.Packet;
        }

        Task<List<Locked>> FetchSoon(int count, List<Locked> settled)
        {
            return Task.Run(() =>
            {
                try
                {
                    return Lock(count, TimeSpan.Zero, null, settled);
                }
                catch (MessageQueueException fault) when (fault.MessageQueueErrorCode == MessageQueueErrorCode.IOTimeout)
                {
                    return new List<Locked>();
                }
            });
        }

        List<Locked> Fetched()
        {
            try
            {
                return fetching.GetAwaiter().GetResult();
            }
            finally
            {
                fetching = null;
            }
        }

        void Add(List<Locked> found)
        {
            foreach (var each in found)
                ahead.Enqueue(each);
        }

        List<Locked> Settled()
        {
            var settled = new List<Locked>(returned);
            returned.Clear();
            return settled;
        }

        List<Locked> Lock(int count, TimeSpan? timeout, Withdrawal withdrawal, List<Locked> settled)
        {
            Answer answer;
            var settlement = settled.Count == 0 ? null : Settlement(settled, true);
            Forget(settled);
            try
            {
                answer = reopened(handle => manager.Wait(queue + "/lock", $"{handle}count={count}&", timeout, settlement, withdrawal));
            }
            catch (MessageQueueException fault) when (
                settlement != null
                && (fault.MessageQueueErrorCode == MessageQueueErrorCode.TransactionSequence
                    || fault.MessageQueueErrorCode == MessageQueueErrorCode.MessageAlreadyReceived))
            {
                // The lease has ended, as after a restart: the last messages come again.
                answer = reopened(handle => manager.Wait(queue + "/lock", $"{handle}count={count}&", timeout, null, withdrawal));
            }
            var packets = Packet.ReadAll(answer.Content);
            var lease = new Lease { Id = answer.Header("Postroad-Lease"), Left = packets.Count };
            manager.Leases.Hold(lease.Id, double.Parse(answer.Header("Postroad-Lease-Seconds"), CultureInfo.InvariantCulture));
            return packets.ConvertAll(each => new Locked { Packet = each, Lease = lease });
        }

        static byte[] Settlement(List<Locked> settled, bool delete)
        {
            return new JsonWriter()
                .Add("lookup_ids", settled.ConvertAll(each => each.Packet.LookupId))
                .Add("delete", delete)
                .Add("leases", new HashSet<string>(settled.ConvertAll(each => each.Lease.Id)))
                .ToBytes();
        }

        void Forget(List<Locked> settled)
        {
            foreach (var each in settled)
            {
                if (Interlocked.Decrement(ref each.Lease.Left) == 0)
                    manager.Leases.Drop(each.Lease.Id);
            }
        }

        public void Release()
        {
            if (fetching != null)
                Add(Fetched());
            var rest = new List<Locked>(ahead);
            var done = Settled();
            ahead.Clear();
            try
            {
                if (done.Count > 0)
                    manager.Ask("POST", queue + "/settle", Settlement(done, true));
                if (rest.Count > 0)
                    manager.Ask("POST", queue + "/settle", Settlement(rest, false));
            }
            finally
            {
                Forget(done);
                Forget(rest);
            }
        }
    }

    /// <summary>A read under way, for Begin and End.</summary>
    sealed class AsyncRead : IAsyncResult
    {
        readonly Task<Message> task;

        public AsyncRead(Task<Message> task, object state, AsyncCallback callback)
        {
            this.task = task;
            AsyncState = state;
            // Not in the task: it would hide an exception of the callback, which must end the process as on Windows.
            task.ContinueWith(_ => ThreadPool.QueueUserWorkItem(__ => callback(this)), TaskContinuationOptions.ExecuteSynchronously);
        }

        public object AsyncState { get; }

        public WaitHandle AsyncWaitHandle => ((IAsyncResult)task).AsyncWaitHandle;

        public bool CompletedSynchronously => false;

        public bool IsCompleted => task.IsCompleted;

        public static Message End(IAsyncResult result)
        {
            if (result == null)
                throw new ArgumentNullException(nameof(result));
            var read = result as AsyncRead ?? throw new ArgumentException("the result must be that of BeginReceive or BeginPeek");
            return read.task.GetAwaiter().GetResult();
        }
    }

    public delegate void ReceiveCompletedEventHandler(object sender, ReceiveCompletedEventArgs e);

    public delegate void PeekCompletedEventHandler(object sender, PeekCompletedEventArgs e);

    /// <summary>A receive that BeginReceive began has ended. Message ends it, and raises its error.</summary>
    public class ReceiveCompletedEventArgs : EventArgs
    {
        readonly MessageQueue queue;
        Message message;

        internal ReceiveCompletedEventArgs(MessageQueue queue, IAsyncResult result)
        {
            this.queue = queue;
            AsyncResult = result;
        }

        public IAsyncResult AsyncResult { get; set; }

        public Message Message => message ?? (message = queue.EndReceive(AsyncResult));
    }

    /// <summary>A peek that BeginPeek began has ended. Message ends it, and raises its error.</summary>
    public class PeekCompletedEventArgs : EventArgs
    {
        readonly MessageQueue queue;
        Message message;

        internal PeekCompletedEventArgs(MessageQueue queue, IAsyncResult result)
        {
            this.queue = queue;
            AsyncResult = result;
        }

        public IAsyncResult AsyncResult { get; set; }

        public Message Message => message ?? (message = queue.EndPeek(AsyncResult));
    }

    /// <summary>A place in a queue. Other readers do not move it.</summary>
    public sealed class Cursor : IDisposable
    {
        readonly MessageQueue queue;
        ulong? position; // null before the first message
        bool taken; // whether this cursor has received the message at its position
        bool closed;

        internal Cursor(MessageQueue queue)
        {
            this.queue = queue;
        }

        internal Packet Peek(MessageQueue used, TimeSpan timeout, PeekAction action)
        {
            Check(used);
            if (action != PeekAction.Current && action != PeekAction.Next)
                throw new ArgumentOutOfRangeException(nameof(action), $"must be a value of PeekAction, got {action}");
            if (action == PeekAction.Next && position == null)
                throw new MessageQueueException(MessageQueueErrorCode.IllegalCursorAction, "PeekAction.Next must follow a PeekAction.Current of this cursor");
            if (action == PeekAction.Current && position != null && !taken)
                return queue.Show(position.Value);
            return Move(timeout);
        }

        internal Packet Receive(MessageQueue used, TimeSpan timeout, string query)
        {
            Check(used);
            if (position == null || taken)
                Move(timeout);
            var packet = queue.Take(position.Value, query);
            taken = true;
            return packet;
        }

        Packet Move(TimeSpan timeout)
        {
            var next = queue.After(position, 1, timeout)[0];
            position = next.LookupId;
            taken = false;
            return next;
        }

        public void Close()
        {
            closed = true;
        }

        public void Dispose()
        {
            Close();
        }

        void Check(MessageQueue used)
        {
            if (closed)
                throw new ObjectDisposedException(nameof(Cursor));
            if (used != queue)
                throw new MessageQueueException(MessageQueueErrorCode.InvalidHandle, "a cursor belongs to the MessageQueue that created it");
        }
    }

    /// <summary>Walks the messages of a queue, in its order, and sees those that come in the meantime.</summary>
    public class MessageEnumerator : MarshalByRefObject, IEnumerator, IDisposable
    {
        const int Page = 100;
        readonly MessageQueue queue;
        readonly Queue<Packet> ahead = new Queue<Packet>();
        Packet current;
        bool removed;
        ulong? position;
        Message message;

        internal MessageEnumerator(MessageQueue queue)
        {
            this.queue = queue;
        }

        ~MessageEnumerator()
        {
            Dispose(false);
        }

        public Message Current => message ?? (message = queue.Read(At()));

        object IEnumerator.Current => Current;

        public IntPtr CursorHandle => throw MessageQueue.NoHandle();

        public bool MoveNext()
        {
            return MoveNext(TimeSpan.Zero);
        }

        public bool MoveNext(TimeSpan timeout)
        {
            message = null;
            if (ahead.Count == 0)
            {
                try
                {
                    foreach (var each in queue.After(position, Page, timeout))
                        ahead.Enqueue(each);
                }
                catch (MessageQueueException fault) when (fault.MessageQueueErrorCode == MessageQueueErrorCode.IOTimeout)
                {
                    current = null;
                    return false;
                }
            }
            current = ahead.Dequeue();
            position = current.LookupId;
            removed = false;
            return true;
        }

        public Message RemoveCurrent()
        {
            return RemoveCurrent(TimeSpan.Zero, (MessageQueueTransaction)null);
        }

        public Message RemoveCurrent(MessageQueueTransaction transaction)
        {
            return RemoveCurrent(TimeSpan.Zero, transaction);
        }

        public Message RemoveCurrent(MessageQueueTransactionType transactionType)
        {
            return RemoveCurrent(TimeSpan.Zero, transactionType);
        }

        public Message RemoveCurrent(TimeSpan timeout)
        {
            return RemoveCurrent(timeout, (MessageQueueTransaction)null);
        }

        public Message RemoveCurrent(TimeSpan timeout, MessageQueueTransaction transaction)
        {
            return Removed(timeout, lookupId => queue.RemoveAt(lookupId, transaction));
        }

        public Message RemoveCurrent(TimeSpan timeout, MessageQueueTransactionType transactionType)
        {
            return Removed(timeout, lookupId => queue.RemoveAt(lookupId, transactionType));
        }

        /// <summary>Removes the current message. The next call removes the one behind it; MoveNext shows that one first.</summary>
        Message Removed(TimeSpan timeout, Func<ulong, Message> remove)
        {
            if (removed && !MoveNext(timeout))
                throw new MessageQueueException(MessageQueueErrorCode.IOTimeout, "no message came in time");
            var taken = remove(At().LookupId);
            removed = true;
            message = null;
            return taken;
        }

        Packet At()
        {
            return !removed && current != null ? current : throw new InvalidOperationException("the enumerator is not at a message");
        }

        public void Reset()
        {
            Close();
        }

        public void Close()
        {
            ahead.Clear();
            current = null;
            message = null;
            position = null;
            removed = false;
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
