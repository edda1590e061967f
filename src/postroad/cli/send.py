"""`postroad send`: sends one message or many equal ones to any queue."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import Context, OptionalValues
from postroad.cli.output import Bar, ExitCode, fail, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad import Message, QueueManager, Signer

STANDARD_INPUT = "-"
KEY_PASSWORD = "POSTROAD_KEY_PASSWORD"
DEFAULT_HASH = "sha512"
BATCH_MESSAGES = 10_000  # that one request can have
BATCH_BYTES = 16 << 20
_CIPHERS = "aes256, aes192, aes128, rc4, rc2"  # the strongest first
_UTF16_TYPES = (8, 31)  # VT_BSTR, VT_LPWSTR
_UINT32_MAX = 0xFFFFFFFF


def _is_cipher(word: str) -> bool:
    """Whether a word can be the value of --encrypt. The name of a destination never looks like one."""
    return re.fullmatch(r"\w[\w-]*", word) is not None


@OptionalValues(encrypt=_is_cipher)
def send(
    context: Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The destination: any format name or path; separate several with commas."),
    ],
    standard_input: Annotated[
        str | None, typer.Argument(metavar="[-]", help="Take the body from standard input.", show_default=False)
    ] = None,
    body: Annotated[str | None, typer.Option("--body", metavar="TEXT", help="The body, as text.")] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help="The body, from a file.")] = None,
    label: Annotated[str, typer.Option("--label", help="A title, up to 249 characters.")] = "",
    priority: Annotated[int, typer.Option("--priority", min=0, max=7, help="7 goes first.")] = 3,
    recoverable: Annotated[bool, typer.Option("--recoverable", help="Keep the message across restarts.")] = False,
    transactional: Annotated[
        bool, typer.Option("--transactional", help="Send in a transaction of its own: exactly once, in order.")
    ] = False,
    ttrq: Annotated[
        int | None,
        typer.Option(
            "--ttrq", metavar="S", min=0, max=_UINT32_MAX, help="Seconds within which it must reach the queue."
        ),
    ] = None,
    ttbr: Annotated[
        int | None,
        typer.Option("--ttbr", metavar="S", min=0, max=_UINT32_MAX, help="Seconds within which it must be received."),
    ] = None,
    admin_queue: Annotated[
        str | None, typer.Option("--admin-queue", metavar="NAME", help="Where acknowledgments go.")
    ] = None,
    ack: Annotated[
        str,
        typer.Option(
            "--ack",
            metavar="WORDS",
            help="none, reach-queue, receive, nack-reach-queue, nack-receive or full; separate several with commas.",
        ),
    ] = "none",
    response_queue: Annotated[
        str | None, typer.Option("--response-queue", metavar="NAME", help="Where answers go.")
    ] = None,
    correlation: Annotated[
        str | None, typer.Option("--correlation", metavar="ID", help=r"The message that it answers, {guid}\n.")
    ] = None,
    journal: Annotated[bool, typer.Option("--journal", help="Keep a copy in ;journal once it is delivered.")] = False,
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Keep a copy in ;deadletter or ;deadxact if it cannot be delivered.")
    ] = False,
    dead_letter_queue: Annotated[
        str | None,
        typer.Option("--dead-letter-queue", metavar="NAME", help="Keep that copy in this local queue instead."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="NAME", help="PUBLIC=<guid> of the queue that gets a report from each hop."),
    ] = None,
    sign: Annotated[
        str | None, typer.Option("--sign", metavar="CERT", help="Sign the message, with this certificate (PEM or DER).")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help=f"The certificate's RSA key (PEM or DER). The variable {KEY_PASSWORD} has its password, if any.",
        ),
    ] = None,
    hash_word: Annotated[
        str | None,
        typer.Option(
            "--hash", metavar="HASH", help="The hash to sign: sha512 (the default), sha256, sha1, md5, md4 or md2."
        ),
    ] = None,
    signature: Annotated[
        str | None,
        typer.Option(
            "--signature", metavar="VERSION", help="1.0, 2.0 or 3.0. By default 2.0, and 3.0 to several destinations."
        ),
    ] = None,
    sender_id: Annotated[
        str | None,
        typer.Option(
            "--sender-id", metavar="SID", help="The sender. By default the SID that the certificate is registered for."
        ),
    ] = None,
    encrypt: Annotated[
        str | None,
        typer.Option(
            "--encrypt",
            metavar="[CIPHER]",
            help="Encrypt the body on its way: aes256, aes192, aes128, rc4 or rc2. Without a word, the send_cipher "
            "of the manager.",
        ),
    ] = None,
    body_type: Annotated[
        int,
        typer.Option("--body-type", metavar="VT", min=0, max=_UINT32_MAX, help="Its VARENUM: 8 is text in UTF-16."),
    ] = 0,
    app_tag: Annotated[
        int,
        typer.Option("--app-tag", metavar="N", min=0, max=_UINT32_MAX, help="A number for the application's own use."),
    ] = 0,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="NAME=VALUE", help="A header, written as NServiceBus does; repeat it for more."
        ),
    ] = None,
    extension: Annotated[
        str | None,
        typer.Option("--extension", metavar="FILE", help="The extension, from a file; - for standard input."),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, help="Send this many copies, each with its own id.")
    ] = 1,
) -> None:
    """Send a message, and print its id.

    The body is that of --body, --file or standard input, or empty. Text is stored as UTF-8, and as UTF-16 for the body
    types 8 and 31; the bytes of a file are stored as they are, unless such a type asks for text and they are UTF-8.

    Headers go into the extension, as NServiceBus writes them: `--header NServiceBus.MessageIntent=Send`.
    """
    acknowledgments = _acknowledgments(ack)
    if acknowledgments and admin_queue is None:
        fail("--ack: needs --admin-queue NAME, where the acknowledgments go", ExitCode.USAGE)
    from postroad import Message
    from postroad.describe.packets import algorithm_words
    from postroad.names import MessageId, parse_name
    from postroad.wire.constants import EncryptionAlgorithm

    if encrypt and encrypt not in algorithm_words(EncryptionAlgorithm):
        fail(f"--encrypt: must be one of {_CIPHERS}, got {encrypt!r}", ExitCode.USAGE)
    if extension == STANDARD_INPUT and STANDARD_INPUT in (standard_input, file):
        fail("--extension: standard input is the body already", ExitCode.USAGE)
    message = Message(
        _body(body, file, standard_input, body_type),
        label=label,
        priority=priority,
        recoverable=recoverable,
        body_type=body_type,
        app_tag=app_tag,
        correlation_id=_checked("--correlation", correlation, MessageId.parse),
        response_queue=_checked("--response-queue", response_queue, parse_name),
        admin_queue=_checked("--admin-queue", admin_queue, parse_name),
        ack=acknowledgments,
        time_to_reach_queue=ttrq,
        time_to_be_received=ttbr,
        journal=journal,
        dead_letter=dead_letter,
        dead_letter_queue=_checked("--dead-letter-queue", dead_letter_queue, parse_name),
        trace=_checked("--trace", trace, _public_queue),
        extension=_extension(header or [], extension),
        sign=_signer(sign, key, hash_word, signature, sender_id),
        encrypt=encrypt,
    )
    from postroad.errors import TransactionUsage

    with context.connect() as manager:
        try:
            ids = _send(manager, name, message, count, transactional)
        except TransactionUsage as fault:
            fail(f"{fault}: {'leave out' if transactional else 'add'} --transactional", ExitCode.FAILED)
    if context.as_json:
        for each in ids:
            print_json({"id": each})
    elif len(ids) == 1:
        print_line(ids[0])
    else:
        print_line(f"sent {len(ids)} messages, {ids[0]} to {ids[-1]}")


def _send(manager: QueueManager, name: str, message: Message, count: int, transactional: bool) -> list[str]:
    """Sends all copies in one transaction, or in as few requests as possible, so that their ids are consecutive."""
    step = max(1, min(BATCH_MESSAGES, BATCH_BYTES // (len(message.body) + len(message.extension) + 1024)))
    queue = manager.queue(name)
    if count <= step:
        return queue.send([message] * count, transactional=transactional)
    ids: list[str] = []
    with Bar("sending", count) as bar:
        transaction = manager.begin() if transactional else None
        try:
            while bar.done < count:
                sent = min(step, count - bar.done)
                ids += queue.send([message] * sent, transaction)
                bar.advance(sent)
            if transaction is not None:
                transaction.commit()
        finally:
            if transaction is not None and not transaction.ended:
                transaction.abort()
    return ids


def _signer(
    certificate: str | None, key: str | None, hash_word: str | None, version: str | None, sender_id: str | None
) -> Signer | None:
    if certificate is None:
        for option, given in (
            ("--key", key),
            ("--hash", hash_word),
            ("--signature", version),
            ("--sender-id", sender_id),
        ):
            if given is not None:
                fail(f"{option}: needs --sign CERT, the certificate of the key that signs", ExitCode.USAGE)
        return None
    if key is None:
        fail("--sign: needs --key KEY, the private key of the certificate", ExitCode.USAGE)
    from postroad import Signer
    from postroad.errors import InvalidArgument

    try:
        return Signer.load(
            certificate,
            key,
            password=os.environ.get(KEY_PASSWORD),
            hash=hash_word or DEFAULT_HASH,
            version=version,
            sender_id=sender_id,
        )
    except InvalidArgument as fault:
        argument, _, sentence = str(fault).partition(": ")
        option = {"version": "--signature", "sender_id": "--sender-id"}.get(argument, f"--{argument}")
        fail(f"{option}: {sentence}", ExitCode.USAGE)


def _body(body: str | None, file: str | None, standard_input: str | None, body_type: int) -> bytes | str:
    if standard_input not in (None, STANDARD_INPUT):
        fail(f"{standard_input!r}: give the body with --body or --file, or use - for standard input", ExitCode.USAGE)
    if sum(source is not None for source in (body, file, standard_input)) > 1:
        fail("use only one of --body, --file and -", ExitCode.USAGE)
    if body is not None:
        return body
    source = file or standard_input
    if source is None:
        return b""
    data = _content(source, source)
    return _utf8_text(data) if body_type in _UTF16_TYPES else data


def _content(source: str, place: str) -> bytes:
    """What a file or standard input has, if a message can have it."""
    from postroad.wire.constants import MAX_PACKET_SIZE

    try:
        if source == STANDARD_INPUT:
            data = sys.stdin.buffer.read(MAX_PACKET_SIZE + 1)
        else:
            with Path(source).open("rb") as stream:
                data = stream.read(MAX_PACKET_SIZE + 1)
    except (OSError, ValueError) as fault:
        fail(f"{place}: cannot be read: {getattr(fault, 'strerror', None) or fault}", ExitCode.USAGE)
    if len(data) > MAX_PACKET_SIZE:
        fail(f"{place}: a message must have at most {MAX_PACKET_SIZE} bytes (4 MiB)", ExitCode.FAILED)
    return data


def _extension(headers: list[str], file: str | None) -> bytes:
    """The extension that --header or --extension asks for."""
    if file is not None:
        if headers:
            fail("use only one of --header and --extension", ExitCode.USAGE)
        return _content(file, f"--extension: {file}")
    if not headers:
        return b""
    from postroad.bodies import NOT_XML, write_headers
    from postroad.errors import InvalidArgument

    names: dict[str, str] = {}
    for each in headers:
        name, equals, value = each.partition("=")
        if not equals:
            fail(f"--header: must be NAME=VALUE, got {each!r}", ExitCode.USAGE)
        if name in names:
            fail(f"--header: {name} is given twice", ExitCode.USAGE)
        if (found := NOT_XML.search(each)) is not None:
            code = f"U+{ord(found[0]):04X}"
            fail(f"--header: {name!r} must not have the character {code}, which XML cannot say", ExitCode.USAGE)
        names[name] = value
    try:
        return write_headers(names)
    except InvalidArgument as fault:
        fail(f"--header: {fault}", ExitCode.USAGE)


def _utf8_text(data: bytes) -> bytes | str:
    """Bytes in UTF-8 as text, to be stored as UTF-16. Any other bytes, such as UTF-16, are returned as they are."""
    if b"\0" in data or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data


def _acknowledgments(words: str) -> int:
    from postroad.errors import InvalidMessage
    from postroad.message import ack_flags

    try:
        return ack_flags(words)
    except InvalidMessage as fault:
        fail(f"--{fault}", ExitCode.USAGE)


def _checked(option: str, text: str | None, parse: Callable[[str], object]) -> str | None:
    """Reads the text of an option. A mistake is reported under the option's name."""
    from postroad.errors import IllegalName

    try:
        if text is not None:
            parse(text)
    except IllegalName as fault:
        fail(f"{option}: {fault}", ExitCode.USAGE)
    return text


def _public_queue(text: str) -> None:
    from postroad.names import PublicName, parse_name

    if not isinstance(parse_name(text), PublicName):
        fail(f"--trace: must be a public queue, such as PUBLIC=<guid>, got {text!r}", ExitCode.USAGE)
