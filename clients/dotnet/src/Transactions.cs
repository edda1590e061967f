// Transactions of one queue manager: those of applications, and those that follow a System.Transactions scope.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Collections.Generic;
    using System.Globalization;
    using System.Transactions;

    /// <summary>A transaction over queues of one queue manager: the one whose queue is used first.</summary>
    public class MessageQueueTransaction : IDisposable
    {
        readonly object gate = new object();
        ServerTransaction begun;
        MessageQueueTransactionStatus status = MessageQueueTransactionStatus.Initialized;

        public MessageQueueTransaction()
        {
        }

        ~MessageQueueTransaction()
        {
            Dispose(false);
        }

        public MessageQueueTransactionStatus Status
        {
            get
            {
                lock (gate)
                    return status;
            }
        }

        public void Begin()
        {
            lock (gate)
            {
                if (status == MessageQueueTransactionStatus.Pending)
                    throw new InvalidOperationException("the transaction has begun already: commit or abort it first");
                status = MessageQueueTransactionStatus.Pending;
                begun = new ServerTransaction(MessageQueue.Local);
            }
        }

        /// <summary>Ends the transaction with all that was done in it, once this is durable.</summary>
        public void Commit()
        {
            End(MessageQueueTransactionStatus.Committed, each => each.Commit());
        }

        /// <summary>Ends the transaction and undoes all that was done in it.</summary>
        public void Abort()
        {
            End(MessageQueueTransactionStatus.Aborted, each => each.Abort());
        }

        public void Dispose()
        {
            Dispose(true);
            GC.SuppressFinalize(this);
        }

        protected virtual void Dispose(bool disposing)
        {
            if (!disposing)
            {
                begun?.Forget(); // its lease runs out
                return;
            }
            if (Status == MessageQueueTransactionStatus.Pending)
            {
                try
                {
                    Abort();
                }
                catch (MessageQueueException)
                {
                    // The queue manager has aborted it, or does so when its lease runs out.
                }
            }
        }

        /// <summary>The id under which the manager knows this transaction. Raises an error unless it is pending.</summary>
        internal string IdAt(Manager manager)
        {
            lock (gate)
            {
                if (status != MessageQueueTransactionStatus.Pending)
                    throw new InvalidOperationException("the transaction must be begun before it is used");
                return begun.IdAt(manager);
            }
        }

        void End(MessageQueueTransactionStatus ended, Action<ServerTransaction> how)
        {
            lock (gate)
            {
                if (status != MessageQueueTransactionStatus.Pending)
                    throw new InvalidOperationException("the transaction must be begun before it can end");
                status = MessageQueueTransactionStatus.Aborted; // also if the commit fails
                how(begun);
                status = ended;
            }
        }
    }

    /// <summary>A transaction at the queue manager. It begins with its first use.</summary>
    sealed class ServerTransaction
    {
        readonly object gate = new object();
        Manager manager;
        string id;

        public ServerTransaction(Manager manager)
        {
            this.manager = manager;
        }

        public string IdAt(Manager asked)
        {
            lock (gate)
            {
                if (id == null)
                {
                    manager = asked;
                    var answer = manager.Do("POST", "/transactions", repeatable: true); // one that nobody uses ends by itself
                    id = (string)answer["id"];
                    manager.Leases.Hold(id, Convert.ToDouble(answer["lease_s"], CultureInfo.InvariantCulture));
                }
                if (asked != manager)
                    throw new MessageQueueException(
                        MessageQueueErrorCode.TransactionUsage, "a transaction must not use queues of several queue managers");
                return id;
            }
        }

        public void Commit()
        {
            End("commit");
        }

        public void Abort()
        {
            End("abort");
        }

        public void Forget()
        {
            if (id != null)
                manager.Leases.Drop(id);
        }

        void End(string how)
        {
            lock (gate)
            {
                if (id == null)
                    return;
                try
                {
                    manager.Do("POST", $"/transactions/{id}/{how}");
                }
                finally
                {
                    Forget();
                }
            }
        }
    }

    /// <summary>
    /// Follows a System.Transactions transaction as a volatile resource: the messages of one queue manager are committed
    /// after every other resource has agreed. It is no distributed transaction: if the process dies in between, the
    /// messages go back.
    /// </summary>
    sealed class AmbientTransaction : ISinglePhaseNotification
    {
        static readonly Dictionary<Transaction, AmbientTransaction> Followed = new Dictionary<Transaction, AmbientTransaction>();
        readonly ServerTransaction own = new ServerTransaction(null);
        readonly Transaction transaction;

        AmbientTransaction(Transaction transaction)
        {
            this.transaction = transaction;
        }

        /// <summary>The transaction of the scope around this call, or null outside of one.</summary>
        public static string IdAt(Manager manager)
        {
            var current = Transaction.Current;
            if (current == null)
                return null;
            AmbientTransaction found;
            lock (Followed)
            {
                if (!Followed.TryGetValue(current, out found))
                {
                    found = new AmbientTransaction(current.Clone());
                    current.EnlistVolatile(found, EnlistmentOptions.None);
                    Followed.Add(found.transaction, found);
                }
            }
            return found.own.IdAt(manager);
        }

        public void SinglePhaseCommit(SinglePhaseEnlistment enlistment)
        {
            try
            {
                own.Commit();
            }
            catch (MessageQueueException fault)
            {
                Forget();
                if (fault.MessageQueueErrorCode == MessageQueueErrorCode.ServiceNotAvailable)
                    enlistment.InDoubt(fault);
                else
                    enlistment.Aborted(fault);
                return;
            }
            Forget();
            enlistment.Committed();
        }

        public void Prepare(PreparingEnlistment enlistment)
        {
            enlistment.Prepared();
        }

        public void Commit(Enlistment enlistment)
        {
            End(own.Commit, enlistment);
        }

        public void Rollback(Enlistment enlistment)
        {
            End(own.Abort, enlistment);
        }

        public void InDoubt(Enlistment enlistment)
        {
            End(own.Abort, enlistment);
        }

        void End(Action how, Enlistment enlistment)
        {
            try
            {
                how();
            }
            catch (MessageQueueException fault)
            {
                System.Diagnostics.Trace.TraceError($"the messages of a transaction scope: {fault.Message}");
            }
            Forget();
            enlistment.Done();
        }

        void Forget()
        {
            lock (Followed)
                Followed.Remove(transaction);
        }
    }
}
