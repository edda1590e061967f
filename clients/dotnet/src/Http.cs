// HTTP/1.1 on sockets: one connection asks one request at a time, and a pool keeps those that are idle.
//
// HttpClient costs several times as much for the small requests of this library, and its requests cannot be withdrawn
// without the risk that a message on its way is lost.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Collections.Generic;
    using System.Globalization;
    using System.IO;
    using System.Net;
    using System.Net.Security;
    using System.Net.Sockets;
    using System.Text;
    using System.Threading.Tasks;

    /// <summary>The answer to one request. The names of headers are compared without case.</summary>
    sealed class Answer
    {
        public int Status;
        public byte[] Content;
        public bool Reusable; // whether its connection can have another request
        public Dictionary<string, string> Headers;

        public string Header(string name)
        {
            return Headers.TryGetValue(name, out var value) ? value : null;
        }
    }

    /// <summary>A request under way. <see cref="Cancel"/> may come from any thread, before or after it has begun.</summary>
    sealed class Withdrawal
    {
        readonly object gate = new object();
        Connection connection;

        public bool Cancelled { get; private set; }

        public void Cancel()
        {
            lock (gate)
            {
                Cancelled = true;
                connection?.EndRequest();
            }
        }

        public void Begin(Connection asked)
        {
            lock (gate)
            {
                connection = asked;
                if (Cancelled)
                    asked.EndRequest();
            }
        }

        /// <summary>From now on the connection may have another request, which this one must not end.</summary>
        public void End()
        {
            lock (gate)
                connection = null;
        }
    }

    /// <summary>Reads one answer out of the bytes that arrive.</summary>
    sealed class AnswerReader
    {
        const int MaxHead = 0x10000;
        const int MaxAnswer = 1 << 30; // a receive of 64 MiB takes far less in every format
        byte[] data;
        int count;
        int body = -1; // where the content begins
        int next; // the chunk to read
        long length; // of the content; -1 up to the end of the connection
        bool chunked;
        MemoryStream chunks;
        readonly Answer answer = new Answer();

        public AnswerReader(byte[] room)
        {
            data = room;
        }

        public bool KeepAlive { get; private set; }

        public ArraySegment<byte> Room()
        {
            if (data.Length - count < 4096)
                Array.Resize(ref data, data.Length * 2);
            return new ArraySegment<byte>(data, count, data.Length - count);
        }

        /// <summary>The answer, once `read` more bytes make it whole. No bytes are the end of the connection.</summary>
        public Answer Take(int read)
        {
            count += read;
            if (read == 0)
                return body >= 0 && length < 0 && !chunked ? Whole(body, count - body) : throw Early();
            if (count > MaxAnswer)
                throw new IOException("the answer is too large");
            if (body < 0 && !ReadHead())
                return null;
            if (chunked)
                return ReadChunks();
            if (length < 0 || count - body < length)
                return null;
            if (count - body > length)
                throw new IOException("the manager sent more than its answer");
            return Whole(body, (int)length);
        }

        public static IOException Early()
        {
            return new EndOfStreamException("the connection ended before the answer did");
        }

        bool ReadHead()
        {
            var end = Find("\r\n\r\n", 0);
            if (end < 0)
            {
                if (count > MaxHead)
                    throw new IOException("the head of the answer is too long");
                return false;
            }
            var lines = Encoding.ASCII.GetString(data, 0, end).Split(new[] { "\r\n" }, StringSplitOptions.None);
            if (!lines[0].StartsWith("HTTP/1.", StringComparison.Ordinal)
                || lines[0].Length < 12
                || !int.TryParse(lines[0].Substring(9, 3), NumberStyles.None, CultureInfo.InvariantCulture, out answer.Status))
                throw new IOException("the answer is not HTTP");
            if (answer.Status < 200)
            {
                Buffer.BlockCopy(data, end + 4, data, 0, count -= end + 4);
                return count > 0 && ReadHead();
            }
            answer.Headers = new Dictionary<string, string>(lines.Length, StringComparer.OrdinalIgnoreCase);
            for (var i = 1; i < lines.Length; i++)
            {
                var colon = lines[i].IndexOf(':');
                if (colon < 0)
                    throw new IOException("the answer is not HTTP");
                answer.Headers[lines[i].Substring(0, colon)] = lines[i].Substring(colon + 1).Trim();
            }
            chunked = (answer.Header("Transfer-Encoding") ?? "").EndsWith("chunked", StringComparison.OrdinalIgnoreCase);
            var stated = answer.Header("Content-Length");
            if (answer.Status == 204 || answer.Status == 304)
                length = 0;
            else if (chunked || stated == null)
                length = -1;
            else if (!long.TryParse(stated, NumberStyles.None, CultureInfo.InvariantCulture, out length) || length > MaxAnswer)
                throw new IOException("the answer is not HTTP");
            var closes = (answer.Header("Connection") ?? "").IndexOf("close", StringComparison.OrdinalIgnoreCase) >= 0;
            KeepAlive = !closes && (chunked || length >= 0) && lines[0][7] == '1';
            body = next = end + 4;
            if (length > 0 && data.Length < body + length + 1)
                Array.Resize(ref data, body + (int)length + 4096);
            return true;
        }

        Answer ReadChunks()
        {
            chunks = chunks ?? new MemoryStream();
            while (true)
            {
                var line = Find("\r\n", next);
                if (line < 0)
                    return null;
                var digits = Encoding.ASCII.GetString(data, next, line - next).Split(';')[0].Trim();
                if (!int.TryParse(digits, NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var size) || size < 0)
                    throw new IOException("the size of a chunk is not hexadecimal");
                if (size == 0)
                {
                    if (Find("\r\n\r\n", line) < 0) // trailers come before it
                        return null;
                    answer.Content = chunks.ToArray();
                    return answer;
                }
                if (count < line + 4 + size)
                    return null;
                chunks.Write(data, line + 2, size);
                next = line + 4 + size;
            }
        }

        Answer Whole(int start, int size)
        {
            answer.Content = new byte[size];
            Buffer.BlockCopy(data, start, answer.Content, 0, size);
            return answer;
        }

        int Find(string wanted, int from)
        {
            for (var at = from; at + wanted.Length <= count; at++)
            {
                var matched = 0;
                while (matched < wanted.Length && data[at + matched] == wanted[matched])
                    matched++;
                if (matched == wanted.Length)
                    return at;
            }
            return -1;
        }
    }

    /// <summary>One connection. It cannot be used again after an exception.</summary>
    sealed class Connection : IDisposable
    {
        const int ConnectMs = 10000;
        readonly Socket socket;
        readonly Stream stream;
        readonly byte[] room = new byte[16384]; // for answers that are not larger
        int timeoutMs;
        volatile bool ended;

        Connection(Socket socket, Stream stream)
        {
            this.socket = socket;
            this.stream = stream;
        }

        public DateTime IdleSince { get; set; }

        /// <summary>Whether the manager has closed an idle connection, or the caller has ended its request.</summary>
        public bool Ended
        {
            get
            {
                if (ended)
                    return true;
                try
                {
                    return socket.Poll(0, SelectMode.SelectRead); // nothing can come but its end
                }
                catch (Exception fault) when (fault is SocketException || fault is ObjectDisposedException)
                {
                    return true;
                }
            }
        }

        public static Connection Open(Uri url)
        {
            SocketException last = null;
            IPAddress[] addresses;
            addresses = IPAddress.TryParse(url.DnsSafeHost, out var given)
                ? new[] { given }
                : Dns.GetHostAddresses(url.DnsSafeHost);
            foreach (var address in addresses)
            {
                var socket = new Socket(address.AddressFamily, SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
                try
                {
                    var connecting = socket.BeginConnect(new IPEndPoint(address, url.Port), null, null);
                    if (!connecting.AsyncWaitHandle.WaitOne(ConnectMs))
                        throw new SocketException((int)SocketError.TimedOut);
                    socket.EndConnect(connecting);
                    return new Connection(socket, Secured(url, new NetworkStream(socket, true)));
                }
                catch (SocketException fault)
                {
                    socket.Dispose();
                    last = fault;
                }
                catch
                {
                    socket.Dispose();
                    throw;
                }
            }
            throw last ?? new SocketException((int)SocketError.HostNotFound);
        }

        static Stream Secured(Uri url, Stream plain)
        {
            if (url.Scheme != Uri.UriSchemeHttps)
                return plain;
            var secured = new SslStream(plain);
            plain.ReadTimeout = plain.WriteTimeout = ConnectMs;
            secured.AuthenticateAsClient(url.DnsSafeHost);
            return secured;
        }

        public Answer Ask(byte[] request, int withinMs)
        {
            if (withinMs != timeoutMs)
                stream.ReadTimeout = stream.WriteTimeout = timeoutMs = withinMs;
            stream.Write(request, 0, request.Length);
            var reader = new AnswerReader(room);
            while (true)
            {
                var free = reader.Room();
                var answer = reader.Take(stream.Read(free.Array, free.Offset, free.Count));
                if (answer == null)
                    continue;
                answer.Reusable = reader.KeepAlive;
                return answer;
            }
        }

        public async Task<Answer> AskAsync(byte[] request, int timeoutMs)
        {
            // A stream has no time-out for asynchronous reads: the timer ends them.
            using (new System.Threading.Timer(_ => Dispose(), null, timeoutMs, System.Threading.Timeout.Infinite))
            {
                await stream.WriteAsync(request, 0, request.Length).ConfigureAwait(false);
                var reader = new AnswerReader(room);
                while (true)
                {
                    var free = reader.Room();
                    var read = await stream.ReadAsync(free.Array, free.Offset, free.Count).ConfigureAwait(false);
                    var answer = reader.Take(read);
                    if (answer == null)
                        continue;
                    answer.Reusable = reader.KeepAlive;
                    return answer;
                }
            }
        }

        /// <summary>
        /// Tells the manager that nobody waits any longer. A message that is already on its way still arrives, and is
        /// read: nothing is lost in between.
        /// </summary>
        public void EndRequest()
        {
            ended = true;
            try
            {
                socket.Shutdown(SocketShutdown.Send);
            }
            catch (Exception fault) when (fault is SocketException || fault is ObjectDisposedException)
            {
            }
        }

        public void Dispose()
        {
            stream.Dispose();
            socket.Dispose();
        }
    }
}
