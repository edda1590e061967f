using System;
using System.Messaging;
using System.Threading;

namespace MyProject
{
    /// <summary>
    /// Sends a request, and waits for the reply that has its id as correlation id.
    /// </summary>
    public class RequestReply
    {
        static MessageQueue requests;

        public static void Main()
        {
            requests = MessageQueue.Create(".\\private$\\requests");
            MessageQueue replies = MessageQueue.Create(".\\private$\\replies");
            replies.Formatter = requests.Formatter = new BinaryMessageFormatter();

            Thread server = new Thread(Serve);
            server.Start();

            Message request = new Message(20, new BinaryMessageFormatter());
            request.ResponseQueue = replies;
            request.Label = "double it";
            requests.Send(request);

            replies.MessageReadPropertyFilter.CorrelationId = true;
            Message reply = replies.ReceiveByCorrelationId(request.Id, TimeSpan.FromSeconds(60));
            Console.WriteLine("The reply is " + (int)reply.Body);
            Console.WriteLine("It answers the request: " + (reply.CorrelationId == request.Id));

            server.Join();
            MessageQueue.Delete(requests.Path);
            MessageQueue.Delete(replies.Path);
        }

        static void Serve()
        {
            Message request = requests.Receive(TimeSpan.FromSeconds(60));
            Message reply = new Message((int)request.Body * 2, new BinaryMessageFormatter());
            reply.CorrelationId = request.Id;
            request.ResponseQueue.Send(reply);
        }
    }
}
