// Names, properties and permissions of queues, and errors.

using System;
using System.ComponentModel;
using System.Linq;
using System.Messaging;

class QueueTests
{
    public void A_queue_is_created_found_and_deleted()
    {
        var path = @".\private$\created";
        Check.True(!MessageQueue.Exists(path));
        using (var queue = MessageQueue.Create(path, true))
        {
            Check.True(MessageQueue.Exists(path));
            Check.True(MessageQueue.Exists(Environment.MachineName + @"\private$\created"));
            Check.True(queue.Transactional);
            Check.Equal(@"private$\created", queue.QueueName);
            Check.Equal(".", queue.MachineName);
            Check.Equal(@"DIRECT=OS:alpha\private$\created", queue.FormatName);
            Check.True(queue.Id != Guid.Empty);
            Check.True(queue.CreateTime > DateTime.Now.AddMinutes(-5) && queue.CreateTime < DateTime.Now.AddMinutes(5));
        }
        Check.Fails(MessageQueueErrorCode.QueueExists, () => MessageQueue.Create(path));
        Check.True(MessageQueue.GetPrivateQueuesByMachine(".").Any(each => each.QueueName == @"private$\created"));
        MessageQueue.Delete(path);
        Check.Fails(MessageQueueErrorCode.QueueNotFound, () => MessageQueue.Delete(path));
        Check.Fails(MessageQueueErrorCode.QueueNotFound, () => new MessageQueue(path).Receive(TimeSpan.Zero));
        Check.Fails(MessageQueueErrorCode.QueueNotFound, () => new MessageQueue(path).Send("x"));
    }

    public void A_public_queue_is_found_by_its_label()
    {
        using (var queue = MessageQueue.Create(@".\open"))
        {
            queue.Label = "the open one";
            Check.Equal("the open one", queue.Label);
            Check.Equal(1, MessageQueue.GetPublicQueuesByLabel("The open one").Length);
            Check.Equal(0, MessageQueue.GetPublicQueuesByLabel("another").Length);
            Check.True(MessageQueue.GetPublicQueues().Any(each => each.Id == queue.Id));
            Check.True(MessageQueue.GetPublicQueuesByMachine(".").Any(each => each.Id == queue.Id));
            Check.Equal(0, MessageQueue.GetPublicQueuesByMachine("nowhere").Length);
            var walked = MessageQueue.GetMessageQueueEnumerator(new MessageQueueCriteria { Label = "the open one" });
            Check.True(walked.MoveNext());
            Check.Equal(queue.Id, walked.Current.Id);
            Check.True(!walked.MoveNext());
            Check.Equal("PUBLIC=" + queue.Id, queue.FormatName);
            new MessageQueue("FormatName:" + queue.FormatName).Send("by format name");
            new MessageQueue("Label:the open one").Send("by label");
            Check.Equal(2, queue.GetAllMessages().Length);
            MessageQueue.Delete(queue.Path);
        }
        Check.Fails(MessageQueueErrorCode.QueueNotFound, () => new MessageQueue("Label:the open one").Send("x"));
    }

    public void Properties_are_changed_and_read_again()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            Check.Equal(MessageQueue.InfiniteQueueSize, queue.MaximumQueueSize);
            Check.Equal(EncryptionRequired.Optional, queue.EncryptionRequired);
            queue.MaximumQueueSize = 100;
            queue.MaximumJournalSize = 200;
            queue.UseJournalQueue = true;
            queue.EncryptionRequired = EncryptionRequired.None;
            queue.Authenticate = true;
            var again = new MessageQueue(queue.Path);
            Check.Equal(100L, again.MaximumQueueSize);
            Check.Equal(200L, again.MaximumJournalSize);
            Check.True(again.UseJournalQueue);
            Check.True(again.Authenticate);
            Check.Equal(EncryptionRequired.None, again.EncryptionRequired);
            queue.MaximumQueueSize = MessageQueue.InfiniteQueueSize;
            Check.Equal(100L, again.MaximumQueueSize);
            again.Refresh();
            Check.Equal(MessageQueue.InfiniteQueueSize, again.MaximumQueueSize);
            Check.Throws<ArgumentException>(() => queue.MaximumQueueSize = -1);
            Check.Equal(Guid.Empty, queue.Category);
            Check.Equal("", queue.MulticastAddress);
        }
    }

    public void A_full_queue_refuses()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.MaximumQueueSize = 1;
            Check.Fails(MessageQueueErrorCode.InsufficientResources, () => queue.Send(new string('x', 5000)));
        }
    }

    public void A_message_over_four_mebibytes_is_refused()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
            Check.Fails(MessageQueueErrorCode.InsufficientResources, () => queue.Send(new string('x', 5 << 20)));
    }

    public void Names_are_checked()
    {
        foreach (var bad in new[] { "orders", @"private$\orders", @".\private$", @"\private$\x", "" })
            Check.Throws<ArgumentException>(() => MessageQueue.Create(bad));
        Check.Throws<ArgumentNullException>(() => MessageQueue.Exists(null));
        Check.Throws<InvalidOperationException>(() => MessageQueue.Exists(@"FormatName:DIRECT=OS:.\private$\x"));
        Check.Fails(MessageQueueErrorCode.IllegalFormatName, () => new MessageQueue("FormatName:NONSENSE=1").Send("x"));
        Check.Throws<InvalidOperationException>(() => new MessageQueue().Send("x"));
        var queue = new MessageQueue { MachineName = "server", QueueName = @"private$\orders" };
        Check.Equal(@"server\private$\orders", queue.Path);
        Check.Equal(@"DIRECT=OS:server\private$\orders", queue.FormatName);
    }

    public void Permissions_are_set()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.SetPermissions("Everyone", MessageQueueAccessRights.FullControl);
            queue.SetPermissions("Everyone", MessageQueueAccessRights.DeleteQueue, AccessControlEntryType.Deny);
            var list = new AccessControlList { new MessageQueueAccessControlEntry(new Trustee("S-1-5-11"), MessageQueueAccessRights.WriteMessage) };
            queue.SetPermissions(list);
            queue.ResetPermissions();
            Check.Throws<ArgumentNullException>(() => queue.SetPermissions((AccessControlList)null));
            Check.True(queue.CanRead && queue.CanWrite);
        }
    }

    public void A_machine_has_an_id()
    {
        Check.Equal(MessageQueue.GetMachineId("."), MessageQueue.GetMachineId("alpha"));
        Check.Fails(MessageQueueErrorCode.MachineNotFound, () => MessageQueue.GetMachineId("nowhere"));
    }

    public void No_manager_is_ServiceNotAvailable()
    {
        MessageQueue.LocalManager = "http://127.0.0.1:1";
        try
        {
            Check.Fails(MessageQueueErrorCode.ServiceNotAvailable, () => new MessageQueue(@".\private$\x").Send("x"));
            Check.Fails(MessageQueueErrorCode.ServiceNotAvailable, () => MessageQueue.Exists(@".\private$\x"));
        }
        finally
        {
            MessageQueue.LocalManager = null;
        }
    }

    public void A_wrong_login_and_a_missing_right_are_AccessDenied()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create())
        {
            queue.SetPermissions("ann", MessageQueueAccessRights.WriteMessage);
            queue.Send("x");
            var url = MessageQueue.LocalManager;
            try
            {
                MessageQueue.LocalManager = url.Replace("://", "://ann:wrong@");
                Check.Fails(MessageQueueErrorCode.AccessDenied, () => new MessageQueue(queue.Path).Send("y"));
                Check.Fails(MessageQueueErrorCode.AccessDenied, () => MessageQueue.Exists(queue.Path));
                MessageQueue.LocalManager = url.Replace("://", "://ann:secret@");
                new MessageQueue(queue.Path).Send("y");
                Check.Fails(MessageQueueErrorCode.AccessDenied, () => new MessageQueue(queue.Path).Receive(TimeSpan.Zero));
                Check.Fails(MessageQueueErrorCode.AccessDenied, () => MessageQueue.Delete(queue.Path));
                Check.True(MessageQueue.Exists(queue.Path));
                Check.True(!new MessageQueue(queue.Path).CanRead && new MessageQueue(queue.Path).CanWrite);
            }
            finally
            {
                MessageQueue.LocalManager = null;
            }
            Check.Equal(2, queue.GetAllMessages().Length);
        }
    }

    public void What_exists_on_Windows_only_says_so()
    {
        var queue = new MessageQueue(@".\private$\x");
        Check.Throws<PlatformNotSupportedException>(() => queue.ReadHandle.ToString());
        Check.Throws<PlatformNotSupportedException>(() => ActiveXMessageFormatter.InitStreamedObject(null));
        Check.Throws<InvalidEnumArgumentException>(() => new MessageQueue(@".\private$\x", (QueueAccessMode)7));
        Check.Fails(MessageQueueErrorCode.AccessDenied, () => new MessageQueue(@".\private$\x", QueueAccessMode.Send).Peek());
        Check.Fails(MessageQueueErrorCode.AccessDenied, () => new MessageQueue(@".\private$\x", QueueAccessMode.Receive).Send("x"));
    }
}
