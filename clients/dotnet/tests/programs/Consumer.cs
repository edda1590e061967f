using System;
using System.Messaging;
using System.Threading;

namespace MyProject
{
    /// <summary>
    /// Consumes messages asynchronously, with the ReceiveCompleted event.
    /// </summary>
    public class Consumer
    {
        // Define static class members.
        static ManualResetEvent signal = new ManualResetEvent(false);
        static int count = 0;

        public static void Main()
        {
            MessageQueue myQueue = MessageQueue.Create(".\\private$\\consumed");
            myQueue.Formatter = new XmlMessageFormatter(new Type[] { typeof(String) });

            // Add an event handler for the ReceiveCompleted event.
            myQueue.ReceiveCompleted += new ReceiveCompletedEventHandler(MyReceiveCompleted);

            // Begin the asynchronous receive operation.
            myQueue.BeginReceive();

            for (int i = 1; i <= 10; i++)
                myQueue.Send("Message " + i);

            signal.WaitOne(TimeSpan.FromSeconds(60));
            Console.WriteLine("Received " + count + " messages");
            MessageQueue.Delete(".\\private$\\consumed");
        }

        // Provides an event handler for the ReceiveCompleted event.
        private static void MyReceiveCompleted(Object source, ReceiveCompletedEventArgs asyncResult)
        {
            try
            {
                // Connect to the queue.
                MessageQueue mq = (MessageQueue)source;

                // End the asynchronous receive operation.
                Message m = mq.EndReceive(asyncResult.AsyncResult);

                count += 1;
                if (count == 1 || count == 10)
                    Console.WriteLine((string)m.Body);
                if (count == 10)
                    signal.Set();
                else
                    mq.BeginReceive(); // Restart the asynchronous receive operation.
            }
            catch (MessageQueueException e)
            {
                Console.WriteLine(e.MessageQueueErrorCode);
            }
        }
    }
}
