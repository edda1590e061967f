r"""[MC-MQSRM] 2.2.4.2, [MS-MQMQ] 2.1.2: queues as URLs."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import LocalProtocolError, MalformedSoap
from postroad.names import DirectName, FormatName, MulticastName, PathName, parse_format_name
from postroad.soap.addresses import destination_of, receipt_url, request_target, to_text, url_of, via_name, via_text

GUID = UUID("caf195ea-615c-4264-ae08-11a4e60194c0")


def name(text: str) -> FormatName:
    return parse_format_name(text)


@pytest.mark.spec("SRM-2.2.4.2-05")
@pytest.mark.parametrize(
    ("url", "path", "port"),
    [
        ("http://alpha/msmq/private$/orders", r"alpha\private$\orders", 80),
        ("http://alpha/MSMQ/PRIVATE$/Orders", r"alpha\private$\orders", 80),
        ("https://alpha/msmq/private$/orders", r"alpha\private$\orders", 443),
        ("http://alpha:8080/msmq/orders", r"alpha\orders", 8080),
        ("https://10.1.2.3:4443/msmq/orders", r"10.1.2.3\orders", 4443),
        ("http://[fe80::1]:80/msmq/orders", r"fe80::1\orders", 80),
        ("http://alpha/msmq\\private$\\orders", r"alpha\private$\orders", 80),
        ("http://alpha/msmq/private%24/orders", r"alpha\private$\orders", 80),
        ("http://alpha/msmq/private$/orders?SenderStream=XRntV", r"alpha\private$\orders", 80),
    ],
)
def test_urls_and_local_paths(url: str, path: str, port: int) -> None:
    found = destination_of(url)
    assert isinstance(found, DirectName)
    assert found.path_name == PathName.parse(path)
    assert found.port == port
    assert destination_of(url_of(found)) == found


@pytest.mark.spec("SRM-3.1.5.1.1-06", "SRM-3.1.5.1.1-07", "SRM-2.2.4.2-06", "SRM-2.2.4.2-04")
def test_destinations() -> None:
    assert str(destination_of("http://h/msmq/q")) == "DIRECT=http://h/msmq/q"
    assert str(destination_of("https://h/msmq/q")) == "DIRECT=https://h/msmq/q"
    multicast = destination_of("MSMQ:MULTICAST=234.1.1.1:8001")
    assert isinstance(multicast, MulticastName)
    assert str(multicast) == "MULTICAST=234.1.1.1:8001"


@pytest.mark.parametrize(
    "to", ["http://", "http:///msmq/q", "http://h/q", "http://h/msmq", "http://h/msmq/private$", "http://h:x/msmq/q"]
)
def test_urls_that_name_no_queue(to: str) -> None:
    with pytest.raises(MalformedSoap, match="path/to"):
        destination_of(to)


@pytest.mark.parametrize(
    "to", ["MSMQ:MULTICAST=1.2.3.4:5", "MSMQ:MULTICAST=234.1.1.1", "MSMQ:DIRECT=OS:a\\q", "ftp://h/q", ""]
)
def test_no_other_names_are_destinations(to: str) -> None:
    with pytest.raises(MalformedSoap, match="path/to"):
        destination_of(to)


@pytest.mark.spec("SRM-2.2.4.2-02", "SRM-2.2.4.2-03", "SRM-2.2.4.2-04", "SRM-3.1.7.2.4-05")
@pytest.mark.parametrize(
    ("format_name", "to"),
    [
        ("DIRECT=HTTP://h/msmq/private$/q", "http://h/msmq/private$/q"),
        ("DIRECT=http://H:8080/MSMQ/private$\\Q", "http://H:8080/MSMQ/private$/Q"),
        ("DIRECT=HTTPS://h/msmq/q", "https://h/msmq/q"),
        ("MULTICAST=234.1.1.1:8001", "MSMQ:MULTICAST=234.1.1.1:8001"),
    ],
)
def test_what_to_says(format_name: str, to: str) -> None:
    assert to_text(name(format_name)) == to
    assert "DIRECT=" not in to_text(name(format_name))


def test_what_cannot_go_by_soap() -> None:
    for text in (r"DIRECT=OS:alpha\private$\q", f"PUBLIC={GUID}"):
        with pytest.raises(LocalProtocolError, match="a destination that SOAP can name"):
            to_text(name(text))


@pytest.mark.spec("SRM-2.2.4.4-03", "SRM-2.2.4.4-04", "SRM-3.1.5.1.1-11")
@pytest.mark.parametrize(
    ("format_name", "via"),
    [
        ("DIRECT=http://h/msmq/q", "http://h/msmq/q"),
        ("DIRECT=HTTPS://h/msmq/q", "https://h/msmq/q"),
        (r"DIRECT=OS:h\private$\q", r"MSMQ:DIRECT=OS:h\private$\q"),
        (f"PUBLIC={GUID}", f"MSMQ:PUBLIC={GUID}"),
        (rf"PRIVATE={GUID}\1f", rf"MSMQ:PRIVATE={GUID}\1f"),
    ],
)
def test_what_via_says(format_name: str, via: str) -> None:
    assert via_text(name(format_name)) == via
    if via.startswith("MSMQ:"):
        assert via_name(via) == name(format_name)
    else:
        assert via_name(via) is None


def test_a_via_that_is_not_a_name() -> None:
    with pytest.raises(MalformedSoap, match="path/rev/via"):
        via_name("MSMQ:DIREKT=OS:h")


def test_receipts_go_by_http_whatever_the_name() -> None:
    def resolve(found: FormatName) -> PathName | None:
        return PathName.parse(r"alpha\private$\admin") if found == name(rf"PRIVATE={GUID}\1f") else None

    for text, url in (
        ("DIRECT=https://h/msmq/q", "https://h/msmq/q"),
        (r"DIRECT=OS:h\private$\q", "http://h/msmq/private$/q"),
        (r"DIRECT=TCP:10.0.0.1\q", "http://10.0.0.1/msmq/q"),
        (r"DIRECT=TCP:fe80::1\q", "http://[fe80::1]/msmq/q"),
        (rf"PRIVATE={GUID}\1f", "http://alpha/msmq/private$/admin"),
        (rf"PRIVATE={GUID}\20", None),
        (f"PUBLIC={GUID}", None),
        (f"MACHINE={GUID};DEADLETTER", None),
    ):
        assert receipt_url(name(text), resolve) == url


@pytest.mark.spec("SRM-4.2-04", "SRM-4.4-02")
@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://machine2/msmq/private$/simpleQ", "/msmq/private$/simpleq"),
        ("https://h:8443/MSMQ\\PRIVATE$\\Q", "/msmq/private$/q"),
        ("http://machine1/MSMQ/private$/receipts?SenderStream=XRntV", "/msmq/private$/receipts?senderstream=xrntv"),
        ("http://h/msmq/a#b<c>", "/msmq/a%23b%3cc%3e"),
        ("http://h", "/"),
    ],
)
def test_the_request_line_is_in_lower_case(url: str, target: str) -> None:
    assert request_target(url).lower() == target
    assert request_target(url).replace("%3C", "%3c").replace("%3E", "%3e") == target
