// A client process of the benchmark: one role, with the same protocol as benchmarks/client_process.py.

using System;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Messaging;
using System.Threading;
using System.Threading.Tasks;

static class Bench
{
    static readonly byte[] Body = new byte[1024];

    static void Main(string[] arguments)
    {
        MessageQueue.LocalManager = arguments[1];
        var messages = int.Parse(arguments[2], CultureInfo.InvariantCulture);
        const string Warm = @".\private$\warm";
        using (var warm = MessageQueue.Exists(Warm) ? new MessageQueue(Warm) : MessageQueue.Create(Warm))
        {
            SendConcurrently(warm, 3000); // what runs often is compiled
            for (var number = 0; number < 500; number++)
                warm.Send(Made());
            for (var number = 0; number < 500; number++)
                warm.Receive();
            Events(warm, 500);
            warm.Prefetch = 100;
            for (var number = 0; number < 2500; number++)
                warm.Receive();
        }
        var queue = new MessageQueue(@".\private$\benchmark");
        queue.GetAllMessages(); // makes the connection
        Console.WriteLine("ready");
        Console.ReadLine();
        var process = Process.GetCurrentProcess();
        var cpu = process.TotalProcessorTime;
        var started = Now();
        switch (arguments[0])
        {
            case "send_one":
                for (var number = 0; number < messages; number++)
                    queue.Send(Made());
                break;
            case "receive_one":
                for (var number = 0; number < messages; number++)
                    queue.Receive(TimeSpan.Zero);
                break;
            case "consume":
                queue.Prefetch = 1000;
                for (var number = 0; number < messages; number++)
                    queue.Receive();
                queue.Close();
                break;
            case "aio_send":
                SendConcurrently(queue, messages);
                break;
            case "events":
                Events(queue, messages);
                break;
        }
        var ended = Now();
        process.Refresh();
        var used = (process.TotalProcessorTime - cpu).TotalSeconds;
        Console.WriteLine(string.Format(CultureInfo.InvariantCulture, "{{\"started\": {0}, \"ended\": {1}, \"cpu\": {2}}}", started, ended, used));
    }

    static void SendConcurrently(MessageQueue queue, int messages)
    {
        var left = messages;
        async Task Send()
        {
            while (Interlocked.Decrement(ref left) >= 0)
                await queue.SendAsync(Made());
        }

        Task.WaitAll(Enumerable.Range(0, 1000).Select(_ => Send()).ToArray());
    }

    static void Events(MessageQueue queue, int messages)
    {
        var done = new ManualResetEvent(false);
        queue.ReceiveCompleted += (sender, e) =>
        {
            queue.EndReceive(e.AsyncResult);
            if (--messages == 0)
                done.Set();
            else
                queue.BeginReceive();
        };
        queue.BeginReceive();
        done.WaitOne();
    }

    static Message Made()
    {
        return new Message { BodyStream = new MemoryStream(Body), Recoverable = true };
    }

    static double Now()
    {
        return (DateTime.UtcNow - new DateTime(1970, 1, 1, 0, 0, 0, DateTimeKind.Utc)).TotalSeconds;
    }
}
