"""What holds for every text and every name: it parses or is refused with our own error, and prints what it parsed."""

from __future__ import annotations

from urllib.parse import quote, unquote
from uuid import UUID

from hypothesis import assume, example, given
from hypothesis import strategies as st

from postroad.api.application import QUEUES, canonical_path
from postroad.errors import IllegalFormatName, IllegalIdentifier, IllegalName, IllegalPathName
from postroad.names import (
    DirectName,
    FormatName,
    MachineName,
    MessageId,
    MsmqVersion,
    MultipleElementName,
    PathName,
    QueueFormat,
    parse_format_name,
    parse_guid,
    parse_name,
)
from postroad.names.format import url_path
from postroad.remote_read import qmcomm
from postroad.soap.addresses import destination_of, url_of
from postroad.wire.octets import encode_text, terminated_text
from postroad.wire.queue_names import destination_field


def swapped(text: str) -> st.SearchStrategy[str]:
    """The same text with random upper and lower case."""
    choices = st.lists(st.booleans(), min_size=len(text), max_size=len(text))
    return choices.map(lambda flips: "".join(map(_flipped, text, flips)))


def _flipped(character: str, flip: bool) -> str:
    """Letters beyond ASCII need not come back: two capitals of the German sharp s are one small letter."""
    return character.swapcase() if flip and character.isascii() else character


def keyword(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words).flatmap(swapped)


KEYWORDS = frozenset({"private$", "system$"})
RESERVED = ("journal", "deadletter", "deadxact")
VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
CONTROLS = "".join(map(chr, [*range(0x20), *range(0x80, 0xA0)]))
queue_characters = st.characters(exclude_categories=["Cs"], exclude_characters='";\\+,' + CONTROLS)
COMPUTER_ALPHABET = "".join(character for character in VISIBLE if character not in "\\,")


def is_no_keyword(name: str) -> bool:
    return name.lower() not in KEYWORDS


def is_not_reserved(name: str) -> bool:
    return name.lower() not in RESERVED


nothing = st.just("")
guids = st.uuids().map(str).flatmap(swapped)
queue_names = st.text(queue_characters, min_size=1, max_size=62).filter(is_no_keyword)
subqueues = st.text(queue_characters, min_size=1, max_size=16).filter(is_not_reserved)
computers = st.text(COMPUTER_ALPHABET, min_size=1, max_size=256).filter(is_no_keyword)
domains = st.text(COMPUTER_ALPHABET, min_size=1, max_size=255)
hosts = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True) | st.ip_addresses(v=6).map(lambda ip: f"[{ip}]")
ports = st.integers(0, 65535).map(lambda number: f":{number}")


@st.composite
def tails(draw: st.DrawFn, slash: str = "\\") -> str:
    if draw(st.integers(0, 4)) == 0:
        return "\\" + draw(keyword("system$;")) + draw(keyword(*RESERVED))
    head = slash + draw(nothing | keyword("private$").map(lambda word: word + slash))
    subqueue = draw(nothing | subqueues.map(lambda name: f";{name}"))
    return head + draw(queue_names) + subqueue + draw(nothing | keyword(";journal"))


@st.composite
def direct_texts(draw: st.DrawFn) -> str:
    protocol = draw(st.sampled_from(["TCP", "OS", "HTTP", "HTTPS", "IPX", "SPX"]))
    head = f"{draw(keyword('direct='))}{draw(swapped(protocol))}:"
    match protocol:
        case "TCP":
            return f"{head}{draw(st.ip_addresses())}{draw(tails())}"
        case "OS":
            return f"{head}{draw(computers)}{draw(tails())}"
        case "IPX":
            return f"{head}{draw(st.from_regex('[0-9A-Fa-f]{8}:[0-9A-Fa-f]{12}', fullmatch=True))}{draw(tails())}"
        case "SPX":
            return f"{head}{draw(st.from_regex('[0-9A-Fa-f]{8}[.][0-9A-Fa-f]{12}', fullmatch=True))}{draw(tails())}"
    host = draw(hosts) + draw(nothing | st.just(":") | ports)
    return f"{head}//{host}{draw(keyword('/msmq'))}{draw(tails('/') | tails())}"


@st.composite
def single_texts(draw: st.DrawFn) -> str:
    match draw(st.integers(0, 6)):
        case 0:
            return draw(keyword("public=")) + draw(guids) + draw(nothing | keyword(";journal"))
        case 1:
            number = draw(st.from_regex("[0-9A-Fa-f]{1,8}", fullmatch=True))
            return draw(keyword("private=")) + f"{draw(guids)}\\{number}" + draw(nothing | keyword(";journal"))
        case 2:
            suffix = draw(nothing | keyword(";journal", ";deadletter", ";deadxact"))
            return draw(keyword("machine=")) + draw(guids) + suffix
        case 3:
            return draw(keyword("connector=")) + draw(guids) + draw(nothing | keyword(";xactonly"))
        case 4:
            return draw(keyword("dl=")) + draw(guids) + draw(nothing | domains.map(lambda name: f"@{name}"))
        case 5:
            octets = [draw(st.integers(224, 239)), *(draw(st.integers(0, 255)) for _ in range(3))]
            return draw(keyword("multicast=")) + ".".join(map(str, octets)) + draw(ports)
    return draw(direct_texts())


@st.composite
def near_misses(draw: st.DrawFn) -> str:
    """A good name with a piece cut out and another put in."""
    text = draw(single_texts() | computers.map(lambda name: rf"{name}\private$\orders;sub"))
    start, stop = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    pieces = st.text(max_size=3) | st.sampled_from(list("\\;=,:/.{}@[]%$0² \x7f\ud800"))
    return text[:start] + draw(pieces) + text[min(stop, start + 3) :]


any_text = st.text() | near_misses() | st.lists(near_misses(), max_size=3).map(",".join)


@given(any_text, st.sampled_from(MsmqVersion), st.booleans())
@example("DIRECT=HTTP://h:" + "9" * 5000, MsmqVersion.V6, False)
@example("MULTICAST=" + "9" * 5000, MsmqVersion.V6, False)
@example("=" * 10_000, MsmqVersion.V6, False)
def test_any_text_is_a_format_name_or_an_illegal_one(text: str, version: MsmqVersion, strict: bool) -> None:
    try:
        name = parse_format_name(text, version, strict)
    except IllegalFormatName as error:
        check_error(error, text)
    else:
        assert isinstance(name, FormatName)


@given(any_text, st.sampled_from(MsmqVersion))
def test_any_text_is_a_path_or_an_illegal_one(text: str, version: MsmqVersion) -> None:
    try:
        path = PathName.parse(text, version)
    except IllegalPathName as error:
        check_error(error, text)
    else:
        assert PathName.parse(str(path), version) == path


@given(any_text)
def test_any_text_is_a_name_or_an_illegal_one(text: str) -> None:
    try:
        parse_name(text)
    except (IllegalFormatName, IllegalPathName) as error:
        check_error(error, text)


@given(any_text)
def test_any_wire_text_is_a_direct_name_or_an_illegal_one(text: str) -> None:
    try:
        name = DirectName.from_wire(text)
    except IllegalFormatName as error:
        check_error(error, text)
    else:
        assert DirectName.from_wire(name.wire_text) == parse_format_name(str(name)) == name


@given(any_text)
def test_any_text_is_an_identifier_or_an_illegal_one(text: str) -> None:
    for parse in (parse_guid, MessageId.parse):
        try:
            assert isinstance(parse(text), UUID | MessageId)
        except IllegalIdentifier as error:
            check_error(error, text)


def check_error(error: IllegalName, text: str) -> None:
    assert error.name == text
    assert 0 <= error.position <= len(text)
    assert error.fault


@given(single_texts(), st.data())
def test_a_single_name_survives_printing_and_case(text: str, data: st.DataObject) -> None:
    name = parse_format_name(text)
    assert str(parse_format_name(str(name))) == str(name)
    assert parse_format_name(str(name)) == name
    other = parse_format_name(data.draw(swapped(text)))
    assert other == name
    assert hash(other) == hash(name)
    assert parse_name(text) == name


@given(single_texts())
def test_a_single_name_survives_rpc(text: str) -> None:
    name = parse_format_name(text)
    assume(not isinstance(name, MachineName) or name.suffix)  # which QUEUE_FORMAT cannot carry
    back = QueueFormat.from_format_name(name).to_format_name()
    assert back == name
    assert str(back) == str(name)


@given(direct_texts())
def test_a_direct_name_keeps_its_letters(text: str) -> None:
    name = parse_format_name(text)
    assert isinstance(name, DirectName)
    assert text.endswith(name.wire_text)
    assert str(name) == f"DIRECT={name.wire_text}"
    assert PathName.parse(str(name.path_name)) == name.path_name
    assert name.path_name.computer == name.host


def is_element(text: str) -> bool:
    name = parse_format_name(text)
    return not name.is_read_only and not isinstance(name, MachineName)


@given(queue_names, st.booleans())
def test_any_queue_survives_every_form_of_its_name(name: str, private: bool) -> None:
    """As a path, a direct name, a URL in SOAP and in the API, a string in a packet, and a QUEUE_FORMAT by RPC."""
    path = PathName.parse(f"alpha\\{'private$' + chr(92) if private else ''}{name}")
    tail = path.tail
    direct = DirectName.from_path(path)
    written = encode_text(destination_field(direct)[0].direct_name, "a name")
    assert DirectName.from_wire(terminated_text(written, "a name", 0)).tail.name == name
    structure = qmcomm.queue_format_structure(QueueFormat.from_format_name(direct))
    assert QueueFormat(*qmcomm.queue_format_parts(structure)).to_format_name() == direct
    url = DirectName.from_wire(f"HTTP://alpha/msmq/{url_path(str(tail)[1:])}")
    assert url.tail == tail
    assert url.tail.name == name
    assert destination_of(url_of(url)) == url
    escaped = quote(str(tail)[1:], safe="")
    for raw in (f"alpha%5C{escaped}", *([escaped] if private else [])):
        segment = canonical_path(QUEUES + raw).removeprefix(QUEUES)
        assert "/" not in segment
        assert PathName.parse(unquote(segment)).tail.name == name


@given(st.lists(single_texts().filter(is_element), min_size=2, max_size=5))
def test_a_list_survives_printing(texts: list[str]) -> None:
    name = parse_format_name(",".join(texts))
    assert isinstance(name, MultipleElementName)
    assert list(name.elements) == [parse_format_name(text) for text in texts]
    assert parse_format_name(str(name)) == name


@given(computers | st.just("."), tails(), st.data())
def test_a_path_survives_printing_and_case(computer: str, tail: str, data: st.DataObject) -> None:
    path = PathName.parse(computer + tail)
    assert path.computer == computer
    assert str(PathName.parse(str(path))) == str(path)
    other = PathName.parse(data.draw(swapped(computer + tail)))
    assert other == path
    assert hash(other) == hash(path)


@given(st.uuids(), st.integers(0, 0xFFFFFFFF))
def test_a_message_id_survives_printing_and_the_wire(guid: UUID, ordinal: int) -> None:
    message_id = MessageId(guid, ordinal)
    assert MessageId.parse(str(message_id)) == message_id
    assert MessageId.from_bytes(message_id.to_bytes()) == message_id
