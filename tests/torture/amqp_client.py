"""The clients of the ledger by AMQP: one process each, with Proton. They write down what they do before they do it, and
what they are told once they know it. amqp.py runs and judges them."""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

ORDERS, FIRST, SECOND, MOVED = (rf"private$\{name}" for name in ("orders", "first", "second", "moved"))
WINDOW = 100  # messages that a producer has without an answer
GROUP = 4  # messages of a transaction
DEAD = 9  # the exit code of a client that dies
RETRY_S = 0.1
BODY = b"x" * 256


class Book:
    """Lines of a time, an event and what it is about. Each is in the file before the client goes on."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, event: str, about: object = "-") -> None:
        os.write(self.file, f"{time.monotonic():.6f} {event} {about}\n".encode())


class Client(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    def __init__(self, url: str, book: Book, stop: Path, chance: random.Random, **options: Any) -> None:
        super().__init__(auto_accept=False, **options)
        self.url, self.book, self.stop, self.chance = url, book, stop, chance

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = self.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.started()
        self.container.schedule(RETRY_S, self)

    next, left = 0, 1  # the number of the last message, and how many are to be sent; consumers have none

    def started(self) -> None: ...

    def on_timer_task(self, event: Any) -> None:
        if self.stop.exists():
            self.connection.close()
        else:
            self.container.schedule(RETRY_S, self)
            self.idle()

    def idle(self) -> None: ...

    def on_transport_error(self, event: Any) -> None:
        """The manager is gone."""
        self.again()

    def on_disconnected(self, event: Any) -> None:
        self.again()

    def on_connection_closed(self, event: Any) -> None:
        self.again()

    def again(self) -> None:
        """Ends, or goes on as a new program with a new connection."""
        self.book("lost")
        if self.stop.exists() or self.left <= 0:
            os._exit(0)
        while not self.reachable():
            time.sleep(RETRY_S)
            if self.stop.exists():
                os._exit(0)
        given = [*sys.argv[1:5], str(self.chance.getrandbits(32)), str(self.next), str(self.left)]
        os.execv(sys.executable, [sys.executable, "-m", "tests.torture.amqp_client", *given])

    def reachable(self) -> bool:
        """Whether the manager runs. Programs that start over and over would take the processor from it."""
        host, _, port = self.url.rpartition("/")[2].partition(":")
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            return False
        return True

    def die(self) -> None:
        self.book("lost")
        os._exit(DEAD)


class Producer(Client):
    """Sends messages of its own to a plain queue until so many are accepted. What has no answer is not sent again."""

    def __init__(self, *given: Any, first: int, count: int) -> None:
        super().__init__(*given)
        self.next, self.left = first, count
        self.waiting: dict[Any, int] = {}

    def started(self) -> None:
        self.sender = self.container.create_sender(self.connection, ORDERS)

    def on_sendable(self, event: Any) -> None:
        while self.sender.credit and len(self.waiting) < min(WINDOW, self.left):
            self.next += 1
            self.book("send", self.next)
            delivery = self.sender.send(Message(body=BODY, subject=str(self.next), durable=True, inferred=True))
            self.waiting[delivery.tag] = self.next

    def on_accepted(self, event: Any) -> None:
        self.book("sent", self.waiting.pop(event.delivery.tag))
        self.left -= 1
        if self.left:
            self.on_sendable(event)
        else:
            self.connection.close()

    def on_rejected(self, event: Any) -> None:
        self.book("refused", self.waiting.pop(event.delivery.tag))
        self.on_sendable(event)

    on_released = on_rejected


class GroupProducer(Client):
    """Sends groups of messages to two queues in transactions, of which it aborts some."""

    def __init__(self, *given: Any, first: int, count: int) -> None:
        super().__init__(*given)
        self.next, self.left = first, count

    def started(self) -> None:
        self.senders = [self.container.create_sender(self.connection, queue) for queue in (FIRST, SECOND)]
        self.busy = False

    def on_sendable(self, event: Any) -> None:
        if not self.busy and all(sender.credit >= GROUP for sender in self.senders):
            self.busy = True
            self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.next += 1
        for part in range(GROUP):
            label = f"{self.next}.{part}"
            event.transaction.send(self.senders[part % 2], Message(body=BODY, subject=label, inferred=True))
        if self.chance.random() < 0.1:
            self.book("abort", self.next)
            event.transaction.abort()
        else:
            self.book("send", self.next)
            event.transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.book("sent", self.next)
        self.left -= GROUP
        self._go_on()

    def on_transaction_aborted(self, event: Any) -> None:
        self._go_on()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.book("refused", self.next)
        self._go_on()

    def on_transaction_declare_failed(self, event: Any) -> None:
        raise AssertionError("the manager declares no transaction")

    def _go_on(self) -> None:
        if self.left <= 0:
            self.connection.close()
        else:
            self.container.declare_transaction(self.connection, handler=self)


class Consumer(Client):
    """Holds some messages, and ends them in any order: accepted, released, modified or rejected. Dies now and then."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given, prefetch=40, auto_settle=True)

    def started(self) -> None:
        self.closing = False
        self.held: list[tuple[int, Delivery]] = []
        self.accepting: dict[Delivery, tuple[str, int]] = {}
        self.receiver = self.container.create_receiver(self.connection, ORDERS)

    def on_message(self, event: Any) -> None:
        if self.closing:  # somebody else may have it already
            return
        number = int(event.message.subject)
        self.book("got", f"{number} {event.message.delivery_count}")
        self.held.append((number, event.delivery))
        if self.chance.random() < 1 / 1500:
            self.die()
        if self.chance.random() < 1 / 5000:  # politely, with messages in hand
            self.book("lost")
            self.closing, self.held = True, []
            self.connection.close()
        elif len(self.held) > self.chance.randrange(20):
            self.idle()

    def idle(self) -> None:
        self.chance.shuffle(self.held)
        held, self.held = self.held, []
        for number, delivery in held:
            self._end(number, delivery)

    def _end(self, number: int, delivery: Any) -> None:
        dice = self.chance.random()
        if dice < 0.85:  # without settling, so that the manager says when it is done
            self._ask("accept", number, delivery, Delivery.ACCEPTED)
        elif dice < 0.90:
            self.book("release", number)
            delivery.update(Delivery.RELEASED)
            delivery.settle()
        elif dice < 0.95:
            delivery.local.failed = dice < 0.93
            self._ask("fail" if dice < 0.93 else "release", number, delivery, Delivery.MODIFIED)
        elif dice < 0.97:
            delivery.local.undeliverable = dice < 0.96
            outcome = Delivery.MODIFIED if dice < 0.96 else Delivery.REJECTED
            self._ask("reject", number, delivery, outcome)
        else:
            self.book("release", number)  # no outcome at all
            delivery.settle()

    def _ask(self, event: str, number: int, delivery: Any, outcome: Any) -> None:
        self.book(event, number)
        self.accepting[delivery.tag] = (event, number)
        delivery.update(outcome)

    def on_settled(self, event: Any) -> None:
        known = self.accepting.pop(event.delivery.tag, None)
        if known is not None:
            self.book(known[0] + "ed", known[1])
        event.delivery.settle()


class Mover(Client):
    """Takes messages from one transactional queue to another in transactions, of which it aborts some. Dies too."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given, prefetch=20)

    def started(self) -> None:
        self.busy = False
        self.ready: list[tuple[str, Any]] = []
        self.sender = self.container.create_sender(self.connection, MOVED)
        self.receiver = self.container.create_receiver(self.connection, FIRST)

    def on_message(self, event: Any) -> None:
        self.ready.append((event.message.subject, event.delivery))
        self._begin()

    def _begin(self) -> None:
        if self.ready and not self.busy and self.sender.credit >= GROUP:
            self.busy = True
            self.container.declare_transaction(self.connection, handler=self)

    def idle(self) -> None:
        self._begin()

    def on_transaction_declared(self, event: Any) -> None:
        transaction = event.transaction
        some, self.ready = self.ready[:GROUP], self.ready[GROUP:]
        for label, delivery in some:
            transaction.accept(delivery)
            transaction.send(self.sender, Message(body=BODY, subject=label, inferred=True))
        dice = self.chance.random()
        if dice < 1 / 300:
            self.die()
        elif dice < 0.1:
            transaction.abort()
        else:
            transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.busy = False
        self._begin()

    on_transaction_aborted = on_transaction_commit_failed = on_transaction_committed


def main() -> None:
    role, url, directory, name, seed, first, count = sys.argv[1:]
    folder = Path(directory)
    stop, chance = folder / "stop", random.Random(int(seed))
    book = Book(folder / f"{role}.{name}")
    given = (url, book, stop, chance)
    roles: dict[str, Callable[[], Client]] = {
        "produce": lambda: Producer(*given, first=int(first), count=int(count)),
        "group": lambda: GroupProducer(*given, first=int(first), count=int(count)),
        "consume": lambda: Consumer(*given),
        "move": lambda: Mover(*given),
    }
    Container(roles[role]()).run()


if __name__ == "__main__":
    main()
