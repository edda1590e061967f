// One queue manager through its HTTP API: requests, errors, sends that are joined, leases that renew themselves.
//
// No message, no queue object and no formatter is known here.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Collections.Concurrent;
    using System.Collections.Generic;
    using System.Diagnostics;
    using System.Globalization;
    using System.IO;
    using System.Linq;
    using System.Net.Sockets;
    using System.Security.Authentication;
    using System.Text;
    using System.Threading;
    using System.Threading.Tasks;

    sealed class Manager
    {
        public const string DefaultUrl = "http://127.0.0.1:8180";
        public const string Records = "application/vnd.postroad.records";
        const string Json = "application/json";
        const int AnswerMs = 60000; // the manager may wait 30 s for its store
        const int WaitMs = 30000; // in one request; a longer wait is several
        const int RetryMs = 100;
        const int KeepAliveMs = 50000; // the manager closes after a minute
        static readonly ConcurrentDictionary<string, Manager> Known = new ConcurrentDictionary<string, Manager>();
        static readonly string Client = Ascii(
            $"{Environment.UserName}@{Environment.MachineName} (pid {Process.GetCurrentProcess().Id})");

        readonly Uri url;
        readonly string head; // what the head of every request has
        readonly ConcurrentStack<Connection> idle = new ConcurrentStack<Connection>();
        readonly ConcurrentDictionary<string, Lane> lanes = new ConcurrentDictionary<string, Lane>();
        volatile bool met; // whether it has ever answered
        string name;

        Manager(Uri url, string authorization)
        {
            this.url = url;
            head = $" HTTP/1.1\r\nHost: {url.Authority}\r\nPostroad-Client: {Client}\r\n";
            if (authorization != null)
                head += $"Authorization: {authorization}\r\n";
            Leases = new LeaseKeeper(this);
        }

        public LeaseKeeper Leases { get; }

        /// <summary>How long a manager that has answered before may be away.</summary>
        public static TimeSpan ReconnectTimeout = TimeSpan.FromSeconds(15);

        /// <summary>The manager at this URL, which may have a user and a password in front of the host.</summary>
        public static Manager At(string text)
        {
            var token = Environment.GetEnvironmentVariable("POSTROAD_TOKEN");
            var user = Environment.GetEnvironmentVariable("POSTROAD_USER");
            var password = Environment.GetEnvironmentVariable("POSTROAD_PASSWORD");
            var key = string.Join("\n", text, token, user, password);
            return Known.GetOrAdd(key, _ =>
            {
                if (!Uri.TryCreate(text.Trim(), UriKind.Absolute, out var url)
                    || (url.Scheme != Uri.UriSchemeHttp && url.Scheme != Uri.UriSchemeHttps)
                    || url.AbsolutePath != "/")
                    throw new ArgumentException($"the URL of a queue manager must be such as {DefaultUrl}, got {text}");
                string authorization = null;
                if (url.UserInfo.Length > 0)
                    authorization = Basic(Uri.UnescapeDataString(url.UserInfo));
                else if (!string.IsNullOrEmpty(token))
                    authorization = "Bearer " + Ascii(token.Trim());
                else if (!string.IsNullOrEmpty(user))
                    authorization = Basic(user + ":" + password);
                return new Manager(url, authorization);
            });
        }

        static string Basic(string login)
        {
            return "Basic " + Convert.ToBase64String(Encoding.UTF8.GetBytes(login));
        }

        static string Ascii(string text)
        {
            return new string(text.Select(each => each >= ' ' && each <= '~' ? each : '?').ToArray());
        }

        /// <summary>The manager's own name; the computer's, where the caller may not ask for it.</summary>
        public string Name
        {
            get
            {
                if (name == null)
                {
                    try
                    {
                        var own = GetObject("/manager");
                        names[Guid.Parse((string)own["id"])] = name = (string)own["name"];
                    }
                    catch (MessageQueueException fault) when (fault.HttpStatus == 403)
                    {
                        name = Environment.MachineName;
                    }
                }
                return name;
            }
        }

        readonly ConcurrentDictionary<Guid, string> names = new ConcurrentDictionary<Guid, string>();

        /// <summary>The name of a queue manager; its GUID, if nobody here knows the name.</summary>
        public string NameOf(Guid manager)
        {
            _ = Name; // it comes with the manager's own id
            return names.GetOrAdd(manager, each =>
            {
                try
                {
                    var found = (Dictionary<string, object>)GetObject($"/names?of={each}")["names"];
                    return found.TryGetValue(each.ToString(), out var known) ? (string)known : each.ToString();
                }
                catch (MessageQueueException)
                {
                    return each.ToString();
                }
            });
        }

        // Requests

        public static string QueuePath(string queue, string call = "")
        {
            const string Private = @"private$\";
            var plain = queue.Length > Private.Length
                && queue.StartsWith(Private, StringComparison.OrdinalIgnoreCase)
                && queue.Skip(Private.Length).All(each => each < 128 && (char.IsLetterOrDigit(each) || each == '_' || each == '-'));
            return "/queues/" + (plain ? queue.Replace('\\', '/') : Uri.EscapeDataString(queue)) + call;
        }

        public Dictionary<string, object> GetObject(string path)
        {
            return AsObject(Ask("GET", path, null, repeatable: true));
        }

        public Dictionary<string, object> Do(string method, string path, JsonWriter value = null, bool repeatable = false)
        {
            return AsObject(Ask(method, path, value?.ToBytes(), repeatable: repeatable));
        }

        public static Dictionary<string, object> AsObject(Answer answer)
        {
            if (answer.Content.Length == 0)
                return new Dictionary<string, object>();
            try
            {
                return JsonReader.Read(answer.Content) as Dictionary<string, object> ?? throw new FormatException("the answer is no object");
            }
            catch (FormatException fault)
            {
                throw new MessageQueueException(MessageQueueErrorCode.Generic, fault.Message, fault);
            }
        }

        /// <summary>
        /// Sends a request and returns its answer, if that is no error. A request that is `repeatable` is sent again if
        /// the connection breaks, as long as the manager may be away; every other only if nothing of it was sent.
        /// </summary>
        public Answer Ask(
            string method,
            string path,
            byte[] body,
            string accept = Json,
            int waitMs = 0,
            bool repeatable = false,
            Withdrawal withdrawal = null)
        {
            var request = Request(method, path, body, accept);
            var clock = Stopwatch.StartNew();
            while (true)
            {
                Connection connection = null;
                try
                {
                    connection = Take();
                    var reused = connection != null;
                    connection = connection ?? Connection.Open(url);
                    withdrawal?.Begin(connection);
                    var answer = connection.Ask(request, AnswerMs + waitMs);
                    withdrawal?.End();
                    Keep(connection, answer.Reusable);
                    if (answer.Status == 503 && repeatable && MayRetry(clock, withdrawal))
                        continue;
                    return Checked(answer);
                }
                catch (Exception fault) when (IsBroken(fault))
                {
                    withdrawal?.End();
                    connection?.Dispose();
                    ThrowIfCancelled(withdrawal);
                    if (!(repeatable || connection == null) || !MayRetry(clock, withdrawal))
                        throw NotAvailable(fault);
                }
            }
        }

        public async Task<Answer> AskAsync(
            string method,
            string path,
            byte[] body,
            string accept,
            int waitMs,
            bool repeatable,
            Withdrawal withdrawal)
        {
            var request = Request(method, path, body, accept);
            var clock = Stopwatch.StartNew();
            while (true)
            {
                Connection connection = null;
                try
                {
                    connection = Take() ?? await Task.Run(() => Connection.Open(url)).ConfigureAwait(false);
                    withdrawal?.Begin(connection);
                    var answer = await connection.AskAsync(request, AnswerMs + waitMs).ConfigureAwait(false);
                    withdrawal?.End();
                    Keep(connection, answer.Reusable);
                    if (answer.Status != 503 || !repeatable || clock.Elapsed > ReconnectTimeout)
                        return Checked(answer);
                }
                catch (Exception fault) when (IsBroken(fault))
                {
                    withdrawal?.End();
                    connection?.Dispose();
                    ThrowIfCancelled(withdrawal);
                    if (!(repeatable || connection == null) || !met || clock.Elapsed > ReconnectTimeout)
                        throw NotAvailable(fault);
                }
                await Task.Delay(RetryMs).ConfigureAwait(false);
                ThrowIfCancelled(withdrawal);
            }
        }

        byte[] Request(string method, string path, byte[] body, string accept)
        {
            var text = new StringBuilder(method, 512).Append(" /api/v1").Append(path).Append(head);
            text.Append("Accept: ").Append(accept);
            if (body != null)
                text.Append("\r\nContent-Type: ").Append(Json);
            text.Append("\r\nContent-Length: ").Append((body?.Length ?? 0).ToString(CultureInfo.InvariantCulture));
            var first = Encoding.ASCII.GetBytes(text.Append("\r\n\r\n").ToString());
            if (body == null)
                return first;
            var request = new byte[first.Length + body.Length];
            Buffer.BlockCopy(first, 0, request, 0, first.Length);
            Buffer.BlockCopy(body, 0, request, first.Length, body.Length);
            return request;
        }

        Connection Take()
        {
            while (idle.TryPop(out var connection))
            {
                if ((DateTime.UtcNow - connection.IdleSince).TotalMilliseconds < KeepAliveMs && !connection.Ended)
                    return connection;
                connection.Dispose();
            }
            return null;
        }

        void Keep(Connection connection, bool reusable)
        {
            met = true;
            if (!reusable)
            {
                connection.Dispose();
                return;
            }
            connection.IdleSince = DateTime.UtcNow;
            idle.Push(connection);
        }

        /// <summary>Closes the connections that are idle.</summary>
        public void ClearConnections()
        {
            while (idle.TryPop(out var connection))
                connection.Dispose();
        }

        public static void ClearAllConnections()
        {
            foreach (var each in Known.Values)
                each.ClearConnections();
        }

        bool MayRetry(Stopwatch clock, Withdrawal withdrawal)
        {
            if (!met || clock.Elapsed > ReconnectTimeout)
                return false;
            Thread.Sleep(RetryMs);
            ThrowIfCancelled(withdrawal);
            return true;
        }

        static void ThrowIfCancelled(Withdrawal withdrawal)
        {
            if (withdrawal != null && withdrawal.Cancelled)
                throw new MessageQueueException(MessageQueueErrorCode.OperationCanceled, "the read was cancelled");
        }

        static bool IsBroken(Exception fault)
        {
            return fault is IOException || fault is SocketException || fault is ObjectDisposedException || fault is AuthenticationException;
        }

        MessageQueueException NotAvailable(Exception fault)
        {
            var place = url.GetComponents(UriComponents.SchemeAndServer, UriFormat.UriEscaped);
            return new MessageQueueException(
                MessageQueueErrorCode.ServiceNotAvailable,
                $"no queue manager answers at {place}: {fault.Message} (POSTROAD_API or MessageQueue.LocalManager names it)",
                fault);
        }

        // Errors

        static Answer Checked(Answer answer)
        {
            if (answer.Status < 300)
                return answer;
            throw Error(answer);
        }

        static MessageQueueException Error(Answer answer)
        {
            Dictionary<string, object> problem = null;
            try
            {
                problem = JsonReader.Read(answer.Content) as Dictionary<string, object>;
            }
            catch (FormatException)
            {
            }
            return Error(answer.Status, problem ?? new Dictionary<string, object>());
        }

        static MessageQueueException Error(int status, Dictionary<string, object> problem)
        {
            problem.TryGetValue("detail", out var detail);
            problem.TryGetValue("hresult", out var hresult);
            problem.TryGetValue("error", out var error);
            var sentence = detail as string ?? $"the queue manager answered with HTTP status {status}";
            return new MessageQueueException(Code(status, hresult as string, error as string), sentence) { HttpStatus = status };
        }

        static MessageQueueErrorCode Code(int status, string hresult, string error)
        {
            switch (error)
            {
                case "NotAuthenticated":
                    return MessageQueueErrorCode.AccessDenied;
                case "NotEncrypted":
                    return MessageQueueErrorCode.PublicKeyNotFound;
                case "LeaseEnded":
                    return MessageQueueErrorCode.TransactionSequence;
            }
            if (hresult != null
                && hresult.Length == 10
                && uint.TryParse(hresult.Substring(2), NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var value)
                && Enum.IsDefined(typeof(MessageQueueErrorCode), unchecked((int)value))
                && unchecked((int)value) != (int)MessageQueueErrorCode.Generic)
                return (MessageQueueErrorCode)unchecked((int)value);
            switch (status)
            {
                case 401:
                case 403:
                    return MessageQueueErrorCode.AccessDenied;
                case 413:
                case 429:
                case 507:
                    return MessageQueueErrorCode.InsufficientResources;
                case 503:
                    return MessageQueueErrorCode.ServiceNotAvailable;
                default:
                    return MessageQueueErrorCode.Generic;
            }
        }

        // Sends

        /// <summary>Sends one message, as JSON, and returns its id. Concurrent sends to a queue share a request.</summary>
        public string Send(string queue, byte[] message)
        {
            return IsList(queue) ? Send(queue, message, null) : LaneOf(queue).Send(message);
        }

        public Task<string> SendAsync(string queue, byte[] message)
        {
            return IsList(queue) ? Task.Run(() => Send(queue, message, null)) : LaneOf(queue).SendAsync(message);
        }

        Lane LaneOf(string queue)
        {
            return lanes.GetOrAdd(queue, each => new Lane(batch => Post(each, batch)));
        }

        /// <summary>Whether a name is several queues: each of their messages has an id of its own.</summary>
        static bool IsList(string queue)
        {
            return queue.IndexOf(',') >= 0 || queue.StartsWith("DL=", StringComparison.OrdinalIgnoreCase);
        }

        public string Send(string queue, byte[] message, string transaction)
        {
            var path = QueuePath(queue, "/messages");
            return Ids(Ask("POST", transaction == null ? path : $"{path}?transaction={transaction}", message))[0];
        }

        static List<string> Ids(Answer answer)
        {
            var ids = AsObject(answer)["ids"] as List<object>;
            return ids == null || ids.Count == 0 ? new List<string> { null } : ids.ConvertAll(each => (string)each);
        }

        void Post(string queue, IReadOnlyList<Lane.Sending> batch)
        {
            var path = QueuePath(queue, "/messages");
            if (batch.Count == 1)
            {
                batch[0].Id = Ids(Ask("POST", path, batch[0].Message))[0];
                return;
            }
            var body = new MemoryStream();
            void Put(byte[] bytes) => body.Write(bytes, 0, bytes.Length);
            Put(Encoding.ASCII.GetBytes("{\"messages\":["));
            for (var i = 0; i < batch.Count; i++)
            {
                if (i > 0)
                    body.WriteByte((byte)',');
                Put(batch[i].Message);
            }
            Put(Encoding.ASCII.GetBytes("]}"));
            var answer = Ask("POST", path + "?separate=true", body.ToArray());
            if (answer.Status != 207)
            {
                var ids = Ids(answer);
                for (var i = 0; i < batch.Count; i++)
                    batch[i].Id = ids[i];
                return;
            }
            var outcomes = (List<object>)AsObject(answer)["outcomes"];
            for (var i = 0; i < batch.Count; i++)
            {
                var outcome = (Dictionary<string, object>)outcomes[i];
                if (outcome.TryGetValue("id", out var id))
                    batch[i].Id = (string)id;
                else
                    batch[i].Error = Error(400, (Dictionary<string, object>)outcome["problem"]);
            }
        }

        // Reads

        /// <summary>
        /// Asks for messages until one comes. No time left raises IOTimeout; null is no limit. `body` goes with the
        /// first request only.
        /// </summary>
        public Answer Wait(string path, string query, TimeSpan? timeout, byte[] body = null, Withdrawal withdrawal = null)
        {
            var clock = Stopwatch.StartNew();
            while (true)
            {
                var waitMs = Left(timeout, clock);
                var answer = Ask("POST", Timed(path, query, waitMs), body, Records, waitMs, true, withdrawal);
                body = null;
                if (answer.Content.Length > 0)
                    return answer;
                ThrowIfOver(timeout, clock, waitMs, withdrawal);
            }
        }

        public async Task<Answer> WaitAsync(string path, string query, TimeSpan? timeout, Withdrawal withdrawal)
        {
            var clock = Stopwatch.StartNew();
            while (true)
            {
                var waitMs = Left(timeout, clock);
                var answer = await AskAsync("POST", Timed(path, query, waitMs), null, Records, waitMs, true, withdrawal)
                    .ConfigureAwait(false);
                if (answer.Content.Length > 0)
                    return answer;
                ThrowIfOver(timeout, clock, waitMs, withdrawal);
            }
        }

        static int Left(TimeSpan? timeout, Stopwatch clock)
        {
            if (timeout == null)
                return WaitMs;
            return (int)Math.Max(0, Math.Min(WaitMs, Math.Ceiling((timeout.Value - clock.Elapsed).TotalMilliseconds)));
        }

        static string Timed(string path, string query, int waitMs)
        {
            return $"{path}?{query}timeout={(waitMs / 1000.0).ToString("0.###", CultureInfo.InvariantCulture)}";
        }

        static void ThrowIfOver(TimeSpan? timeout, Stopwatch clock, int waitMs, Withdrawal withdrawal)
        {
            ThrowIfCancelled(withdrawal);
            if (timeout != null && (waitMs == 0 || clock.Elapsed >= timeout.Value))
                throw new MessageQueueException(MessageQueueErrorCode.IOTimeout, "Timeout for the requested operation has expired: no message came in time");
        }
    }

    /// <summary>
    /// Sends to one queue. While a request is under way, the messages of other threads are collected for the next one,
    /// which one of these threads sends for all.
    /// </summary>
    sealed class Lane
    {
        const int MaxMessages = 1000;
        const int MaxBytes = 4 << 20;
        readonly Action<IReadOnlyList<Sending>> post;
        readonly Queue<Sending> waiting = new Queue<Sending>();
        bool busy;

        public Lane(Action<IReadOnlyList<Sending>> post)
        {
            this.post = post;
        }

        public sealed class Sending
        {
            public byte[] Message;
            public string Id;
            public Exception Error;
            public bool Done;
            public bool Leads; // its thread sends the next batch
            public TaskCompletionSource<string> Completion; // null if a thread waits

            public Exception OwnError => Error is MessageQueueException refused
                ? new MessageQueueException(refused.MessageQueueErrorCode, refused.Message, refused) { HttpStatus = refused.HttpStatus }
                : Error;

            /// <summary>Lets whoever waits go on: the message was sent, or its turn has come to send.</summary>
            public void Wake(Action<Sending> change)
            {
                lock (this)
                {
                    change(this);
                    Monitor.Pulse(this);
                }
            }
        }

        public string Send(byte[] message)
        {
            var own = new Sending { Message = message };
            if (Enqueue(own))
            {
                PostBatch(own);
            }
            else
            {
                lock (own)
                {
                    while (!own.Done && !own.Leads)
                        Monitor.Wait(own);
                }
                if (!own.Done)
                    PostBatch(own);
            }
            return own.Error == null ? own.Id : throw own.OwnError;
        }

        public Task<string> SendAsync(byte[] message)
        {
            var own = new Sending
            {
                Message = message,
                Completion = new TaskCompletionSource<string>(TaskCreationOptions.RunContinuationsAsynchronously),
            };
            if (Enqueue(own))
                Task.Run(() => PostBatch(own));
            return own.Completion.Task;
        }

        /// <summary>Whether the caller must send, because no request is under way.</summary>
        bool Enqueue(Sending own)
        {
            lock (waiting)
            {
                waiting.Enqueue(own);
                if (busy)
                    return false;
                busy = true;
                return true;
            }
        }

        void PostBatch(Sending own)
        {
            var batch = new List<Sending>();
            lock (waiting)
            {
                var size = 0;
                while (waiting.Count > 0 && batch.Count < MaxMessages)
                {
                    size += waiting.Peek().Message.Length;
                    if (batch.Count > 0 && size > MaxBytes)
                        break;
                    batch.Add(waiting.Dequeue());
                }
            }
            try
            {
                post(batch);
            }
            catch (Exception fault)
            {
                foreach (var each in batch)
                    each.Error = fault;
            }
            Sending next;
            lock (waiting)
            {
                next = waiting.Count > 0 ? waiting.Peek() : null;
                busy = next != null;
            }
            if (next?.Completion != null)
                Task.Run(() => PostBatch(next));
            else
                next?.Wake(each => each.Leads = true);
            foreach (var each in batch)
            {
                if (each.Completion == null)
                    each.Wake(sent => sent.Done = true);
                else if (each.Error == null)
                    each.Completion.SetResult(each.Id);
                else
                    each.Completion.SetException(each.OwnError);
            }
        }
    }

    /// <summary>Renews the leases of transactions and of locked messages, as long as the process lives.</summary>
    sealed class LeaseKeeper
    {
        const int Steps = 3; // renewals during the time of a lease: two of them may fail
        const int MaxRenewal = 10000;
        readonly Manager manager;
        readonly HashSet<string> held = new HashSet<string>();
        Timer timer;
        double stepMs;

        public LeaseKeeper(Manager manager)
        {
            this.manager = manager;
        }

        public void Hold(string lease, double leaseSeconds)
        {
            lock (held)
            {
                held.Add(lease);
                var step = Math.Max(10, leaseSeconds * 1000 / Steps);
                if (timer != null && step >= stepMs)
                    return;
                stepMs = step;
                timer = timer ?? new Timer(_ => Renew());
                timer.Change((long)stepMs, Timeout.Infinite);
            }
        }

        public void Drop(string lease)
        {
            lock (held)
                held.Remove(lease);
        }

        void Renew()
        {
            try
            {
                string[] leases;
                lock (held)
                    leases = held.Take(MaxRenewal).ToArray();
                if (leases.Length > 0)
                {
                    var answer = manager.Do("POST", "/leases/renew", new JsonWriter().Add("leases", leases));
                    foreach (var gone in (List<object>)answer["gone"])
                        Drop((string)gone);
                }
            }
            catch (MessageQueueException)
            {
                // The next step tries again, and a client that comes too late gets an error.
            }
            finally
            {
                lock (held)
                {
                    if (held.Count > 0)
                    {
                        timer.Change((long)stepMs, Timeout.Infinite);
                    }
                    else
                    {
                        timer.Dispose();
                        timer = null;
                    }
                }
            }
        }
    }
}
