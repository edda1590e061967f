// Transactions of this library, and those of System.Transactions.

using System;
using System.Linq;
using System.Messaging;
using System.Transactions;

class TransactionTests
{
    static readonly TimeSpan Patience = TimeSpan.FromSeconds(30);

    public void A_commit_keeps_and_an_abort_undoes()
    {
        using (var queues = new Queues())
        using (var source = queues.Create(true))
        using (var target = queues.Create(true))
        {
            source.Send("a", MessageQueueTransactionType.Single);
            Check.Fails(MessageQueueErrorCode.TransactionUsage, () => source.Send("b"));
            using (var transaction = new MessageQueueTransaction())
            {
                Check.Equal(MessageQueueTransactionStatus.Initialized, transaction.Status);
                Check.Throws<InvalidOperationException>(() => transaction.Commit());
                Check.Throws<InvalidOperationException>(() => source.Receive(transaction));
                transaction.Begin();
                Check.Equal(MessageQueueTransactionStatus.Pending, transaction.Status);
                Check.Throws<InvalidOperationException>(() => transaction.Begin());
                var message = source.Receive(Patience, transaction);
                target.Send(message, transaction);
                Check.Equal(0, target.GetAllMessages().Length);
                transaction.Abort();
                Check.Equal(MessageQueueTransactionStatus.Aborted, transaction.Status);
                Check.Equal(0, target.GetAllMessages().Length);
                transaction.Begin();
                target.Send(source.Receive(Patience, transaction), transaction);
                target.Send("c", "second", transaction);
                transaction.Commit();
                Check.Equal(MessageQueueTransactionStatus.Committed, transaction.Status);
            }
            Check.Equal(0, source.GetAllMessages().Length);
            var read = target.GetAllMessages();
            Check.Same(new[] { "a", "c" }, read.Select(each => (string)each.Body).ToArray());
            Check.True(read[0].IsFirstInTransaction && !read[0].IsLastInTransaction && read[1].IsLastInTransaction);
            Check.True(read[0].TransactionId != "" && read[0].TransactionId == read[1].TransactionId);
            using (var forgotten = new MessageQueueTransaction())
            {
                forgotten.Begin();
                target.Receive(Patience, forgotten);
            }
            Check.Equal(2, target.GetAllMessages().Length);
            Check.Equal("a", (string)target.Receive(Patience, MessageQueueTransactionType.Single).Body);
            Check.Equal("c", (string)target.Receive(MessageQueueTransactionType.None).Body);
        }
    }

    public void A_transaction_removes_by_cursor_enumerator_and_id()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create(true))
        using (var transaction = new MessageQueueTransaction())
        {
            foreach (var each in new[] { "a", "b", "c", "d" })
                queue.Send(each, MessageQueueTransactionType.Single);
            var all = queue.GetAllMessages();
            transaction.Begin();
            Check.Equal("b", (string)queue.ReceiveById(all[1].Id, transaction).Body);
            var walk = queue.GetMessageEnumerator2();
            walk.MoveNext();
            Check.Equal("a", (string)walk.RemoveCurrent(transaction).Body);
            Check.Equal("c", (string)queue.Receive(Patience, queue.CreateCursor(), transaction).Body);
            Check.Equal("d", (string)queue.ReceiveByLookupId(MessageLookupAction.Current, all[3].LookupId, transaction).Body);
            transaction.Abort();
            Check.Equal(4, queue.GetAllMessages().Length);
        }
    }

    public void A_transaction_lives_as_long_as_its_process()
    {
        using (var queues = new Queues())
        using (var queue = queues.Create(true))
        using (var transaction = new MessageQueueTransaction())
        {
            transaction.Begin();
            queue.Send("a", transaction);
            System.Threading.Thread.Sleep(5000); // the manager takes back what is silent for 3 s
            queue.Send("b", transaction);
            transaction.Commit();
            Check.Equal(2, queue.GetAllMessages().Length);
        }
    }

    public void A_scope_commits_and_rolls_back()
    {
        using (var queues = new Queues())
        using (var source = queues.Create(true))
        using (var target = queues.Create(true))
        {
            using (var scope = new TransactionScope())
            {
                source.Send("a", MessageQueueTransactionType.Automatic);
                scope.Complete();
            }
            Check.Equal(1, source.GetAllMessages().Length);
            using (new TransactionScope())
            {
                target.Send(source.Receive(Patience, MessageQueueTransactionType.Automatic), MessageQueueTransactionType.Automatic);
            }
            Check.Equal(1, source.GetAllMessages().Length);
            Check.Equal(0, target.GetAllMessages().Length);
            using (var scope = new TransactionScope())
            {
                var other = new Witness();
                Transaction.Current.EnlistVolatile(other, EnlistmentOptions.None); // so that the commit has two phases
                target.Send(source.Receive(Patience, MessageQueueTransactionType.Automatic), MessageQueueTransactionType.Automatic);
                scope.Complete();
            }
            Check.Equal(0, source.GetAllMessages().Length);
            Check.Equal(1, target.GetAllMessages().Length);
            Check.Fails(MessageQueueErrorCode.TransactionUsage, () => source.Send("x", MessageQueueTransactionType.Automatic));
        }
    }

    sealed class Witness : IEnlistmentNotification
    {
        public void Prepare(PreparingEnlistment enlistment) => enlistment.Prepared();

        public void Commit(Enlistment enlistment) => enlistment.Done();

        public void Rollback(Enlistment enlistment) => enlistment.Done();

        public void InDoubt(Enlistment enlistment) => enlistment.Done();
    }
}
