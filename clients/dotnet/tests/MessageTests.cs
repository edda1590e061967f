// Sends and reads: properties, formatters, time-outs, ids, cursors, journals and dead letters, asynchronous reads.

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Messaging;
using System.Runtime.Serialization;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

[Serializable]
public class Order
{
    public int Id;
    public string Customer;
    public List<string> Lines = new List<string>();
}

class MessageTests
{
    static readonly TimeSpan Patience = TimeSpan.FromSeconds(30);

    public void An_object_is_sent_with_a_label()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.Formatter = new XmlMessageFormatter(new[] { typeof(Order), typeof(string) });
            queue.Send(new Order { Id = 7, Customer = "Grüße, 世界 😀", Lines = { "a", "b" } }, "order 7");
            queue.Send("text");
            var message = queue.Receive();
            var order = (Order)message.Body;
            Check.Equal("order 7", message.Label);
            Check.Equal(7, order.Id);
            Check.Equal("Grüße, 世界 😀", order.Customer);
            Check.Equal(2, order.Lines.Count);
            Check.Equal(MessageType.Normal, message.MessageType);
            Check.Equal("text", (string)queue.Receive(Patience).Body);
        }
    }

    public void All_properties_arrive()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        using (var answers = queues.Create())
        {
            var id = Guid.NewGuid() + @"\77";
            var sent = new Message("x")
            {
                Label = "täg",
                Priority = MessagePriority.Highest,
                Recoverable = true,
                AppSpecific = -5,
                CorrelationId = id,
                ResponseQueue = answers,
                AdministrationQueue = answers,
                AcknowledgeType = AcknowledgeTypes.FullReceive,
                TimeToBeReceived = TimeSpan.FromMinutes(7),
                TimeToReachQueue = TimeSpan.FromMinutes(5),
                UseDeadLetterQueue = true,
                UseJournalQueue = true,
                Extension = new byte[] { 1, 2, 3 },
                BodyType = 0,
            };
            Check.Throws<InvalidOperationException>(() => sent.Id.ToString());
            queue.Send(sent);
            var read = queue.Peek(Patience);
            Check.Equal(sent.Id, read.Id);
            Check.Equal("täg", read.Label);
            Check.Equal(MessagePriority.Highest, read.Priority);
            Check.True(read.Recoverable && read.UseDeadLetterQueue && read.UseJournalQueue);
            Check.Equal(-5, read.AppSpecific);
            Check.Equal(id, read.CorrelationId);
            Check.Equal(AcknowledgeTypes.FullReceive, read.AcknowledgeType);
            Check.Equal(TimeSpan.FromMinutes(7), read.TimeToBeReceived);
            Check.Equal(TimeSpan.FromMinutes(5), read.TimeToReachQueue);
            Check.Same(new byte[] { 1, 2, 3 }, read.Extension);
            Check.Equal("alpha", read.SourceMachine);
            Check.True(Math.Abs((read.SentTime - DateTime.Now).TotalMinutes) < 5, "SentTime");
            Check.True(Math.Abs((read.ArrivedTime - DateTime.Now).TotalMinutes) < 5, "ArrivedTime");
            Check.Equal(@"private$\" + answers.QueueName.Split('\\')[1], read.ResponseQueue.QueueName);
            Check.True(read.DestinationQueue != null && read.LookupId > 0);
            Check.True(!read.IsFirstInTransaction && read.TransactionId == "");
            var named = new MessageQueue($@"FormatName:DIRECT=OS:{Environment.MachineName}\{answers.QueueName}");
            queue.Send(new Message("named") { ResponseQueue = named, Priority = MessagePriority.Lowest });
            var other = queue.GetAllMessages().Last();
            Check.Equal($@"FormatName:DIRECT=OS:alpha\{answers.QueueName}", other.ResponseQueue.Path);
            queue.ReceiveById(other.Id);
            read.ResponseQueue.Send("answer");
            Check.Equal("answer", (string)answers.Receive(Patience).Body);
            queue.Receive();
            answers.MessageReadPropertyFilter.SetAll();
            var acknowledgment = answers.Receive(Patience);
            Check.Equal(MessageType.Acknowledgment, acknowledgment.MessageType);
            Check.Equal(Acknowledgment.Receive, acknowledgment.Acknowledgment);
            Check.Equal(sent.Id, acknowledgment.CorrelationId);
        }
    }

    public void A_property_that_was_not_asked_for_raises()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.MessageReadPropertyFilter.SetDefaults();
            queue.Send("x", "label");
            var message = queue.Receive();
            Check.Equal("label", message.Label);
            Check.Throws<InvalidOperationException>(() => message.SentTime.ToString());
            Check.Throws<InvalidOperationException>(() => message.CorrelationId.ToString());
            queue.MessageReadPropertyFilter.ClearAll();
            queue.Send("x");
            Check.Throws<InvalidOperationException>(() => queue.Receive().Body.ToString());
        }
    }

    public void The_defaults_to_send_are_used_for_objects()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.DefaultPropertiesToSend = new DefaultPropertiesToSend { Label = "given", Recoverable = true, AppSpecific = 3, Priority = MessagePriority.Low };
            queue.Send("x");
            queue.Send(new Message("y"));
            var first = queue.PeekById(queue.GetAllMessages().First(each => each.Label == "given").Id);
            Check.True(first.Recoverable && first.AppSpecific == 3 && first.Priority == MessagePriority.Low);
            Check.Equal("", queue.GetAllMessages().First(each => each.AppSpecific == 0).Label);
        }
    }

    public void Binary_bodies_have_only_allowed_types()
    {
        if (Environment.Version.Major >= 9)
            return; // BinaryFormatter has become a package
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.Formatter = new BinaryMessageFormatter();
            queue.Send(new Dictionary<string, List<int>> { { "a", new List<int> { 1, 2 } } });
            var message = queue.Receive();
            Check.Equal(768, message.BodyType);
            Check.Equal(2, ((Dictionary<string, List<int>>)message.Body)["a"][1]);

            queue.Send(new Order { Id = 3 });
            message = queue.Receive();
            Check.True(Check.Throws<SerializationException>(() => message.Body.ToString()).Message.Contains("Allow(typeof(Order))"));
            BinaryMessageFormatter.Allow(typeof(Order));
            Check.Equal(3, ((Order)message.Body).Id);
            queue.Send(new[] { new Order { Id = 4 } });
            Check.Equal(4, ((Order[])queue.Receive().Body)[0].Id);
        }
    }

    public void Bodies_of_every_formatter_are_read_again()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.Formatter = new ActiveXMessageFormatter();
            var values = new object[]
            {
                "Grüße", true, (byte)1, (sbyte)-1, (short)-2, (ushort)2, -3, 3u, -4L, 4UL, 1.5f, 2.5, 129.95m,
                new DateTime(2020, 2, 29, 12, 0, 0), Guid.NewGuid(),
            };
            foreach (var value in values)
            {
                queue.Send(value);
                Check.Equal(value, queue.Receive().Body);
            }
            queue.Send(new byte[] { 9, 8 });
            Check.Same(new byte[] { 9, 8 }, (byte[])queue.Receive().Body);
            Check.Throws<InvalidOperationException>(() => queue.Send(new Order()));

            queue.Formatter = new XmlMessageFormatter(new[] { "System.String" });
            queue.Send(5);
            var message = queue.Receive();
            Check.Throws<InvalidOperationException>(() => message.Body.ToString());
            message.Formatter = new XmlMessageFormatter(new[] { typeof(string), typeof(int) });
            Check.Equal(5, (int)message.Body);
            message.Formatter = new XmlMessageFormatter();
            queue.Send(new Message { BodyStream = new MemoryStream(Encoding.UTF8.GetBytes("plain")) });
            message = queue.Receive();
            Check.Equal("plain", new StreamReader(message.BodyStream).ReadToEnd());
            Check.Throws<InvalidOperationException>(() => message.Body.ToString());
        }
    }

    public void A_message_that_was_read_is_sent_again_and_changed()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.Send(new Message("x") { Label = "first", AppSpecific = 4, Extension = new byte[] { 5 } });
            var message = queue.Receive();
            queue.Send(message); // neither body nor label was looked at
            message = queue.Receive();
            Check.Equal("first", message.Label);
            Check.Equal("x", (string)message.Body);
            message.Body = "y";
            Check.Equal("y", (string)message.Body);
            message.Label = "second";
            queue.Send(message);
            message = queue.Receive();
            Check.Equal("second y 4 5", $"{message.Label} {message.Body} {message.AppSpecific} {message.Extension[0]}");
            message.BodyStream = new MemoryStream(Encoding.UTF8.GetBytes("<string>z</string>"));
            Check.Equal("z", (string)message.Body);
            queue.Send(message);
            Check.Equal("z", (string)queue.Receive().Body);
        }
    }

    public void A_receive_times_out()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            Check.Fails(MessageQueueErrorCode.IOTimeout, () => queue.Receive(TimeSpan.Zero));
            Check.Fails(MessageQueueErrorCode.IOTimeout, () => queue.Peek(TimeSpan.FromMilliseconds(50)));
            Check.Throws<ArgumentException>(() => queue.Receive(TimeSpan.FromSeconds(-1)));
        }
    }

    public void Messages_are_read_by_id_correlation_and_lookup_id()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            var sent = Enumerable.Range(0, 5).Select(number => new Message("m" + number) { CorrelationId = $"{Guid.Empty}\\{number + 1}" }).ToList();
            sent.ForEach(queue.Send);
            Check.Equal("m3", (string)queue.PeekById(sent[3].Id).Body);
            Check.Equal("m3", (string)queue.ReceiveById(sent[3].Id).Body);
            Check.Throws<InvalidOperationException>(() => queue.ReceiveById(sent[3].Id));
            Check.Fails(MessageQueueErrorCode.IOTimeout, () => queue.ReceiveById(sent[3].Id, TimeSpan.FromMilliseconds(50)));
            Check.Equal("m1", (string)queue.PeekByCorrelationId(sent[1].CorrelationId).Body);
            Check.Equal("m1", (string)queue.ReceiveByCorrelationId(sent[1].CorrelationId).Body);
            Check.Throws<InvalidOperationException>(() => queue.ReceiveByCorrelationId(sent[1].CorrelationId));
            Check.Throws<FormatException>(() => queue.ReceiveById("nonsense"));
            var first = queue.Peek().LookupId;
            Check.Equal("m0", (string)queue.PeekByLookupId(first).Body);
            Check.Equal("m2", (string)queue.PeekByLookupId(MessageLookupAction.Next, first).Body);
            Check.Equal("m4", (string)queue.ReceiveByLookupId(MessageLookupAction.Last, 0, (MessageQueueTransaction)null).Body);
            Check.Equal("m0", (string)queue.ReceiveByLookupId(first).Body);
            Check.Throws<InvalidOperationException>(() => queue.ReceiveByLookupId(first));
            Check.Equal(1, queue.GetAllMessages().Length);
        }
    }

    public void A_receive_by_correlation_waits_for_the_answer()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            var wanted = Guid.NewGuid() + @"\5";
            var waiting = Task.Run(() => queue.ReceiveByCorrelationId(wanted, Patience));
            queue.Send("another");
            queue.Send(new Message("answer") { CorrelationId = wanted });
            Check.Equal("answer", (string)waiting.Result.Body);
        }
    }

    public void One_send_reaches_several_queues_and_other_machines()
    {
        using (var queues = new Queues())
        using (var first = queues.Create())
        using (var second = queues.Create())
        {
            var both = new MessageQueue($@"FormatName:DIRECT=OS:.\{first.QueueName},DIRECT=OS:.\{second.QueueName}");
            both.Send("x");
            Check.Equal("x", (string)first.Receive(Patience).Body);
            Check.Equal("x", (string)second.Receive(Patience).Body);
            var elsewhere = new Message("x");
            new MessageQueue(@"elsewhere\private$\orders").Send(elsewhere);
            new MessageQueue(@"FormatName:DIRECT=OS:elsewhere\private$\orders").Send("y");
            Check.True(elsewhere.Id.Length > 38);
            Check.Fails(MessageQueueErrorCode.QueueNotFound, () => new MessageQueue(@"elsewhere\private$\orders").Receive(TimeSpan.Zero));
        }
    }

    public void A_message_that_is_gone_was_received_already()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.Send("x");
            var walk = queue.GetMessageEnumerator2();
            var cursor = queue.CreateCursor();
            Check.True(walk.MoveNext());
            queue.Peek(Patience, cursor, PeekAction.Current);
            queue.Receive();
            Check.Fails(MessageQueueErrorCode.MessageAlreadyReceived, () => walk.RemoveCurrent());
            Check.Fails(MessageQueueErrorCode.MessageAlreadyReceived, () => queue.Peek(Patience, cursor, PeekAction.Current));
            Check.Fails(MessageQueueErrorCode.MessageAlreadyReceived, () => queue.Receive(Patience, cursor));
        }
    }

    public void A_cursor_walks_and_takes()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            foreach (var each in new[] { "a", "b", "c" })
                queue.Send(each);
            var cursor = queue.CreateCursor();
            Check.Fails(MessageQueueErrorCode.IllegalCursorAction, () => queue.Peek(TimeSpan.Zero, cursor, PeekAction.Next));
            Check.Equal("a", (string)queue.Peek(Patience, cursor, PeekAction.Current).Body);
            Check.Equal("a", (string)queue.Peek(Patience, cursor, PeekAction.Current).Body);
            Check.Equal("b", (string)queue.Peek(Patience, cursor, PeekAction.Next).Body);
            Check.Equal("b", (string)queue.Receive(Patience, cursor).Body);
            Check.Equal("c", (string)queue.Peek(Patience, cursor, PeekAction.Current).Body);
            Check.Fails(MessageQueueErrorCode.IOTimeout, () => queue.Peek(TimeSpan.FromMilliseconds(20), cursor, PeekAction.Next));
            var waiting = Task.Run(() => queue.Peek(Patience, cursor, PeekAction.Next));
            queue.Send("d");
            Check.Equal("d", (string)waiting.Result.Body);
            cursor.Close();
            Check.Throws<ObjectDisposedException>(() => queue.Peek(TimeSpan.Zero, cursor, PeekAction.Current));
        }
    }

    public void An_enumerator_walks_and_removes()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            for (var number = 0; number < 250; number++)
                queue.Send(new Message(number.ToString()) { Priority = (MessagePriority)(number % 3) });
            Check.Same(queue.GetAllMessages().Select(each => each.Id).ToArray(), queue.Cast<Message>().Select(each => each.Id).ToArray());
            var walk = queue.GetMessageEnumerator2();
            Check.Throws<InvalidOperationException>(() => walk.Current.ToString());
            var removed = 0;
            while (walk.MoveNext())
            {
                if (int.Parse((string)walk.Current.Body) % 2 == 0)
                {
                    walk.RemoveCurrent();
                    removed++;
                }
            }
            Check.Equal(125, removed);
            Check.Equal(125, queue.GetAllMessages().Length);
            queue.Purge();
            Check.Equal(0, queue.GetAllMessages().Length);
            Check.True(!walk.MoveNext(TimeSpan.FromMilliseconds(20)));
        }
    }

    public void A_journal_and_dead_letters_are_read()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.UseJournalQueue = true;
            queue.Send("kept", "in the journal");
            queue.Receive();
            using (var journal = new MessageQueue(queue.Path + @"\Journal$"))
                Check.Equal("in the journal", journal.Receive(Patience).Label);
            using (var dead = new MessageQueue(@".\Deadletter$"))
            {
                dead.Purge();
                dead.MessageReadPropertyFilter.SetAll();
                queue.Send(new Message("late") { Label = "late", UseDeadLetterQueue = true, TimeToBeReceived = TimeSpan.FromMilliseconds(1) });
                var died = dead.Receive(Patience);
                Check.Equal("late", died.Label);
                Check.Equal(Acknowledgment.ReceiveTimeout, died.Acknowledgment);
            }
            Check.True(new MessageQueue(@".\XactDeadletter$").GetAllMessages() != null);
            Check.True(new MessageQueue(@".\Journal$").GetAllMessages() != null);
        }
    }

    public void A_subqueue_is_read()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create(true))
        {
            queue.Send("poisoned", MessageQueueTransactionType.Single);
            using (var client = new System.Net.WebClient())
            {
                client.Headers["Content-Type"] = "application/json";
                client.UploadString($"{MessageQueue.LocalManager}/api/v1/queues/{queue.QueueName.Replace('\\', '/')}", "PATCH", "{\"abort_limit\": 1}");
            }
            for (var abort = 0; abort < 2 && queue.GetAllMessages().Length > 0; abort++)
            {
                using (var transaction = new MessageQueueTransaction())
                {
                    transaction.Begin();
                    queue.Receive(Patience, transaction);
                }
            }
            using (var subqueue = new MessageQueue(queue.Path + ";poison") { Formatter = queue.Formatter })
                Check.Equal("poisoned", (string)subqueue.Receive(Patience).Body);
            using (var subqueue = new MessageQueue(@"FormatName:DIRECT=OS:.\" + queue.QueueName + ";poison"))
                Check.Fails(MessageQueueErrorCode.IOTimeout, () => subqueue.Receive(TimeSpan.Zero));
            Check.Equal(0, queue.GetAllMessages().Length);
        }
    }

    public void Begin_and_end_receive()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            var state = new object();
            var called = new ManualResetEvent(false);
            var result = queue.BeginReceive(Patience, state, each => called.Set());
            Check.True(!result.IsCompleted);
            queue.Send("x");
            Check.True(called.WaitOne(Patience));
            Check.Equal("x", (string)queue.EndReceive(result).Body);
            Check.True(result.AsyncState == state && result.AsyncWaitHandle.WaitOne(Patience));
            var late = queue.BeginPeek(TimeSpan.FromMilliseconds(10));
            Check.Fails(MessageQueueErrorCode.IOTimeout, () => queue.EndPeek(late));
        }
    }

    public async Task Who_denies_shared_receive_reads_alone()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create(true))
        {
            foreach (var each in new[] { "a", "b", "c", "d", "e", "f" })
                queue.Send(each, MessageQueueTransactionType.Single);
            using (var own = new MessageQueue(queue.Path, true) { Formatter = queue.Formatter })
            {
                Check.Equal("a", (string)own.Receive(Patience).Body);
                Check.Fails(MessageQueueErrorCode.SharingViolation, () => queue.Receive(TimeSpan.Zero));
                using (var transaction = new MessageQueueTransaction())
                {
                    transaction.Begin();
                    Check.Equal("b", (string)own.Receive(Patience, transaction).Body);
                    transaction.Commit();
                }
                Check.Equal("c", (string)(await own.ReceiveAsync(Patience)).Body);
                var walk = own.GetMessageEnumerator2();
                Check.True(walk.MoveNext());
                Check.Equal("d", (string)walk.RemoveCurrent().Body);
                own.Prefetch = 2;
                Check.Equal("e", (string)own.Receive(Patience).Body);
            }
            Check.Equal("f", (string)queue.Receive(Patience).Body);
        }
    }

    public void Events_consume_a_queue()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            var seen = new List<string>();
            var done = new ManualResetEvent(false);
            queue.PeekCompleted += (sender, e) =>
            {
                seen.Add("peeked " + e.Message.Body);
                ((MessageQueue)sender).BeginReceive();
            };
            queue.ReceiveCompleted += (sender, e) =>
            {
                seen.Add((string)((MessageQueue)sender).EndReceive(e.AsyncResult).Body);
                if (seen.Count == 11)
                    done.Set();
                else
                    queue.BeginReceive();
            };
            queue.BeginPeek();
            for (var number = 0; number < 10; number++)
                queue.Send(number.ToString());
            Check.True(done.WaitOne(Patience));
            Check.Same(new[] { "peeked 0" }.Concat(Enumerable.Range(0, 10).Select(each => each.ToString())).ToArray(), seen.ToArray());
        }
    }

    public async Task A_cancelled_receive_loses_nothing()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            for (var round = 0; round < 30; round++)
            {
                using (var cancellation = new CancellationTokenSource())
                {
                    var receiving = queue.ReceiveAsync(cancellation.Token);
                    var sending = queue.SendAsync("x");
                    if (round % 3 == 0)
                        await Task.Delay(round % 5);
                    cancellation.Cancel();
                    await sending;
                    try
                    {
                        Check.Equal("x", (string)(await receiving).Body);
                    }
                    catch (OperationCanceledException)
                    {
                        Check.Equal("x", (string)(await queue.ReceiveAsync(Patience)).Body);
                    }
                }
            }
            await queue.SendAsync("peeked", "label");
            Check.Equal("label", (await queue.PeekAsync(Patience)).Label);
        }
    }

    public void Close_ends_reads_that_wait()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            var waiting = Task.Run(() => queue.Receive());
            var begun = queue.BeginReceive();
            Check.True(SpinWait.SpinUntil(() => Readers(queue) >= 2, Patience));
            queue.Close();
            Check.Fails(MessageQueueErrorCode.OperationCanceled, () => queue.EndReceive(begun));
            Check.Fails(MessageQueueErrorCode.OperationCanceled, () => waiting.GetAwaiter().GetResult());
            queue.Send("x"); // it opens again
            Check.Equal("x", (string)queue.Receive(Patience).Body);
        }
    }

    static long Readers(MessageQueue queue)
    {
        using (var client = new System.Net.WebClient())
        {
            var text = client.DownloadString($"{MessageQueue.LocalManager}/api/v1/queues/{queue.QueueName.Replace('\\', '/')}");
            var at = text.IndexOf("\"waiting\":") + 10;
            return long.Parse(new string(text.Skip(at).TakeWhile(char.IsDigit).ToArray()));
        }
    }

    public void Concurrent_sends_arrive_once()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            var ids = new HashSet<string>();
            Parallel.For(0, 8, new ParallelOptions { MaxDegreeOfParallelism = 8 }, thread =>
            {
                for (var number = 0; number < 50; number++)
                {
                    var message = new Message($"{thread} {number}");
                    queue.Send(message);
                    lock (ids)
                        Check.True(ids.Add(message.Id));
                }
            });
            var read = queue.GetAllMessages();
            Check.True(ids.SetEquals(read.Select(each => each.Id)));
            for (var thread = 0; thread < 8; thread++)
            {
                var own = read.Select(each => (string)each.Body).Where(each => each.StartsWith(thread + " ")).ToArray();
                Check.Same(Enumerable.Range(0, 50).Select(number => $"{thread} {number}").ToArray(), own);
            }
        }
    }

    public void Messages_are_fetched_ahead()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            for (var number = 0; number < 25; number++)
                queue.Send(number.ToString());
            queue.Prefetch = 10;
            for (var number = 0; number < 12; number++)
                Check.Equal(number.ToString(), (string)queue.Receive(Patience).Body);
            queue.Close();
            Check.Equal(13, queue.GetAllMessages().Length);
            for (var number = 12; number < 25; number++)
                Check.Equal(number.ToString(), (string)queue.Receive(Patience).Body);
            Check.Fails(MessageQueueErrorCode.IOTimeout, () => queue.Receive(TimeSpan.Zero));
        }
    }
}
