"""Direct format names, [MS-MQMQ] 2.1.2, and their form on the wire."""

from __future__ import annotations

import pytest

from postroad.errors import IllegalFormatName, Status
from postroad.names import (
    DirectName,
    MsmqVersion,
    PathName,
    Protocol,
    QueueFormat,
    QueueKind,
    QueueSuffixType,
    parse_format_name,
)
from postroad.wire.octets import Writer
from postroad.wire.queue_names import destination_field


def direct(text: str) -> DirectName:
    name = parse_format_name(text)
    assert isinstance(name, DirectName)
    assert str(name).upper() == text.upper()
    return name


def refused(text: str, strict: bool = False) -> IllegalFormatName:
    with pytest.raises(IllegalFormatName) as caught:
        parse_format_name(text, strict=strict)
    return caught.value


@pytest.mark.spec("MQ-2.1.2-01")
def test_a_direct_name_is_a_protocol_an_address_and_a_tail() -> None:
    name = direct(r"DIRECT=OS:host\q")
    assert (name.protocol, name.host, name.port) == (Protocol.OS, "host", None)
    assert (name.tail.kind, name.tail.name) == (QueueKind.PUBLIC, "q")
    assert direct(r"Direct=os:host\q") == name


@pytest.mark.spec("MQ-2.1.2-01")
@pytest.mark.parametrize(
    ("text", "position"),
    [
        (r"DIRECT=OS\q", 7),
        (r"DIRECT=host\q", 7),
        (r"OS:host\q", 0),
        (r"DIRECTOS:host\q", 0),
        (r"DIRECT=OS:host", 14),
        ("DIRECT=OS:host\\", 15),
        (r"DIRECT=OS:\q", 10),
        ("DIRECT=", 7),
        (r"DIRECT=DIRECT=OS:host\q", 7),
    ],
)
def test_an_incomplete_direct_name_is_refused_at_its_gap(text: str, position: int) -> None:
    error = refused(text)
    assert error.position == position
    assert error.status is Status.ILLEGAL_FORMATNAME


@pytest.mark.spec("MQ-2.1.2-02")
@pytest.mark.parametrize(
    ("text", "protocol"),
    [
        (r"DIRECT=TCP:10.0.0.1\q", Protocol.TCP),
        (r"DIRECT=OS:h\q", Protocol.OS),
        (r"DIRECT=HTTP://h/MSMQ\q", Protocol.HTTP),
        (r"DIRECT=HTTPS://h/MSMQ\q", Protocol.HTTPS),
        (r"DIRECT=IPX:00000012:00A0246F4A15\q", Protocol.IPX),
        (r"DIRECT=SPX:00000012.00A0246F4A15\PRIVATE$\order_queue$", Protocol.SPX),
    ],
)
def test_protocols(text: str, protocol: Protocol) -> None:
    assert direct(text).protocol is protocol


@pytest.mark.spec("MQ-2.1.2-02")
def test_no_other_protocol() -> None:
    assert "TCP:" in refused(r"DIRECT=UDP:10.0.0.1\q").fault
    refused(r"DIRECT=SPX:00000012.00A0246F4A15\q", strict=True)


@pytest.mark.spec("MQ-2.1.2-03")
def test_the_journal_of_a_private_queue() -> None:
    name = direct(r"DIRECT=TCP:10.0.0.1\PRIVATE$\q;JOURNAL")
    assert (name.tail.kind, name.tail.name, name.tail.journal) == (QueueKind.PRIVATE, "q", True)
    assert name.suffix is QueueSuffixType.JOURNAL
    assert name.is_read_only
    plain = direct(r"DIRECT=TCP:10.0.0.1\PRIVATE$\q")
    assert plain.suffix is QueueSuffixType.NONE
    assert not plain.is_read_only
    assert plain != name


@pytest.mark.spec("MQ-2.1.2-04")
def test_the_journal_of_a_public_queue() -> None:
    name = direct(r"DIRECT=OS:host\q;journal")
    assert (name.tail.kind, name.tail.name, name.tail.journal) == (QueueKind.PUBLIC, "q", True)
    assert name.suffix is QueueSuffixType.JOURNAL


@pytest.mark.spec("MQ-2.1.2-05")
@pytest.mark.parametrize("word", ["JOURNAL", "DEADLETTER", "DEADXACT"])
def test_the_queues_of_a_computer(word: str) -> None:
    name = direct(f"DIRECT=OS:host\\SYSTEM$;{word}")
    assert name.tail.kind is QueueKind.SYSTEM
    assert name.suffix is QueueSuffixType[word]
    assert name.is_read_only
    assert direct(f"DIRECT=OS:host\\system$;{word.lower()}") == name


@pytest.mark.spec("MQ-2.1.2-05")
@pytest.mark.parametrize("tail", ["XACTONLY", "orders", "", "JOURNAL;JOURNAL", "DEADXACT;sub", "JOURNALS"])
def test_a_computer_has_no_other_queues(tail: str) -> None:
    refused(f"DIRECT=OS:host\\SYSTEM$;{tail}")


@pytest.mark.spec("MQ-2.1.2-06")
@pytest.mark.parametrize("word", ["DEADLETTER", "DEADXACT", "deadxact"])
@pytest.mark.parametrize("queue", [r"q", r"private$\q"])
def test_a_queue_has_no_dead_letters_of_its_own(queue: str, word: str) -> None:
    refused(f"DIRECT=OS:host\\{queue};{word}")


@pytest.mark.spec("MQ-2.1.2-07")
@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "0.0.0.0",
        "255.255.255.255",
        "::1",
        "fe80::1",
        "FE80:0:0:0:0:0:0:1",
        "::ffff:10.0.0.1",
        "fe80::1%eth0",
    ],
)
def test_tcp_takes_an_ip_address(address: str) -> None:
    assert direct(f"DIRECT=TCP:{address}\\q").host == address


@pytest.mark.spec("MQ-2.1.2-07")
@pytest.mark.parametrize(
    "address",
    [
        "hostname",
        "10.1.2",
        "10.1.2.256",
        "10.1.2.3:1801",
        "010.1.2.3",
        "[::1]",
        ":::",
        "1::2::3",
        "fe80::1%",
        "::1%a;b",
    ],
)
def test_tcp_takes_nothing_else(address: str) -> None:
    refused(f"DIRECT=TCP:{address}\\q")


def test_the_fault_says_what_to_write_instead() -> None:
    assert "DIRECT=OS:alpha" in refused(r"DIRECT=TCP:alpha\q").fault
    assert "not have brackets" in refused(r"DIRECT=TCP:[::1]\q").fault
    for written, instead in (("10.0.0.9:1801", "DIRECT=TCP:10.0.0.9"), ("alpha:1801", "DIRECT=OS:alpha")):
        for protocol in ("TCP", "OS"):
            fault = refused(rf"DIRECT={protocol}:{written}\q").fault
            assert (
                fault
                == f"a name must not have a port: write {instead}, and set the port in [peers] of the configuration"
            )


def test_an_ipv6_address_compares_by_its_value() -> None:
    assert direct(r"DIRECT=TCP:FE80:0::1\q") == direct(r"DIRECT=TCP:fe80::1\q")
    assert direct(r"DIRECT=HTTP://[FE80:0::1]/MSMQ\q") == direct(r"DIRECT=HTTP://[fe80::1]/MSMQ\q")
    assert direct(r"DIRECT=TCP:fe80::1\q") != direct(r"DIRECT=TCP:fe80::2\q")


@pytest.mark.spec("MQ-2.1.2-08")
@pytest.mark.parametrize("computer", ["host.dom.example", "HOST", "10.0.0.1", "fe80::1", ".", "h_1"])
def test_os_takes_any_computer_name(computer: str) -> None:
    assert direct(f"DIRECT=OS:{computer}\\q").host == computer


def test_a_forgotten_computer_is_named_as_the_fault() -> None:
    assert "computer is missing" in refused(r"DIRECT=OS:private$\q").fault
    assert "host is missing" in refused("DIRECT=HTTP://private$/msmq/q").fault


@pytest.mark.spec("MQ-2.1.2-09")
def test_ipx_takes_a_network_and_a_host_number() -> None:
    name = direct(r"DIRECT=IPX:00000012:00A0246F4A15\q")
    assert name.host.split(":") == ["00000012", "00A0246F4A15"]
    for address in ("00000012", "00000012.00A0246F4A15", "00000012:00A0246F4A1G", "00000012:", "1:2:3"):
        refused(f"DIRECT=IPX:{address}\\q")


@pytest.mark.spec("MQ-2.1.2-10")
def test_the_address_of_an_http_name() -> None:
    name = direct(r"DIRECT=HTTP://host/MSMQ\PRIVATE$\q")
    assert (name.protocol, name.host) == (Protocol.HTTP, "host")
    assert (name.tail.kind, name.tail.name) == (QueueKind.PRIVATE, "q")
    for text in (r"HTTP://host\q", r"HTTP:host/MSMQ\q", r"HTTP:/host/MSMQ\q", r"HTTP:///MSMQ\q", "HTTP://host/MSMQ"):
        refused(f"DIRECT={text}")
    refused(r"DIRECT=HTTPS://host/q")
    refused(r"DIRECT=HTTP://host/MSMQx\q")


@pytest.mark.spec("MQ-2.1.2-11")
def test_the_default_port_of_http() -> None:
    assert direct(r"DIRECT=HTTP://h/MSMQ\q").port == 80


@pytest.mark.spec("MQ-2.1.2-12")
def test_the_default_port_of_https() -> None:
    assert direct(r"DIRECT=HTTPS://h/MSMQ\q").port == 443


@pytest.mark.spec("MQ-2.1.2-13")
def test_the_host_and_port_of_an_http_name() -> None:
    name = direct(r"DIRECT=HTTP://h:8080/MSMQ\q")
    assert (name.host, name.port) == ("h", 8080)
    assert direct(r"DIRECT=HTTP://10.0.0.1:8080/MSMQ\q").host == "10.0.0.1"
    assert direct(r"DIRECT=HTTP://[fe80::1]:8080/MSMQ\q").host == "fe80::1"
    assert direct(r"DIRECT=HTTP://h:/MSMQ\q").port == 80
    assert direct(r"DIRECT=HTTP://h:00/MSMQ\q").port == 0
    assert refused(r"DIRECT=HTTP://h:80a/MSMQ\q").position == 18
    assert refused(r"DIRECT=HTTP://h:65536/MSMQ\q").position == 16
    refused(r"DIRECT=HTTP://h:²/MSMQ\q")
    refused(r"DIRECT=HTTP://[h]/MSMQ\q")
    refused(r"DIRECT=HTTP://user@h/MSMQ\q")


def test_a_port_of_many_digits_is_still_only_a_bad_port() -> None:
    refused(f"DIRECT=HTTP://h:{'9' * 5000}/MSMQ\\q")
    assert parse_format_name(f"DIRECT=HTTP://h:{'0' * 5000}1/MSMQ\\q") == direct(r"DIRECT=HTTP://h:1/MSMQ\q")


def test_http_names_take_slashes_and_keep_them() -> None:
    slashes, backslashes = "DIRECT=HTTP://h/msmq/private$/orders", r"DIRECT=HTTP://h/MSMQ\PRIVATE$\orders"
    assert direct(slashes) == direct(backslashes)
    assert hash(direct(slashes)) == hash(direct(backslashes))
    assert str(direct(slashes)) == slashes
    assert direct(slashes).wire_text == "HTTP://h/msmq/private$/orders"
    assert direct("DIRECT=HTTP://h/msmq/orders;journal").tail.journal
    refused(slashes, strict=True)
    refused(r"DIRECT=OS:h/private$/orders")


def test_http_names_compare_by_host_and_port() -> None:
    assert direct(r"DIRECT=HTTP://h:80/MSMQ\q") == direct(r"DIRECT=HTTP://H/msmq\Q")
    assert direct(r"DIRECT=HTTP://h:81/MSMQ\q") != direct(r"DIRECT=HTTP://h/MSMQ\q")
    assert direct(r"DIRECT=HTTPS://h/MSMQ\q") != direct(r"DIRECT=HTTP://h:443/MSMQ\q")


@pytest.mark.spec("MQ-2.1.2-14")
def test_a_subqueue_is_no_suffix_but_a_kind_of_its_own() -> None:
    name = direct(r"DIRECT=OS:h\private$\q;sub")
    assert (name.tail.name, name.tail.subqueue, name.tail.journal) == ("q", "sub", False)
    assert QueueFormat.from_format_name(name).m_qft == 8
    assert not name.is_read_only
    assert direct("DIRECT=OS:h\\q;" + "s" * 32).tail.subqueue == "s" * 32
    refused("DIRECT=OS:h\\q;" + "s" * 33)
    with pytest.raises(IllegalFormatName):
        parse_format_name(r"DIRECT=OS:h\q;sub", MsmqVersion.V3)


@pytest.mark.spec("MQ-2.2.7-13")
def test_rpc_has_no_prefix() -> None:
    name = direct(r"direct=OS:h\q")
    assert name.wire_text == r"OS:h\q"
    assert QueueFormat.from_format_name(name).arm == r"OS:h\q"


@pytest.mark.spec("MQ-2.2.18.1.5.2-05")
def test_packets_have_no_prefix() -> None:
    writer = Writer()
    destination_field(direct(r"DIRECT=OS:a04bm02\q"))[0].encode(writer)
    # [MS-MQQB] 4.1.7, frame 7
    assert writer.getvalue() == bytes.fromhex("1a004f0053003a0061003000340062006d00300032005c0071000000")


@pytest.mark.spec("MQ-2.2.18.1.4.1-02")
def test_the_wire_is_read_with_or_without_the_prefix() -> None:
    assert DirectName.from_wire(r"OS:h\q") == DirectName.from_wire(r"DIRECT=OS:h\q") == direct(r"DIRECT=OS:h\q")
    assert DirectName.from_wire(r"DIRECT=OS:h\q").wire_text == r"OS:h\q"


def test_a_bad_wire_text_is_refused_at_its_own_place() -> None:
    with pytest.raises(IllegalFormatName) as caught:
        DirectName.from_wire(r"OS:h\a,OS:h\b")
    assert (caught.value.name, caught.value.position) == (r"OS:h\a,OS:h\b", 6)
    with pytest.raises(IllegalFormatName):
        DirectName.from_wire(r"OS:h,i\a")


@pytest.mark.spec("DM-3.1.7.1.26-01", "DM-3.1.7.1.5-09")
@pytest.mark.parametrize(
    ("text", "machine", "path"),
    [
        (r"DIRECT=OS:h\private$\q", "h", r"h\private$\q"),
        (r"DIRECT=OS:h\q;JOURNAL", "h", r"h\q;JOURNAL"),
        (r"DIRECT=TCP:10.0.0.1\q", "10.0.0.1", r"10.0.0.1\q"),
        (r"DIRECT=TCP:fe80::1\q", "fe80::1", r"fe80::1\q"),
        (r"DIRECT=IPX:00000012:00A0246F4A15\q", "00000012:00A0246F4A15", r"00000012:00A0246F4A15\q"),
        (r"DIRECT=HTTP://h/MSMQ\q", "h", r"h\q"),
        (r"DIRECT=HTTPS://h:8443/MSMQ\private$\q;sub", "h", r"h\private$\q;sub"),
        ("DIRECT=HTTP://h/msmq/private$/q", "h", r"h\private$\q"),
        (r"DIRECT=OS:h\system$;DEADXACT", "h", r"h\system$;DEADXACT"),
    ],
)
def test_the_path_of_a_direct_name(text: str, machine: str, path: str) -> None:
    name = direct(text)
    assert name.path_name.computer == name.host == machine
    assert str(name.path_name) == path


def test_a_path_becomes_a_direct_name() -> None:
    assert str(DirectName.from_path(PathName.parse(r"alpha\private$\q;sub"))) == r"DIRECT=OS:alpha\private$\q;sub"
    with pytest.raises(IllegalFormatName):
        DirectName.from_path(PathName.parse(r"alpha\system$;other"))
