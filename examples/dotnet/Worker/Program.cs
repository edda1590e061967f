// A worker: takes orders out of a transactional queue, and forwards each in the same transaction. Start as many as you
// like; a worker that dies gives its message back. Ctrl+C ends it after the message in hand.

using System;
using System.Messaging;
using System.Threading;

public class Order
{
    public int Id;
    public string Customer;
}

static class Program
{
    const string Orders = @".\private$\orders";
    const string Done = @".\private$\done";
    static readonly TimeSpan Step = TimeSpan.FromSeconds(1);

    static void Main(string[] arguments)
    {
        var stop = new ManualResetEvent(false);
        Console.CancelKeyPress += (sender, e) =>
        {
            e.Cancel = true;
            stop.Set();
        };
        var most = int.MaxValue;
        if (arguments.Length > 0 && arguments[0] == "--demo")
        {
            most = 10;
            SendOrders(most);
        }

        using (var orders = Open(Orders))
        using (var done = Open(Done))
        {
            for (var count = 0; count < most && !stop.WaitOne(0);)
            {
                if (Work(orders, done))
                    count++;
            }
            Console.WriteLine($"{done.GetAllMessages().Length} orders done");
        }
    }

    static bool Work(MessageQueue orders, MessageQueue done)
    {
        using (var transaction = new MessageQueueTransaction())
        {
            try
            {
                transaction.Begin();
                var message = orders.Receive(Step, transaction);
                var order = (Order)message.Body;
                done.Send(order, $"order {order.Id} of {order.Customer}", transaction);
                transaction.Commit();
                return true;
            }
            catch (MessageQueueException fault) when (fault.MessageQueueErrorCode == MessageQueueErrorCode.IOTimeout)
            {
                return false; // nothing to do
            }
            catch (MessageQueueException fault)
            {
                Console.Error.WriteLine($"{fault.MessageQueueErrorCode}: {fault.Message}");
                Thread.Sleep(Step); // the manager may be restarting; the message is back in its queue
                return false;
            }
        } // a transaction that was not committed is aborted here
    }

    static MessageQueue Open(string path)
    {
        var queue = MessageQueue.Exists(path) ? new MessageQueue(path) : MessageQueue.Create(path, true);
        queue.Formatter = new XmlMessageFormatter(new[] { typeof(Order) });
        return queue;
    }

    static void SendOrders(int count)
    {
        using (var orders = Open(Orders))
        {
            for (var id = 1; id <= count; id++)
                orders.Send(new Order { Id = id, Customer = "Ada" }, MessageQueueTransactionType.Single);
        }
    }
}
