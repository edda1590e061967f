"""What to do about what a report has found: a sentence and commands for each thing that is not as it should be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote

from postroad.spark.pipeline.facts import Facts
from postroad.wire.constants import MessageClass, class_name

# What a reason says to people, after "it"; and what they can do, after "...".
_REASONS: dict[MessageClass, tuple[str, str]] = {
    MessageClass.NACK_BAD_DST_Q: ("found no such queue", "create the queue, or correct the name that the sender uses"),
    MessageClass.NACK_DELETED: ("was deleted on its way", "ask who emptied the outgoing queue"),
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: (
        "did not reach its queue in time",
        "see whether the destination answers, and what the outgoing queue waits for",
    ),
    MessageClass.NACK_Q_EXCEED_QUOTA: ("found its queue full", "read the queue faster, or raise its quota"),
    MessageClass.NACK_ACCESS_DENIED: ("was not allowed into its queue", "let the sender write to the queue"),
    MessageClass.NACK_HOP_COUNT_EXCEEDED: ("took too many hops", "look for routing links that lead in a circle"),
    MessageClass.NACK_BAD_SIGNATURE: (
        "was not signed as its queue asks",
        "sign the messages, or have the queue ask less",
    ),
    MessageClass.NACK_BAD_ENCRYPTION: (
        "could not be decrypted, or was not encrypted as its queue asks",
        "compare what the queue asks with what the sender does",
    ),
    MessageClass.NACK_NOT_TRANSACTIONAL_Q: ("is transactional and its queue is not", "send without a transaction"),
    MessageClass.NACK_NOT_TRANSACTIONAL_MSG: ("is not transactional and its queue is", "send in a transaction"),
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: (
        "has a cryptography that the destination lacks",
        "encrypt with what both ends have",
    ),
    MessageClass.NACK_Q_DELETED: ("went with its queue, which was deleted", "create the queue again"),
    MessageClass.NACK_Q_PURGED: ("was purged from its queue", "ask who purged it"),
    MessageClass.NACK_RECEIVE_TIMEOUT: (
        "was not received in time",
        "start the receiver, or give the messages more time to be received",
    ),
    MessageClass.NACK_RECEIVE_REJECTED: ("was rejected by its receiver", "ask the receiver why"),
}
_BY_NAME = {class_name(reason): told for reason, told in _REASONS.items()}
_MOST_COMMANDS = 3
_PLAIN = re.compile(r"[A-Za-z0-9_ -]+")


@dataclass(frozen=True, slots=True)
class Advice:
    """`what` is the case, `do` is what helps, and `commands` are where to begin."""

    what: str
    do: str
    commands: tuple[str, ...] = ()


def class_words(reason: str | None) -> str:
    """What the name of a class says of a message, after "it"."""
    return _BY_NAME.get(reason or "", (f"died of {reason}", ""))[0]


def advice(facts: Facts) -> list[Advice]:
    """The worst first; nothing where all is well."""
    found = []
    replayed = facts.replayed
    for reason, count in facts.reasons.items():
        if left := count - replayed[reason]:
            words, do = _BY_NAME.get(reason, (f"died of {reason}", "look at the dead letters"))
            again = tuple(_replay(facts, reason, manager) for manager in facts.letters_left.get(reason, ()))
            then = "then send them again:" if again else "there are no dead letters that could be sent again."
            found.append(Advice(f"{_messages(left)}: it {words}.", f"{_sentence(do)}; {then}", again))
    if unexplained := facts.total("unexplained"):
        commands = tuple(f"postroad trace {quote(str(row['id']))}" for row in facts.oldest[:_MOST_COMMANDS])
        found.append(
            Advice(
                f"{_messages(unexplained)} without news since they left.",
                "Trace them through the managers on their route:",
                commands,
            )
        )
    if duplicates := facts.total("duplicates"):
        do = "A receiver took a message twice, or express messages were sent again after a restart: see gold/delivery."
        found.append(Advice(f"{duplicates:,} more copies than messages.", do))
    if late := facts.total("out_of_order"):
        do = "Several receivers read one transactional queue at once, or messages were moved: see gold/delivery."
        found.append(Advice(f"{_messages(late)} out of order.", do))
    if contradicted := facts.total("contradicted"):
        do = "They were received, and their senders were told that they died: do not send them again unseen."
        found.append(Advice(f"{_messages(contradicted)} both received and dead.", do))
    if faults := facts.undecodable:
        do = "Other software may have put them there; they can be taken out and looked at:"
        queues = dict.fromkeys(row["queue"] for row in facts.faults)
        commands = tuple(
            f"postroad export {quote(str(queue))} odd.packets; postroad decode odd.packets" for queue in queues
        )
        found.append(
            Advice(f"{faults:,} packet{'' if faults == 1 else 's'} did not decode.", do, commands[:_MOST_COMMANDS])
        )
    return found


def _replay(facts: Facts, reason: str, manager: str) -> str:
    api = facts.apis.get(manager)
    options = [f"--lake {quote(facts.lake)}", *([] if api is None else [f"--api {quote(api)}"])]
    condition = f"reason = '{reason}'"
    quoted = f'"{condition}"' if _PLAIN.fullmatch(reason) else quote(condition)
    return f"postroad pipeline replay {' '.join(options)} --where {quoted}"


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
