"""Sends signed messages: composes the packet that the manager will make, and lets the message's signer sign that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from postroad.client.payloads import as_name
from postroad.message import Composer, Message, MessageSigner, multi_queue_header
from postroad.names import FormatName, PathName
from postroad.reports.operations import Resolution

MAX_KNOWN = 1024  # answers that one connection remembers


class Question(NamedTuple):
    """What to ask a manager about a message: its destination, the paths in it, and the signer's certificate."""

    destination: str
    names: tuple[str, ...]
    certificate: bytes


class Signing:
    """Signs the messages of one connection. It remembers the manager's answers until the connection ends."""

    def __init__(self) -> None:
        self._known: dict[Question, Resolution] = {}

    def unknown(self, destination: str, messages: Iterable[Message]) -> Iterator[Question]:
        """What the manager must answer before these messages can be signed."""
        asked = {_question(destination, each, each.sign) for each in messages if each.sign is not None}
        return iter(asked - self._known.keys())

    def learn(self, question: Question, answer: Resolution) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[question] = answer

    def sign(self, destination: str, messages: Sequence[Message], transactional: bool) -> tuple[str, list[Message]]:
        """The destination as the manager has resolved it, and the messages with their signatures.

        The messages keep the resolved names that were signed, even if the manager would now resolve their paths
        differently.
        """
        signed: dict[int, Message] = {}  # a message that is sent several times is signed once
        composers: dict[Question, list[Composer]] = {}
        for each in messages:
            if each.sign is None or id(each) in signed:
                continue
            question = _question(destination, each, each.sign)
            answer = self._known[question]
            if question not in composers:
                composers[question] = _composers(answer)
                name = ",".join(found.name for found in answer.destinations)
            resolved = _with_names(each, question.names, answer.names)
            packets = [by.compose(resolved, 1, 0, transactional=transactional) for by in composers[question]]
            signature = each.sign.signature(packets, answer.signature_profile, answer.sender_id)
            signed[id(each)] = replace(resolved, sign=None, signature=signature)
        return name, [signed.get(id(each), each) for each in messages]


def _question(destination: str, message: Message, signer: MessageSigner) -> Question:
    paths = {str(name) for name in (message.response_queue, message.admin_queue) if _is_path(name)}
    return Question(destination, tuple(sorted(paths)), signer.certificate)


def _is_path(name: FormatName | str | None) -> bool:
    return isinstance(as_name(name) if isinstance(name, str) else name, PathName)


def _with_names(message: Message, paths: Sequence[str], names: Sequence[str]) -> Message:
    known = dict(zip(paths, names, strict=True))

    def resolved(name: FormatName | str | None) -> FormatName | str | None:
        return known.get(str(name), name)

    return replace(message, response_queue=resolved(message.response_queue), admin_queue=resolved(message.admin_queue))


def _composers(answer: Resolution) -> list[Composer]:
    names = [as_name(each.name) for each in answer.destinations]
    elements = [name for name in names if isinstance(name, FormatName)]
    header = multi_queue_header(elements) if len(elements) > 1 else None
    return [
        Composer(UUID(answer.manager), element, None, header, UUID(each.manager))
        for element, each in zip(elements, answer.destinations, strict=True)
    ]
