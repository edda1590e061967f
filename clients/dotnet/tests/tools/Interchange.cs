// Reads what the test in Python has sent, prints it, and sends messages of each kind back.

using System;
using System.IO;
using System.Messaging;

namespace Shop
{
    [Serializable]
    public class Order
    {
        public int Id;
        public string Customer;
    }
}

static class Interchange
{
    static void Main()
    {
        var patience = TimeSpan.FromSeconds(60);
        var inbox = new MessageQueue(@".\private$\to_dotnet") { Formatter = new XmlMessageFormatter(new[] { typeof(string) }) };
        inbox.MessageReadPropertyFilter.SetAll();
        var message = inbox.Receive(patience);
        var text = inbox.Receive(patience);
        text.Formatter = new ActiveXMessageFormatter();

        var queue = MessageQueue.Create(@".\private$\from_dotnet");
        var order = new Shop.Order { Id = 7, Customer = "Ada & Grace" };
        var sent = new Message(order)
        {
            Label = "xml",
            Priority = MessagePriority.Highest,
            AppSpecific = 5,
            Extension = new byte[] { 3 },
            Recoverable = true,
            CorrelationId = message.Id,
            ResponseQueue = message.ResponseQueue,
        };
        queue.Send(sent);
        queue.Send(new Message(order, new BinaryMessageFormatter()) { Label = "binary" });
        queue.Formatter = new ActiveXMessageFormatter();
        queue.Send("Grüße", "activex text");
        queue.Send(-5, "activex number");
        queue.Send(129.95m, "activex money");
        queue.Send(new Message("x") { Label = "late", UseDeadLetterQueue = true, TimeToBeReceived = TimeSpan.Zero });
        new MessageQueue(@".\Deadletter$").Peek(patience);

        var id = sent.Id.Split('\\');
        long Seconds(DateTime time) => new DateTimeOffset(time).ToUnixTimeSeconds();
        Console.WriteLine(
            $"{{\"id\": \"{message.Id.Replace("\\", "\\\\")}\", \"label\": \"{message.Label}\", \"priority\": {(int)message.Priority}, "
            + $"\"tag\": {message.AppSpecific}, \"correlation\": \"{message.CorrelationId.Replace("\\", "\\\\")}\", "
            + $"\"extension\": \"{Convert.ToBase64String(message.Extension)}\", \"text\": [\"{message.Body}\", \"{text.Body}\"], "
            + $"\"sent\": {Seconds(message.SentTime)}, \"now\": {Seconds(DateTime.Now)}, \"sent_id\": \"{{{id[0]}}}\\\\{id[1]}\"}}");
    }
}
