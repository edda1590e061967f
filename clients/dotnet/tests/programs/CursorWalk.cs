using System;
using System.Messaging;

namespace MyProject
{
    /// <summary>
    /// Walks through a queue with a cursor, and with an enumerator.
    /// </summary>
    public class CursorWalk
    {
        public static void Main()
        {
            MessageQueue queue = MessageQueue.Create(".\\private$\\walked");
            queue.Formatter = new XmlMessageFormatter(new Type[] { typeof(String) });
            queue.Send(new Message("low") { Priority = MessagePriority.Lowest });
            queue.Send(new Message("high") { Priority = MessagePriority.Highest });
            queue.Send("normal");

            Cursor cursor = queue.CreateCursor();
            Message message = PeekWithoutTimeout(queue, cursor, PeekAction.Current);
            while (message != null)
            {
                Console.WriteLine(message.Body.ToString());
                message = PeekWithoutTimeout(queue, cursor, PeekAction.Next);
            }
            cursor.Close();

            MessageEnumerator enumerator = queue.GetMessageEnumerator2();
            while (enumerator.MoveNext())
            {
                if (enumerator.Current.Body.ToString() == "normal")
                    enumerator.RemoveCurrent();
            }
            enumerator.Close();
            Console.WriteLine("Left: " + queue.GetAllMessages().Length);
            MessageQueue.Delete(queue.Path);
        }

        protected static Message PeekWithoutTimeout(MessageQueue q, Cursor cursor, PeekAction action)
        {
            Message ret = null;
            try
            {
                ret = q.Peek(new TimeSpan(1), cursor, action);
            }
            catch (MessageQueueException mqe)
            {
                if (mqe.MessageQueueErrorCode != MessageQueueErrorCode.IOTimeout)
                {
                    throw;
                }
            }
            return ret;
        }
    }
}
