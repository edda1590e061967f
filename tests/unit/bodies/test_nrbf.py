"""Bodies of .NET's BinaryFormatter, [MS-NRBF], written here byte by byte from the specification's grammar."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from contextlib import suppress
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.bodies.bounds import DEEPEST, MOST_VALUES
from postroad.bodies.nrbf import HEADER, is_nrbf, read
from postroad.bodies.xml_text import TYPE
from postroad.errors import RemoteProtocolError

END = b"\x0b"
NULL = b"\x0a"
LIBRARY = b"\x0c" + struct.pack("<i", 2)


def text(value: str) -> bytes:
    raw = value.encode()
    assert len(raw) < 128
    return bytes([len(raw)]) + raw


def number(value: int) -> bytes:
    return struct.pack("<i", value)


def string(identifier: int, value: str) -> bytes:
    return b"\x06" + number(identifier) + text(value)


def shape(identifier: int, name: str, members: dict[str, bytes], *, system: bool = False) -> bytes:
    """A class with its members and their types. A type is its byte and what follows it."""
    head = (b"\x04" if system else b"\x05") + number(identifier) + text(name) + number(len(members))
    names = b"".join(text(each) for each in members)
    kinds = b"".join(each[:1] for each in members.values()) + b"".join(each[1:] for each in members.values())
    return head + names + kinds + (b"" if system else number(2))


def body(*records: bytes) -> bytes:
    return HEADER + b"".join(records) + END


INT, STRING, OBJECT = b"\x00\x08", b"\x01", b"\x02"
LIBRARY_RECORD = LIBRARY + text("Shop, Version=1.0.0.0")


def test_a_text_that_dotnet_wrote() -> None:
    assert read(b64decode("AAEAAAD/////AQAAAAAAAAAGAQAAAAVoZWxsbws=")) == "hello"


def test_a_number_that_dotnet_wrote() -> None:
    wrote = "AAEAAAD/////AQAAAAAAAAAEAQAAAAxTeXN0ZW0uSW50MzIBAAAAB21fdmFsdWUACAUAAAAL"
    assert read(b64decode(wrote)) == 5


def test_an_object_with_fields() -> None:
    members = {"<Id>k__BackingField": INT, "customer": STRING, "note": STRING, "next": OBJECT}
    made = body(
        LIBRARY_RECORD,
        shape(1, "Shop.Order", members),
        number(7) + string(3, "Ada") + NULL,
        shape(4, "Shop.Tag", {"name": STRING}) + string(5, "gift"),
    )
    assert read(made) == {
        TYPE: "Shop.Order",
        "Id": 7,
        "customer": "Ada",
        "note": None,
        "next": {TYPE: "Shop.Tag", "name": "gift"},
    }


UNIX_EPOCH = 621_355_968_000_000_000  # in ticks of .NET
PRIMITIVES = [
    (1, b"\x01", True),
    (3, "é".encode(), "é"),
    (5, text("12.50"), "12.50"),
    (6, struct.pack("<d", 1.5), 1.5),
    (7, struct.pack("<h", -2), -2),
    (8, number(-3), -3),
    (9, struct.pack("<q", 1 << 40), 1 << 40),
    (10, b"\xff", -1),
    (11, struct.pack("<f", 0.25), 0.25),
    (12, struct.pack("<q", 15_000_000), "00:00:01.5"),
    (13, struct.pack("<q", UNIX_EPOCH + 1_700_000_000 * 10_000_000 | 1 << 62), "2023-11-14T22:13:20Z"),
    (14, struct.pack("<H", 65535), 65535),
    (15, struct.pack("<I", 1 << 31), 1 << 31),
    (16, struct.pack("<Q", 1 << 63), 1 << 63),
    (18, text("t"), "t"),
]


@pytest.mark.parametrize(("kind", "raw", "value"), PRIMITIVES)
def test_primitives_in_fields_in_arrays_and_alone(kind: int, raw: bytes, value: Any) -> None:
    in_field = body(LIBRARY_RECORD, shape(1, "T", {"f": bytes([0, kind])}), raw)
    assert read(in_field) == {TYPE: "T", "f": value}
    assert read(body(b"\x0f" + number(1) + number(2) + bytes([kind]), raw, raw)) == [value, value]
    assert read(body(b"\x10" + number(1) + number(1), b"\x08" + bytes([kind]) + raw)) == [value]


def test_arrays_with_nulls_and_references() -> None:
    strings = b"\x11" + number(1) + number(6)
    made = body(strings, string(2, "a"), b"\x09" + number(2), b"\x0d\x02", NULL, b"\x0e" + number(1))
    assert read(made) == ["a", "a", None, None, None, None]
    grid = b"\x07" + number(1) + b"\x02" + number(2) + number(2) + number(1) + b"\x00\x08"
    assert read(body(grid, number(4), number(5))) == [[4], [5]]


@pytest.mark.parametrize(
    ("form", "lengths", "lower", "expected"),
    [
        (0, (3,), (), [1, 2, 3]),
        (2, (2, 2), (), [[1, 2], [3, 4]]),
        (2, (1, 2, 2), (), [[[1, 2], [3, 4]]]),
        (2, (2, 0), (), []),
        (3, (2,), (5,), [1, 2]),
        (5, (2, 1), (1, -1), [[1], [2]]),
    ],
)
def test_arrays_of_every_shape(form: int, lengths: tuple[int, ...], lower: tuple[int, ...], expected: Any) -> None:
    head = b"\x07" + number(1) + bytes([form]) + b"".join(map(number, (len(lengths), *lengths, *lower))) + INT
    assert read(body(head, *(number(each + 1) for each in range(prod(lengths))))) == expected


def test_bytes_are_bytes() -> None:
    assert read(body(b"\x0f" + number(1) + number(3) + b"\x02", b"\0\xff\x01")) == b"\0\xff\x01"
    assert read(body(LIBRARY_RECORD, shape(1, "T", {"f": b"\x00\x02"}), b"\xff")) == {TYPE: "T", "f": 255}


def test_a_class_that_was_described_before() -> None:
    tags = b"\x10" + number(1) + number(2)
    made = body(
        LIBRARY_RECORD, tags, shape(4, "Tag", {"n": INT}), number(1), b"\x01" + number(6) + number(4) + number(2)
    )
    assert read(made) == [{TYPE: "Tag", "n": 1}, {TYPE: "Tag", "n": 2}]


def test_lists_and_guids_are_simplified() -> None:
    name = "System.Collections.Generic.List`1[[System.Int32, mscorlib]]"
    members = {"_items": b"\x07\x08", "_size": INT, "_version": INT}
    made = body(shape(1, name, members, system=True), b"\x09" + number(2), number(2), number(2))
    made = made[:-1] + b"\x0f" + number(2) + number(4) + b"\x08" + b"".join(map(number, (8, 9, 0, 0))) + END
    assert read(made) == [8, 9]
    guid = {"_a": b"\x00\x08", "_b": b"\x00\x07", "_c": b"\x00\x07"} | {f"_{each}": b"\x00\x02" for each in "defghijk"}
    raw = struct.pack("<ihh", 0x01020304, 0x0506, -1) + bytes(range(8))
    assert read(body(shape(1, "System.Guid", guid, system=True), raw)) == "01020304-0506-ffff-0001-020304050607"


def test_an_object_inside_itself_is_named() -> None:
    made = body(LIBRARY_RECORD, shape(1, "Node", {"next": OBJECT}), b"\x09" + number(1))
    assert read(made) == {TYPE: "Node", "next": {"$ref": 1}}


def test_references_that_repeat_each_other_do_not_explode() -> None:
    """Twenty arrays, each of which contains the next one twice: a million values from some hundred bytes."""
    arrays = [b"\x10" + number(level) + number(2) + (b"\x09" + number(level + 1)) * 2 for level in range(1, 21)]
    assert json.dumps(read(body(*arrays, string(21, "end")))).count('"$ref"') > 0


@pytest.mark.parametrize("long", ["string", "name"])
def test_texts_that_many_references_repeat_do_not_explode(long: str) -> None:
    """Ten thousand references to one long text, or as many objects of a class with one: 110 kB would become 200 MB."""
    text_of_50k = b"\xd0\x86\x03" + b"x" * 50_000
    made: tuple[bytes, ...]
    if long == "string":
        made = (b"\x06" + number(2) + text_of_50k, b"\x10" + number(1) + number(9000), (b"\x09" + number(2)) * 9000)
    else:
        first = b"\x04" + number(10) + text_of_50k + number(0)
        made = (
            b"\x10" + number(1) + number(5000),
            first,
            *(b"\x01" + number(11 + n) + number(10) for n in range(4999)),
        )
    assert len(json.dumps(read(body(*made)), default=repr)) < 12 << 20
    once = b"\x06" + number(1) + b"\x80\x80\xc0\x01" + b"x" * (3 << 20)
    assert len(read(body(once))) == 3 << 20  # an honest text may be as long as a packet


@pytest.mark.parametrize("part", [-(2**31), 2**31, 2**63 - 1, -(2**63)])
def test_a_guid_of_any_numbers_is_a_value(part: int) -> None:
    members = {f"_{letter}": b"\x00\x09" for letter in "abcdefghijk"}
    made = body(shape(1, "System.Guid", members, system=True), struct.pack("<q", part) * 11)
    assert len(read(made)) == 36


def test_nulls_do_not_explode() -> None:
    full = b"\x10" + number(1) + number(MOST_VALUES) + b"\x0e" + number(MOST_VALUES)
    with pytest.raises(RemoteProtocolError, match=f"at most {MOST_VALUES:,} values"):
        read(body(full, full.replace(number(1), number(2), 1)))


def test_a_class_without_the_types_of_its_members() -> None:
    """[MS-NRBF] 2.3.2.2, 2.3.2.4: each member is a record that says what it is."""
    members = number(2) + text("n") + text("s")
    values = b"\x08\x08" + number(5) + string(3, "x")
    expected = {TYPE: "T", "n": 5, "s": "x"}
    assert read(body(LIBRARY_RECORD, b"\x03" + number(1) + text("T") + members + number(2), values)) == expected
    assert read(body(b"\x02" + number(1) + text("T") + members, values)) == expected


SPECIFIED = """
00 01 00 00 00 ff ff ff ff 01 00 00 00 00 00 00 00 15 14 00 00 00 12 0b 53 65 6e 64 41 64 64 72 65 73 73 12 6f 44 4f 4a
52 65 6d 6f 74 69 6e 67 4d 65 74 61 64 61 74 61 2e 4d 79 53 65 72 76 65 72 2c 20 44 4f 4a 52 65 6d 6f 74 69 6e 67 4d 65
74 61 64 61 74 61 2c 20 56 65 72 73 69 6f 6e 3d 31 2e 30 2e 32 36 32 32 2e 33 31 33 32 36 2c 20 43 75 6c 74 75 72 65 3d
6e 65 75 74 72 61 6c 2c 20 50 75 62 6c 69 63 4b 65 79 54 6f 6b 65 6e 3d 6e 75 6c 6c 10 01 00 00 00 01 00 00 00 09 02 00
00 00 0c 03 00 00 00 51 44 4f 4a 52 65 6d 6f 74 69 6e 67 4d 65 74 61 64 61 74 61 2c 20 56 65 72 73 69 6f 6e 3d 31 2e 30
2e 32 36 32 32 2e 33 31 33 32 36 2c 20 43 75 6c 74 75 72 65 3d 6e 65 75 74 72 61 6c 2c 20 50 75 62 6c 69 63 4b 65 79 54
6f 6b 65 6e 3d 6e 75 6c 6c 05 02 00 00 00 1b 44 4f 4a 52 65 6d 6f 74 69 6e 67 4d 65 74 61 64 61 74 61 2e 41 64 64 72 65
73 73 04 00 00 00 06 53 74 72 65 65 74 04 43 69 74 79 05 53 74 61 74 65 03 5a 69 70 01 01 01 01 03 00 00 00 06 04 00 00
00 11 4f 6e 65 20 4d 69 63 72 6f 73 6f 66 74 20 57 61 79 06 05 00 00 00 07 52 65 64 6d 6f 6e 64 06 06 00 00 00 02 57 41
06 07 00 00 00 05 39 38 30 35 34 0b
"""


def test_the_call_of_a_remote_method_in_the_specification() -> None:
    """[MS-NRBF] 3"""
    call = read(bytes.fromhex(SPECIFIED))
    assert (call[TYPE], call["method"]) == ("method call", "SendAddress")
    address = {"Street": "One Microsoft Way", "City": "Redmond", "State": "WA", "Zip": "98054"}
    assert call["array"] == [{TYPE: "DOJRemotingMetadata.Address"} | address]


def test_the_answer_of_a_remote_method() -> None:
    inline = (
        b"\x16" + number(0x02 | 0x20 | 0x800) + b"\x08" + number(5) + b"\x12" + text("call") + number(1) + b"\x01\x01"
    )
    answer = struct.pack("<biiii", 0, 0, 0, 1, 0) + inline + END
    assert read(answer) == {TYPE: "method return", "value": 5, "context": "call", "arguments": [True]}


def members(**fields: tuple[bytes, bytes]) -> tuple[dict[str, bytes], bytes]:
    return {name: kind for name, (kind, _) in fields.items()}, b"".join(raw for _, raw in fields.values())


LONG, SHORT, TEXTS, OBJECTS = b"\x00\x09", b"\x00\x07", b"\x06", b"\x05"
STRINGS_A_B = b"\x11" + number(50) + number(2) + string(51, "a") + string(52, "b")
NUMBERS_1_2 = b"\x0f" + number(60) + number(2) + b"\x08" + number(1) + number(2)
REF_50, REF_60 = b"\x09" + number(50), b"\x09" + number(60)
KNOWN = [
    (
        "System.Decimal",
        members(flags=(INT, number(0x20000)), hi=(INT, number(0)), lo=(INT, number(1250)), mid=(INT, number(0))),
        "12.50",
    ),
    (
        "System.Decimal",
        members(flags=(INT, number(-(1 << 31))), hi=(INT, number(-1)), lo=(INT, number(-1)), mid=(INT, number(-1))),
        "-79228162514264337593543950335",
    ),
    ("System.TimeSpan", members(_ticks=(LONG, struct.pack("<q", -937_840_050_000))), "-1.02:03:04.005"),
    (
        "System.DateTime",
        members(ticks=(LONG, bytes(8)), dateData=(b"\x00\x10", struct.pack("<Q", UNIX_EPOCH + 1 | 1 << 62))),
        "1970-01-01T00:00:00.0000001Z",
    ),
    (
        "System.DateTimeOffset",
        members(DateTime=(b"\x00\x0d", struct.pack("<Q", UNIX_EPOCH)), OffsetMinutes=(SHORT, struct.pack("<h", -90))),
        "1969-12-31T22:30:00-01:30",
    ),
    (
        "System.Version",
        members(
            _Major=(INT, number(1)), _Minor=(INT, number(2)), _Build=(INT, number(-1)), _Revision=(INT, number(-1))
        ),
        "1.2",
    ),
    ("System.Uri", members(AbsoluteUri=(STRING, string(70, "http://a/"))), "http://a/"),
    (
        "System.Collections.ArrayList",
        members(_items=(OBJECTS, REF_50), _size=(INT, number(1)), _version=(INT, number(1))),
        ["a"],
    ),
    ("System.Collections.Hashtable", members(Keys=(OBJECTS, REF_50), Values=(OBJECTS, REF_60)), {"a": 1, "b": 2}),
    (
        "System.Collections.Generic.Queue`1[[System.Int32, mscorlib]]",
        members(_array=(b"\x07\x08", REF_60), _head=(INT, number(1)), _tail=(INT, number(0)), _size=(INT, number(2))),
        [2, 1],
    ),
    (
        "System.Collections.Generic.Stack`1[[System.Int32, mscorlib]]",
        members(_array=(b"\x07\x08", REF_60), _size=(INT, number(1))),
        [1],
    ),
    (
        "System.Collections.Generic.HashSet`1[[System.String, mscorlib]]",
        members(Capacity=(INT, number(2)), Elements=(TEXTS, REF_50)),
        ["a", "b"],
    ),
    ("System.Collections.Generic.HashSet`1[[System.String, mscorlib]]", members(Capacity=(INT, number(0))), []),
    (
        "System.Collections.Generic.Dictionary`2[[System.String, mscorlib],[System.Int32, mscorlib]]",
        members(HashSize=(INT, number(0))),
        {},
    ),
    (
        "System.Numerics.BigInteger",
        members(_sign=(INT, number(-1)), _bits=(b"\x07\x0f", REF_60)),
        str(-(1 + (2 << 32))),
    ),
    ("System.DayOfWeek", members(value__=(INT, number(3))), {TYPE: "System.DayOfWeek", "value__": 3}),
]


@pytest.mark.parametrize(("name", "content", "expected"), KNOWN)
def test_classes_of_dotnet_are_what_they_are(name: str, content: tuple[dict[str, bytes], bytes], expected: Any) -> None:
    types, raw = content
    assert read(body(shape(1, name, types, system=True), raw, STRINGS_A_B, NUMBERS_1_2)) == expected


@pytest.mark.parametrize(("name", "content", "_"), KNOWN)
def test_a_class_with_the_name_of_another_is_an_object(name: str, content: object, _: object) -> None:
    """Whoever writes the bytes chooses the name: fields of another kind are shown as they are."""
    found = read(body(shape(1, name, {"_size": STRING, "Keys": INT}, system=True), string(3, "x"), number(5)))
    assert found == {TYPE: name, "_size": "x", "Keys": 5}


def test_a_dictionary_whose_keys_are_no_names_is_a_list_of_pairs() -> None:
    pair = "System.Collections.Generic.KeyValuePair`2[[System.String, mscorlib],[System.Int32, mscorlib]]"
    name = "System.Collections.Generic.Dictionary`2[[System.String, mscorlib],[System.Int32, mscorlib]]"
    types = {"Version": INT, "HashSize": INT, "KeyValuePairs": b"\x03" + text("pairs")}
    head = b"\x07" + number(80) + b"\x00" + number(1) + number(2) + b"\x03" + text(pair[:100])
    first = shape(81, pair[:120], {"key": STRING, "value": INT}, system=True)
    for keys, expected in (
        ((string(82, "a"), string(83, "b")), {"a": 1, "b": 2}),
        ((NULL, string(83, "b")), [{"key": None, "value": 1}, {"key": "b", "value": 2}]),
    ):
        second = b"\x01" + number(84) + number(81) + keys[1] + number(2)
        made = (shape(1, name[:120], types, system=True), number(1) + number(3) + b"\x09" + number(80))
        assert read(body(*made, head, first, keys[0], number(1), second)) == expected


def test_deep_objects_are_refused() -> None:
    nested = b"".join(b"\x10" + number(level) + number(1) for level in range(1, DEEPEST + 3))
    with pytest.raises(RemoteProtocolError, match=f"nested more than {DEEPEST} times"):
        read(body(nested, NULL))


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (b"text", "must start with a header"),
        (body(), "has no object 1, the root"),
        (body(string(1, "a")) + b"x", "must end here, has 1 bytes more"),
        (HEADER + string(1, "a")[:-1], "must have 1 bytes more, has 0"),
        (body(string(1, "a"), string(1, "b")), "has object 1 twice"),
        (body(b"\x10" + number(1) + number(1) + b"\x09" + number(9)), "has no object 9"),
        (body(b"\x00"), "a record that is not read: header"),
        (body(b"\x15"), "must have 4 bytes more"),
        (body(b"\x63"), "must have a known record, got 99"),
        (body(b"\x0f" + number(1) + number(-1) + b"\x08"), "arrays of at most"),
        (body(b"\x0f" + number(1) + number(1) + b"\x04"), "a known primitive type, got 4"),
        (body(b"\x01" + number(1) + number(5)), "has no class 5"),
        (body(b"\x10" + number(1) + number(1) + b"\x0e" + number(2)), "at most 1 nulls here, got 2"),
        (body(b"\x06" + number(1) + b"\x01\xff"), "text in UTF-8"),
        (body(b"\x06" + number(1) + b"\xff" * 6), "lengths of at most five bytes"),
    ],
)
def test_damaged_bodies_are_refused_in_a_sentence(made: bytes, sentence: str) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        read(made)


@given(st.binary(max_size=200), st.integers(0, 100))
def test_any_bytes_give_a_value_or_a_sentence(noise: bytes, place: int) -> None:
    good = body(LIBRARY_RECORD, shape(1, "T", {"f": INT, "s": STRING}), number(1), string(3, "x"))
    for made in (HEADER + noise, good[:place] + noise + good[place + len(noise) :]):
        with suppress(RemoteProtocolError):
            read(made)


def test_what_looks_like_it() -> None:
    assert is_nrbf(body(string(1, "a")))
    assert not is_nrbf(HEADER)
    assert not is_nrbf(b"\x00" * 40)


SAMPLES = (
    body(LIBRARY_RECORD, shape(1, "T", {"f": INT, "s": STRING}), number(1), string(3, "x")),
    body(shape(1, "System.Guid", {f"_{each}": b"\x00\x08" for each in "abcdefghijk"}, system=True), number(7) * 11),
    body(b"\x10" + number(1) + number(3), string(2, "a"), b"\x09" + number(2), NULL),
    body(b"\x0f" + number(1) + number(4) + b"\x0d" + bytes(32)),
    body(b"\x07" + number(1) + b"\x00" + number(1) + number(2) + INT, number(1) * 2),
)


@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=6))
def test_changed_samples_give_a_value_or_a_sentence(sample: bytes, changes: list[tuple[int, int]]) -> None:
    made = bytearray(sample)
    for place, value in changes:
        made[place % len(made)] = value
    with suppress(RemoteProtocolError):
        read(bytes(made))
