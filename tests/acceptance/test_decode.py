"""`postroad decode` as a user runs it: files of every form, damage, JSON lines, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.rpc.pdu import Fault
from postroad.wire.octets import NULL_GUID
from tests.captures import SYN, pcap, pcapng, ping_frame, segment
from tests.frames import FINAL_ACK, FRAME_1, FRAME_3, FRAME_5
from tests.packets import by_hand, patched, properties
from tests.soap_samples import SIMPLE
from tests.vectors import FRAME_7, FRAME_8, V1, V2

# The keys of a message that a packet itself can fill, as the outside contract lists them.
MESSAGE_KEYS = {
    "id",
    "class",
    "class_name",
    "label",
    "body_type",
    "priority",
    "delivery",
    "correlation_id",
    "sent_at",
    "source_manager",
    "destination_queue",
    "admin_queue",
    "response_queue",
    "dead_letter_queue",
    "extension_base64",
    "app_tag",
    "hops",
    "authenticated",
    "encrypted",
    "sender_id",
    "first_in_transaction",
    "last_in_transaction",
    "transaction_id",
    "authentication_level",
    "hash",
    "cipher",
}
BAD_LABEL = patched(V1, 89, b"\xfb")
STREAM = FRAME_3 + FRAME_5 + FRAME_7 + V1 + V2


def decode(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "postroad", "decode", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)


def decoded(file: Path, data: bytes, *options: str, code: int = 0) -> list[dict[str, Any]]:
    """The JSON lines for a file of these bytes."""
    file.write_bytes(data)
    run = decode("--json", str(file), *options)
    assert run.returncode == code, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "packets"


def segments(size: int = 1000) -> list[bytes]:
    frames = [segment(sequence=99, flags=SYN)]
    return frames + [segment(STREAM[at : at + size], 100 + at) for at in range(0, len(STREAM), size)]


KINDS = ["EstablishConnection", "ConnectionParameters", "UserMessage", "UserMessage", "UserMessage"]


@pytest.mark.parametrize(
    "data",
    [
        STREAM,
        STREAM.hex(" ").encode(),
        pcap(segments()),
        pcap(segments(), order=">", nanoseconds=True),
        pcapng(segments()),
        pcap([segments()[0], *segments()[:0:-1]]),
    ],
    ids=["raw", "hex", "pcap", "pcap, the other order, nanoseconds", "pcapng", "segments out of order"],
)
def test_every_form_of_file(file: Path, data: bytes) -> None:
    lines = decoded(file, data)
    assert [line["packet"] for line in lines] == KINDS
    assert [line["number"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["size"] for line in lines] == [572, 32, 2224, 152, 172]
    assert lines[2]["label"] == "mqsender label"


def test_a_message_has_the_keys_of_the_contract(file: Path) -> None:
    (message,) = decoded(file, V1)
    assert message.keys() >= MESSAGE_KEYS
    assert not message.keys() & {"lookup_id", "arrived_at", "error"}
    assert message["id"] == "{11223344-5566-7788-99aa-bbccddeeff00}\\1"
    assert message["sent_at"] == "2023-09-12T06:06:56Z"
    assert message["body"] == "abc"
    assert message["headers"]["user_header"]["flags"] == 0x0021EC00


def test_a_captured_packet_says_where_and_when(file: Path) -> None:
    (message, ping) = decoded(file, pcap([segment(V1, 7), ping_frame(FRAME_1)]))
    assert {key: message[key] for key in ("frame", "time", "from", "to", "offset")} == {
        "frame": 1,
        "time": "2023-11-14T22:13:21.123456Z",
        "from": "10.0.0.1:49759",
        "to": "10.0.0.2:1801",
        "offset": 0,
    }
    assert (ping["packet"], ping["frame"], ping["to"]) == ("Ping", 2, "10.0.0.2:3527")


def test_a_damaged_packet_in_the_middle(file: Path) -> None:
    lines = decoded(file, FRAME_8 + BAD_LABEL + V2, code=1)
    assert [line.get("packet") for line in lines] == ["SessionAck", None, "UserMessage"]
    damaged = lines[1]
    assert damaged["error"] == "LabelLength must be at most 250, got 251"
    assert (damaged["offset"], damaged["packet_offset"], damaged["size"]) == (36 + 89, 36, 152)
    assert damaged["headers"]["user_header"]["message_id"] == 1


def test_a_lost_segment(file: Path) -> None:
    lost = [frame for number, frame in enumerate(segments(500)) if number != 4]
    lines = decoded(file, pcap(lost), code=1)
    assert [line.get("packet") for line in lines if "packet" in line] == [*KINDS[:2], *KINDS[3:]]
    errors = [(line["error"], line["size"]) for line in lines if "error" in line]
    assert ("the capture lacks 500 bytes of the stream here", 500) in errors
    assert all("offset" in line for line in lines)


def test_a_capture_that_starts_inside_a_packet(file: Path) -> None:
    lines = decoded(file, pcap([segment(V1[60:] + V2, 5)]), code=1)
    assert lines[0]["error"] == "the capture begins inside this stream"
    assert (lines[0]["offset"], lines[0]["size"]) == (0, 92)
    assert lines[1]["packet"] == "UserMessage"


def test_other_ports(file: Path) -> None:
    data = pcap([segment(V1, destination=("10.0.0.2", 11801)), segment(V2, destination=("10.0.0.3", 21801))])
    assert len(decoded(file, data, "--port", "11801", "--port", "21801")) == 2
    run = decode(str(file))
    assert run.returncode == 1
    assert run.stdout == b""
    assert run.stderr.decode() == (
        f"postroad: {file}: no packet in this file: 2 frames, none of them on the ports of MSMQ\n"
    )


def test_standard_input() -> None:
    run = decode("--json", "-", stdin=FRAME_8.hex().encode())
    assert run.returncode == 0
    assert json.loads(run.stdout)["packet"] == "SessionAck"


def test_text_for_people(file: Path) -> None:
    file.write_bytes(pcap([segment(V1, 7)]))
    run = decode(str(file))
    assert (run.returncode, run.stderr) == (0, b"")
    lines = run.stdout.decode().splitlines()
    assert lines[0] == (
        "1  UserMessage  152 bytes  10.0.0.1:49759 -> 10.0.0.2:1801  2023-11-14T22:13:21.123456Z  frame 1  offset 0"
    )
    assert "   BaseHeader  at 0" in lines
    assert "     flags                           0x0003 priority 3" in lines
    assert "     time_to_reach_queue             345600 s (4 days)" in lines
    assert "     flags                           0x05 positive-arrival, negative-arrival" in lines
    assert lines[-3:] == ["   Body  3 bytes, text", "     abc", ""]


def test_damage_for_people(file: Path) -> None:
    file.write_bytes(b"noise" + BAD_LABEL + FINAL_ACK)
    run = decode(str(file))
    assert run.returncode == 1
    text = run.stdout.decode()
    assert "-  5 bytes skipped  offset 0\n" in text
    assert "1  damaged packet  152 bytes  offset 5\n" in text
    assert "   at offset 94: LabelLength must be at most 250, got 251\n" in text
    assert "2  FinalAck" in text
    assert "     acknowledged_message            {a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf}\\6\n" in text
    assert run.stderr.decode() == f"postroad: {file}: 2 faults, 1 packet decoded\n"


def test_text_from_the_network_does_not_reach_a_terminal_as_it_is(file: Path) -> None:
    body = "line\r\n\x1b[2J".encode("utf-16-le")
    file.write_bytes(by_hand(properties=properties("\x1b]0;owned\x07", body=body, body_type=8)))
    run = decode(str(file))
    assert run.returncode == 0
    assert b"\x1b" not in run.stdout
    assert b"label                           \\x1b]0;owned\\x07\n" in run.stdout
    assert b"     line\n     \\x1b[2J\n" in run.stdout


def test_a_long_body_is_cut_for_people_and_whole_in_json(file: Path) -> None:
    (message,) = decoded(file, by_hand(properties=properties(body=bytes(range(256)) * 40, body_type=17)))
    assert len(message["body_base64"]) == 4 * 3414
    text = decode(str(file)).stdout.decode()
    assert "     0000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................\n" in text
    assert "     ... 10240 bytes in all; --json prints them\n" in text
    assert len(text.splitlines()) < 50


def test_output_that_nobody_reads_is_no_fault(file: Path) -> None:
    file.write_bytes(V1 * 2000)
    command = [sys.executable, "-m", "postroad", "decode", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.readline()
        run.stdout.close()
        assert run.stderr.read() == b""


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the file is empty"),
        (b"\n# nothing but a comment\n", "no packet in this file"),
        (b"# no hex\nat all\n", "no packet in this file: line 2 is not hex"),
        (
            bytes(100),
            "no packet in this file: signature must be 0x524f494c, got 0x00000000: this is not an MSMQ packet",
        ),
        (pcap([]), "no packet in this file"),
        (
            pcap([])[:10],
            "no packet in this file: the file header of 24 bytes breaks off after 10; "
            "the rest of the file cannot be read",
        ),
        (b"\x1f\x8b\x08\0" + bytes(30), "no packet in this file: the file is compressed; unpack it first"),
    ],
)
def test_a_file_without_a_packet_gets_one_sentence(file: Path, data: bytes, sentence: str) -> None:
    file.write_bytes(data)
    for options in ([], ["--json"]):
        run = decode(*options, str(file))
        assert (run.returncode, run.stdout) == (1, b"")
        assert run.stderr.decode() == f"postroad: {file}: {sentence}\n"


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    missing = decode(str(tmp_path / "nowhere.pcap"))
    assert (missing.returncode, missing.stdout) == (2, b"")
    assert missing.stderr.decode() == (
        f"postroad: {tmp_path / 'nowhere.pcap'}: cannot be opened: No such file or directory\n"
    )
    directory = decode(str(tmp_path))
    assert (directory.returncode, directory.stdout) == (2, b"")
    assert directory.stderr.decode() == f"postroad: {tmp_path}: cannot be opened: Is a directory\n"


@pytest.mark.parametrize("name", ["frame7.hex", "frame8.hex", "v1-express.hex", "v2-transactional.hex"])
def test_the_examples(name: str) -> None:
    run = decode("--json", str(Path(__file__).parents[2] / "examples" / name))
    assert (run.returncode, run.stderr) == (0, b"")
    assert len(run.stdout.splitlines()) == 1


# What is no packet of a session


def test_a_message_says_what_its_body_and_extension_say(file: Path) -> None:
    extension = b'{"rbs2-msg-type": "Shop.Order, Shop"}'
    packet = Composer(NULL_GUID, parse_format_name(r"DIRECT=OS:alpha\private$\q")).compose(
        Message(b'{"id": 1}', extension=extension), 1, 1_700_000_000
    )
    (found,) = decoded(file, packet)
    assert found["decoded"] == {
        "body_kind": "json",
        "body_text": '{\n  "id": 1\n}',
        "headers": {"rbs2-msg-type": "Shop.Order, Shop"},
        "system": "rebus",
        "message_type": "Shop.Order",
    }
    lines = decode(str(file)).stdout.decode().splitlines()
    content = lines.index("   Content")
    assert [line.split() for line in lines[content + 1 : content + 4]] == [
        ["system", "rebus"],
        ["message_type", "Shop.Order"],
        ["rbs2-msg-type", "Shop.Order,", "Shop"],
    ]
    assert "   Body  9 bytes, json" in lines


def test_a_file_that_is_a_body(file: Path) -> None:
    (found,) = decoded(file, b'{"a": [1]}')
    assert (found["packet"], found["size"], found["body_kind"], found["number"]) == ("Body", 10, "json", 1)
    assert decode(str(file)).stdout.decode().split()[-6:] == ["{", '"a":', "[", "1", "]", "}"]
    evil = b'{"a": "\x1b[2J"}'
    file.write_bytes(evil)
    assert b"\x1b" not in decode(str(file)).stdout


def test_soap_and_rpc(file: Path) -> None:
    (found,) = decoded(file, SIMPLE.encode())
    assert (found["packet"], found["label"]) == ("SoapMessage", "mqsender label")
    text = decode(str(file)).stdout.decode()
    assert "SoapMessage" in text
    assert "mqsender label" in text
    fault = Fault(call_id=2, context_id=3, status=5).encode()
    (found,) = decoded(file, fault)
    assert (found["packet"], found["status"]) == ("RpcFault", "0x00000005")
    found, cut_off = decoded(file, fault + fault[:-1], code=1)
    assert (found["packet"], cut_off["error"]) == ("RpcFault", "the RPC fragment is cut off here")
