// Request and reply: the client waits for the message that has the id of its request as correlation id. With --serve this
// program answers requests, without it asks one.

using System;
using System.Messaging;
using System.Threading;
using System.Threading.Tasks;

static class Program
{
    const string Requests = @".\private$\requests";
    const string Replies = @".\private$\replies";
    static readonly TimeSpan Patience = TimeSpan.FromSeconds(60);

    static async Task Main(string[] arguments)
    {
        using (var stop = new CancellationTokenSource())
        {
            Console.CancelKeyPress += (sender, e) =>
            {
                e.Cancel = true;
                stop.Cancel();
            };
            switch (arguments.Length > 0 ? arguments[0] : "")
            {
                case "--serve":
                    await Serve(stop.Token);
                    break;
                case "--demo":
                    var server = Serve(stop.Token);
                    await Ask(20);
                    stop.Cancel();
                    await server;
                    Console.WriteLine("20 doubled is " + answer);
                    break;
                default:
                    await Ask(20);
                    Console.WriteLine(answer);
                    break;
            }
        }
    }

    static int answer;

    static async Task Ask(int number)
    {
        using (var requests = Open(Requests))
        using (var replies = Open(Replies))
        {
            var request = new Message(number) { ResponseQueue = replies, TimeToBeReceived = Patience };
            await requests.SendAsync(request, "double it");
            answer = (int)replies.ReceiveByCorrelationId(request.Id, Patience).Body;
        }
    }

    static async Task Serve(CancellationToken stop)
    {
        using (var requests = Open(Requests))
        {
            try
            {
                while (true)
                {
                    var request = await requests.ReceiveAsync(stop);
                    await request.ResponseQueue.SendAsync(new Message((int)request.Body * 2) { CorrelationId = request.Id });
                }
            }
            catch (OperationCanceledException)
            {
                // A cancelled receive leaves its message in the queue.
            }
        }
    }

    static MessageQueue Open(string path)
    {
        var queue = MessageQueue.Exists(path) ? new MessageQueue(path) : MessageQueue.Create(path);
        queue.Formatter = new XmlMessageFormatter(new[] { typeof(int) });
        return queue;
    }
}
