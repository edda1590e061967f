"""Path names, [MS-MQMQ] 2.1.1, and the local forms that people write."""

from __future__ import annotations

import pytest

from postroad.errors import IllegalPathName, Status
from postroad.names import DirectName, FormatName, MsmqVersion, PathName, QueueKind, parse_name

BEFORE_SUBQUEUES = [MsmqVersion.V1, MsmqVersion.V2, MsmqVersion.V3]
SINCE_SUBQUEUES = [MsmqVersion.V4, MsmqVersion.V5, MsmqVersion.V6]
RESTRICTED = [version for version in MsmqVersion if version is not MsmqVersion.V1]


def refused(text: str, version: MsmqVersion = MsmqVersion.V6, strict: bool = False) -> IllegalPathName:
    with pytest.raises(IllegalPathName) as caught:
        PathName.parse(text, version, strict)
    return caught.value


@pytest.mark.spec("MQ-2.1.1-01")
@pytest.mark.parametrize(
    ("text", "kind", "queue"),
    [
        (r"alpha\orders", QueueKind.PUBLIC, "orders"),
        (r"alpha\private$\orders", QueueKind.PRIVATE, "orders"),
        (r"alpha\system$;deadletter", QueueKind.SYSTEM, "deadletter"),
    ],
)
def test_a_path_has_one_of_three_shapes(text: str, kind: QueueKind, queue: str) -> None:
    path = PathName.parse(text)
    assert (path.computer, path.tail.kind, path.tail.name) == ("alpha", kind, queue)
    assert str(path) == text


@pytest.mark.spec("MQ-2.1.1-01")
@pytest.mark.parametrize("text", ["orders", "", r"alpha\beta\orders", r"alpha\private$\a\b", "alpha/orders"])
def test_no_other_shape_is_a_path(text: str) -> None:
    assert refused(text).status is Status.ILLEGAL_QUEUE_PATHNAME


@pytest.mark.spec("MQ-2.1.1-02")
@pytest.mark.parametrize("text", [r"host\private$;q", r"host\system$\q", r"host\private$", r"host\system$"])
def test_each_keyword_has_its_own_separator(text: str) -> None:
    refused(text)


def test_a_public_queue_may_start_with_a_keyword() -> None:
    assert PathName.parse(r"host\private$x").tail.kind is QueueKind.PUBLIC
    assert PathName.parse(r"host\system$x").tail.kind is QueueKind.PUBLIC


@pytest.mark.spec("MQ-2.1.1-03")
def test_a_computer_has_1_to_256_visible_characters() -> None:
    assert PathName.parse("c" * 256 + r"\q").computer == "c" * 256
    assert refused("c" * 257 + r"\q").position == 256
    assert refused(r"\q").position == 0
    assert refused(r"al pha\q").position == 2
    for character in ("\x1f", "\x7f", "é"):
        assert refused(f"al{character}\\q").position == 2
    assert PathName.parse(r"!~\q").computer == "!~"


@pytest.mark.spec("MQ-2.1.1-04")
@pytest.mark.parametrize("version", list(MsmqVersion))
@pytest.mark.parametrize("head", ["h\\", "h\\private$\\", "h\\system$;"])
def test_a_queue_name_has_1_to_124_characters(head: str, version: MsmqVersion) -> None:
    assert PathName.parse(head + "q" * 124, version).tail.name == "q" * 124
    assert refused(head, version).position == len(head)
    assert refused(head + "q" * 125, version).position == len(head) + 124


@pytest.mark.spec("MQ-2.1.1-05")
def test_version_1_bars_only_the_semicolon_and_the_backslash() -> None:
    allowed = "".join(chr(code) for code in range(0x21, 0x80) if chr(code) not in ";\\")
    assert PathName.parse(f"h\\{allowed}", MsmqVersion.V1).tail.name == allowed
    for character in (";", "\\", " ", "\x80"):
        refused(f"h\\a{character}b", MsmqVersion.V1)


@pytest.mark.spec("MQ-2.1.1-06")
@pytest.mark.parametrize("version", RESTRICTED)
def test_later_versions_also_bar_the_quote_the_plus_and_the_comma(version: MsmqVersion) -> None:
    allowed = "".join(chr(code) for code in range(0x21, 0x80) if chr(code) not in '";\\+,')
    assert {"!", "#", "*", "-"} <= set(allowed)
    assert PathName.parse(f"h\\{allowed}", version, strict=True).tail.name == allowed
    for character in '"+,\\':
        assert refused(f"h\\a{character}b", version).position == 3
    for character in ('"', "+", ",", "\\", " ", "é", "\x80"):
        assert refused(f"h\\a{character}b", version, strict=True).position == 3
    if version in BEFORE_SUBQUEUES:
        refused(r"h\a;b", version)


@pytest.mark.spec("MQ-2.1.1-07")
@pytest.mark.parametrize("version", SINCE_SUBQUEUES)
def test_a_subqueue_follows_the_queue_since_version_4(version: MsmqVersion) -> None:
    tail = PathName.parse(r"host\q;sub", version).tail
    assert (tail.name, tail.subqueue, tail.journal) == ("q", "sub", False)
    assert PathName.parse(r"host\private$\q;sub", version).tail.subqueue == "sub"


@pytest.mark.spec("MQ-2.1.1-07")
@pytest.mark.parametrize("version", BEFORE_SUBQUEUES)
def test_no_subqueue_before_version_4(version: MsmqVersion) -> None:
    error = refused(r"host\q;sub", version)
    assert error.position == 7
    assert "4.0" in error.fault


@pytest.mark.spec("MQ-2.1.1-08")
def test_a_subqueue_has_1_to_32_characters_of_the_restricted_alphabet() -> None:
    for strict in (False, True):
        assert PathName.parse("h\\q;" + "s" * 32, strict=strict).tail.subqueue == "s" * 32
        assert refused("h\\q;", strict=strict).position == 4
        assert refused("h\\q;" + "s" * 33, strict=strict).position == 36
        for character in '";+,\\':
            refused(f"h\\q;s{character}t", strict=strict)
    for character in " é":
        refused(f"h\\q;s{character}t", strict=True)


@pytest.mark.spec("MQ-2.1.1-09")
def test_queue_names_reach_one_character_further_than_computer_names() -> None:
    tail = PathName.parse("h\\q\x7f;s\x7f", strict=True).tail
    assert (tail.name, tail.subqueue) == ("q\x7f", "s\x7f")
    assert refused("h\x7f\\q").position == 1
    for name in ("h\\q\x80", "h\\q;s\x80"):
        assert refused(name, strict=True).position == len(name) - 1


# What Windows takes beyond the printed grammar


@pytest.mark.parametrize(
    "name", ["two words", " ", "Größe", "заказы", "注文 キュー", "📦", "می‌خواهم", "gpj.\u202eexe", "\ufffe", "a\x7fb"]
)
def test_a_queue_name_has_any_characters(name: str) -> None:
    tail = PathName.parse(rf"alpha\private$\{name};{name}").tail
    assert (tail.name, tail.subqueue) == (name, name)


@pytest.mark.parametrize("character", [*map(chr, range(0x20)), *map(chr, range(0x80, 0xA0)), "\ud800", *'"+,'])
def test_but_no_control_characters_and_no_half_of_a_pair(character: str) -> None:
    error = refused(rf"private$\a{character}b")
    assert error.position == 10
    assert str(error).isprintable()  # whoever prints the error shows no more than it says


def test_a_character_counts_as_on_the_wire() -> None:
    assert PathName.parse("private$\\" + "📦" * 62).tail.name == "📦" * 62
    assert "at most 124" in refused("private$\\" + "📦" * 63).fault
    assert PathName.parse("private$\\q;" + "é" * 32).tail.subqueue == "é" * 32
    refused("private$\\q;" + "📦" * 17)


def test_case_is_that_of_unicode_without_a_language_or_a_normal_form() -> None:
    def same(one: str, other: str) -> bool:
        return PathName.parse(rf"private$\{one}") == PathName.parse(rf"private$\{other}")

    assert same("GRÖSSE ЗАКАЗЫ", "grösse заказы")
    assert same("ẞ", "ß")
    assert not same("İ", "i")
    assert not same("ß", "ss")
    assert not same("é", "e\u0301")
    assert not same("\u4100", "\u6100")


@pytest.mark.spec("MQ-2.1.1-10")
def test_keywords_and_names_compare_without_case_and_keep_theirs() -> None:
    small, large = PathName.parse(r"host\private$\orders"), PathName.parse(r"HOST\PRIVATE$\Orders")
    assert small == large
    assert hash(small) == hash(large)
    assert large.tail == small.tail
    assert (large.computer, large.tail.name) == ("HOST", "Orders")
    assert PathName.parse(r"host\SYSTEM$;deadxact").tail.kind is QueueKind.SYSTEM
    assert small != PathName.parse(r"host\orders")
    assert small != PathName.parse(r"other\private$\orders")


def test_the_suffix_journal_is_the_journal_of_the_queue_and_no_subqueue() -> None:
    tail = PathName.parse(r"private$\orders;Journal").tail
    assert (tail.name, tail.subqueue, tail.journal) == ("orders", None, True)
    tail = PathName.parse(r"private$\orders;sub;journal").tail
    assert (tail.subqueue, tail.journal) == ("sub", True)
    assert refused(r"private$\orders;journal;sub").position == 23
    assert refused(r"private$\orders;a;b").position == 18


def test_dead_letters_are_no_queue_of_a_queue() -> None:
    assert "system$;deadxact" in refused(r".\private$\orders;deadxact").fault


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"private$\q", r".\private$\q"),
        (r"PRIVATE$\q", r".\private$\q"),
        (r".\private$\q", r".\private$\q"),
        (r".\q", r".\q"),
        (";journal", r".\system$;journal"),
        (";deadletter", r".\system$;deadletter"),
        (";DEADXACT", r".\system$;DEADXACT"),
        ("system$;deadxact", r".\system$;deadxact"),
    ],
)
def test_local_forms(text: str, printed: str) -> None:
    path = PathName.parse(text)
    assert path.is_local
    assert str(path) == printed
    assert PathName.parse(printed) == path
    assert parse_name(text) == path


def test_a_local_path_can_be_told_the_computers_name() -> None:
    assert str(PathName.parse(r"private$\q").on("alpha")) == r"alpha\private$\q"
    assert str(PathName.parse(r"beta\private$\q").on("alpha")) == r"beta\private$\q"
    assert not PathName.parse(r"alpha\q").is_local


@pytest.mark.parametrize("text", [";orders", ";", "private$", "private$;q", r"system$\q", r"private$\private$\q"])
def test_forms_that_look_local_and_are_not(text: str) -> None:
    refused(text)


def test_any_name_is_read_as_what_it_looks_like() -> None:
    assert isinstance(parse_name(r"alpha\private$\a=b"), PathName)
    assert isinstance(parse_name("DIRECT=HTTP://alpha/msmq/private$/orders"), FormatName)
    assert isinstance(parse_name(r"direct=os:alpha\orders"), DirectName)


def test_a_path_with_slashes_is_told_how_it_is_written() -> None:
    error = refused("private$/orders")
    assert (error.position, error.fault) == (8, r"a path must have backslashes, as in private$\orders")


@pytest.mark.parametrize(
    ("text", "meant", "position"),
    [
        (r"private\orders", r"private$\orders", 0),
        (r"PRIVATE\orders;sub", r"PRIVATE$\orders;sub", 0),
        (r".\private\orders", r".\private$\orders", 2),
        (r"alpha\Private\orders", r"alpha\Private$\orders", 6),
    ],
)
def test_a_forgotten_dollar_sign_is_shown(text: str, meant: str, position: int) -> None:
    error = refused(text)
    assert (error.position, error.fault) == (position, f"the dollar sign is missing: write {meant}")


def test_a_computer_may_be_called_private_in_a_direct_name() -> None:
    name = parse_name(r"DIRECT=OS:private\orders")
    assert isinstance(name, DirectName)
    assert name.host == "private"
    assert PathName.parse(r"alpha\private").tail.name == "private"


def test_an_error_names_the_place_and_the_fault() -> None:
    assert str(refused(r"alpha\or,ders")) == r"'alpha\\or,ders', character 9: a queue name cannot contain ','"
