using System;
using System.Messaging;

namespace MyProject
{
    // This class represents an object the following example
    // sends to a queue and receives from a queue.
    public class Order
    {
        public int OrderId;
        public DateTime OrderTime;
    }

    /// <summary>
    /// Provides a container class for the example.
    /// </summary>
    public class SendObject
    {
        public static void Main()
        {
            if (!MessageQueue.Exists(".\\Private$\\myQueue"))
            {
                MessageQueue.Create(".\\Private$\\myQueue");
            }

            SendObject myNewQueue = new SendObject();
            myNewQueue.SendMessage();
            myNewQueue.ReceiveMessage();

            MessageQueue.Delete(".\\Private$\\myQueue");
            return;
        }

        public void SendMessage()
        {
            Order sentOrder = new Order();
            sentOrder.OrderId = 3;
            sentOrder.OrderTime = new DateTime(2004, 5, 6, 7, 8, 9);

            // Connect to a queue on the local computer.
            MessageQueue myQueue = new MessageQueue(".\\Private$\\myQueue");

            // Send the Order to the queue.
            myQueue.Send(sentOrder, "Order " + sentOrder.OrderId);
            return;
        }

        public void ReceiveMessage()
        {
            MessageQueue myQueue = new MessageQueue(".\\Private$\\myQueue");

            // Set the formatter to indicate body contains an Order.
            myQueue.Formatter = new XmlMessageFormatter(new Type[] { typeof(MyProject.Order) });

            try
            {
                // Receive and format the message.
                Message myMessage = myQueue.Receive(new TimeSpan(0, 0, 30));
                Order myOrder = (Order)myMessage.Body;

                Console.WriteLine("Label: " + myMessage.Label);
                Console.WriteLine("Order ID: " + myOrder.OrderId.ToString());
                Console.WriteLine("Sent: " + myOrder.OrderTime.ToString("s"));
                myQueue.Receive(new TimeSpan(0, 0, 0));
            }
            catch (MessageQueueException e)
            {
                // Handle no message arriving in the queue.
                if (e.MessageQueueErrorCode == MessageQueueErrorCode.IOTimeout)
                {
                    Console.WriteLine("No message arrived in queue.");
                }
            }
            catch (InvalidOperationException e)
            {
                Console.WriteLine(e.Message);
            }
            return;
        }
    }
}
