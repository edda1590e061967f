// A consumer of the ledger: forwards each message in a transaction, until it is killed or the first queue stays empty.

using System;
using System.Messaging;
using System.Threading;

static class LedgerConsumer
{
    static void Main(string[] arguments)
    {
        var source = new MessageQueue(@".\private$\ledger_in");
        var target = new MessageQueue(@".\private$\ledger_out");
        var wait = TimeSpan.FromSeconds(double.Parse(arguments[0], System.Globalization.CultureInfo.InvariantCulture));
        var committed = 0;
        var failed = 0;
        var chance = new Random();
        while (true)
        {
            using (var transaction = new MessageQueueTransaction())
            {
                try
                {
                    transaction.Begin();
                    var message = source.Receive(wait, transaction);
                    target.Send(message, transaction);
                    if (chance.Next(50) == 0)
                        transaction.Abort();
                    else
                        transaction.Commit();
                    committed++;
                }
                catch (MessageQueueException fault) when (fault.MessageQueueErrorCode == MessageQueueErrorCode.IOTimeout)
                {
                    break;
                }
                catch (MessageQueueException)
                {
                    failed++;
                    Thread.Sleep(50);
                }
            }
        }
        Console.WriteLine($"{committed} {failed}");
    }
}
