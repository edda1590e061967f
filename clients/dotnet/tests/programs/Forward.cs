using System;
using System.Messaging;

namespace MyProject
{
    /// <summary>
    /// Receives messages in a transaction, and forwards them in the same transaction.
    /// </summary>
    public class Forward
    {
        public static void Main()
        {
            string[] paths = { ".\\private$\\incoming", ".\\private$\\outgoing" };
            foreach (string path in paths)
            {
                if (!MessageQueue.Exists(path))
                    MessageQueue.Create(path, true);
            }

            MessageQueue incoming = new MessageQueue(paths[0]);
            MessageQueue outgoing = new MessageQueue(paths[1]);
            incoming.Formatter = outgoing.Formatter = new XmlMessageFormatter(new String[] { "System.String,mscorlib" });

            incoming.Send("First message", MessageQueueTransactionType.Single);
            incoming.Send("Second message", MessageQueueTransactionType.Single);

            for (int attempt = 0; attempt < 3; attempt++)
            {
                MessageQueueTransaction transaction = new MessageQueueTransaction();
                try
                {
                    transaction.Begin();
                    Message message = incoming.Receive(TimeSpan.FromSeconds(30), transaction);
                    message.Label = "forwarded";
                    outgoing.Send(message, transaction);
                    if (attempt == 0)
                        throw new System.Exception("the work failed");
                    transaction.Commit();
                    Console.WriteLine("Forwarded: " + message.Body.ToString());
                }
                catch (System.Exception e)
                {
                    transaction.Abort();
                    Console.WriteLine("Rolled back: " + e.Message);
                }
                finally
                {
                    transaction.Dispose();
                }
            }

            foreach (Message message in outgoing)
                Console.WriteLine(message.Label + ": " + message.Body.ToString());

            foreach (string path in paths)
                MessageQueue.Delete(path);
        }
    }
}
