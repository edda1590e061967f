using System;
using System.Messaging;

namespace MyProject
{
    /// <summary>
    /// Reads what a queue keeps in its journal, and an acknowledgment.
    /// </summary>
    public class JournalReader
    {
        public static void Main()
        {
            MessageQueue queue = MessageQueue.Create(@".\Private$\journaled");
            MessageQueue admin = MessageQueue.Create(@".\Private$\administration");
            queue.UseJournalQueue = true;

            Message message = new Message();
            message.Body = "Journaled";
            message.Label = "for the journal";
            message.AdministrationQueue = admin;
            message.AcknowledgeType = AcknowledgeTypes.PositiveReceive | AcknowledgeTypes.PositiveArrival;
            queue.Send(message);
            queue.Receive(TimeSpan.FromSeconds(30));

            MessageQueue journal = new MessageQueue(@".\Private$\journaled\Journal$");
            journal.Formatter = new XmlMessageFormatter(new Type[] { typeof(String) });
            Message kept = journal.Receive(TimeSpan.FromSeconds(30));
            Console.WriteLine(kept.Label + ": " + kept.Body.ToString());

            admin.MessageReadPropertyFilter.CorrelationId = true;
            for (int i = 0; i < 2; i++)
            {
                Message acknowledgment = admin.Receive(TimeSpan.FromSeconds(30));
                Console.WriteLine(acknowledgment.MessageType + " " + acknowledgment.Acknowledgment + " " + (acknowledgment.CorrelationId == message.Id));
            }
            MessageQueue.Delete(queue.Path);
            MessageQueue.Delete(admin.Path);
        }
    }
}
