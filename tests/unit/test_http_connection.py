"""What one HTTP connection makes of bytes, without sockets: what two readers could read in two ways is no request."""

from __future__ import annotations

import tracemalloc
from typing import cast

import pytest

from postroad.net.exchange import Request
from postroad.net.http import MAX_HEAD, MAX_HEADERS, MAX_PIPELINED, HttpConnection
from tests.http_peer import answers, served

POST = b"POST /x HTTP/1.1\r\nHost: a\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /x HTTP/1.1\r\nHost: a\r\n"

REFUSED = {
    "a length and chunks": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "one length twice": POST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
    "a list of lengths": POST + b"Content-Length: 4, 4\r\n\r\nabcd",
    "a length with a sign": POST + b"Content-Length: +4\r\n\r\nabcd",
    "a negative length": POST + b"Content-Length: -1\r\n\r\nabcd",
    "a hexadecimal length": POST + b"Content-Length: 0x4\r\n\r\nabcd",
    "a length that no machine can hold": POST + b"Content-Length: 99999999999999999999999\r\n\r\nabcd",
    "no length": POST + b"Content-Length: \r\n\r\nabcd",
    "a header that goes on in the next line": POST + b"X: a\r\n b\r\n\r\n",
    "a coding that begins in the next line": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "lines that end with LF": b"POST /x HTTP/1.1\nHost: a\nContent-Length: 4\n\nabcd",
    "CR within a header": POST + b"X: a\rContent-Length: 4\r\n\r\nabcd",
    "LF within a header": POST + b"X: a\nContent-Length: 4\r\n\r\nabcd",
    "a space before the colon": POST + b"Content-Length : 4\r\n\r\nabcd",
    "chunks that are not the last coding": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "another coding": POST + b"Transfer-Encoding: identity\r\n\r\nabcd",
    "a coding of ours with a letter more": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "LF behind a chunk's extension": CHUNKED + b"4;a\nabcd\r\n0\r\n\r\n",
    "a chunk that no machine can hold": CHUNKED + b"fffffffffffffffff\r\nabcd",
    "a negative chunk": CHUNKED + b"-4\r\nabcd\r\n0\r\n\r\n",
    "a chunk's size with 0x": CHUNKED + b"0x4\r\nabcd\r\n0\r\n\r\n",
    "chunks with LF": CHUNKED + b"4\nabcd\n0\n\n",
    "a chunk that is longer than its size": CHUNKED + b"4\r\nabcde\r\n0\r\n\r\n",
    "a length among the trailers": CHUNKED + b"0\r\nContent-Length: 3\r\n\r\n",
    "too many trailers": CHUNKED + b"0\r\n" + b"A: b\r\n" * MAX_HEADERS + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4",
    "a version that there is not": b"GET /x HTTP/1.2\r\n\r\n",
    "a null byte in a path": b"GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a null byte in a header": b"GET /x HTTP/1.1\r\nHost: a\0\r\n\r\n",
    "a path that is not ASCII": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "a space in a path": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a URL with a port that there is not": b"GET http://b:99999/x HTTP/1.1\r\nHost: a\r\n\r\n",
    "two hosts": GET + b"Host: b\r\n\r\n",
    "an unknown method": b"BREW /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "a header without a colon": GET + b"foo\r\n\r\n",
    "a header without a name": GET + b": a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_what_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read(sent: bytes) -> None:
    taken, written = answers([sent + NEXT])
    assert taken == []
    assert written.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert written.count(b"HTTP/1.1 ") == 1
    assert b"connection: close\r\n" in written


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (GET + b"X: " + b"a" * MAX_HEAD + b"\r\n\r\n", 431),
        (GET + b"".join(b"X%d: %b\r\n" % (n, b"a" * 300) for n in range(150)) + b"\r\n", 431),
        (b"GET /" + b"a" * MAX_HEAD + b" HTTP/1.1\r\n", 431),
        (GET + b"X: y\r\n" * MAX_HEADERS + b"\r\n", 400),
        (b"GET /x HTTP/2.0\r\n\r\n", 505),
        (b"GET /x HTTP/0.9\r\n\r\n", 505),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    ],
)
def test_the_answer_says_what_is_not_served(sent: bytes, status: int) -> None:
    for cut in (len(sent), 1000):
        taken, written = answers([sent[start : start + cut] for start in range(0, len(sent), cut)] + [NEXT])
        assert taken == []
        assert written.startswith(b"HTTP/1.1 %d " % status)


def test_requests_before_a_bad_one_are_answered_first() -> None:
    taken, written = answers([NEXT + NEXT + REFUSED["two lengths"] + NEXT])
    assert [each[1] for each in taken] == ["/next", "/next"]
    assert [int(part[:3]) for part in written.split(b"HTTP/1.1 ")[1:]] == [200, 200, 400]


TAKEN = {
    "a body": (POST + b"Content-Length: 4\r\n\r\nabcd", "POST", "/x", b"", b"abcd"),
    "a body of a GET": (GET + b"Content-Length: 4\r\n\r\nabcd", "GET", "/x", b"", b"abcd"),
    "a body of a HEAD": (GET.replace(b"GET", b"HEAD") + b"Content-Length: 4\r\n\r\nabcd", "HEAD", "/x", b"", b"abcd"),
    "chunks": (CHUNKED + b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n", "POST", "/x", b"", b"abcd"),
    "extensions of chunks": (CHUNKED + b'4;a=b;c="d"\r\nabcd\r\n0;e\r\n\r\n', "POST", "/x", b"", b"abcd"),
    "a trailer": (CHUNKED + b"4\r\nabcd\r\n0\r\nX: y\r\n\r\n", "POST", "/x", b"", b"abcd"),
    "a whole URL": (b"GET http://b:7/p?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/p", b"q", b""),
    "a URL without a path": (b"GET http://b?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/", b"q", b""),
    "escapes": (b"GET /%2e%2E/%00/%C3%A4?%41 HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/%2e%2E/%00/%C3%A4", b"%41", b""),
    "empty lines before it": (b"\r\n\r\n" + GET + b"\r\n", "GET", "/x", b"", b""),
    "an offer of HTTP/2": (GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "GET", "/x", b"", b""),
    "a body behind such an offer": (
        POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nabcd",
        *("POST", "/x", b"", b"abcd"),
    ),
    "chunks behind it": (
        POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        *("POST", "/x", b"", b"abcd"),
    ),
    "a tunnel": (b"CONNECT b:1 HTTP/1.1\r\nHost: b:1\r\n\r\n", "CONNECT", "b:1", b"", b""),
}


@pytest.mark.parametrize(("sent", "method", "path", "query", "body"), TAKEN.values(), ids=TAKEN)
def test_a_request_is_the_same_wherever_it_is_cut(
    sent: bytes, method: str, path: str, query: bytes, body: bytes
) -> None:
    """And what follows is the next request."""
    stream = sent + NEXT
    whole, count = served([stream])
    first, last = whole
    assert (first[0], first[1], first[2], first[4]) == (method, path, query, body)
    assert (last[1], count) == ("/next", 2)
    for at in range(len(stream)):
        assert served([stream[:at], stream[at:]]) == (whole, count)
    assert served([stream[at : at + 1] for at in range(len(stream))]) == (whole, count)


@pytest.mark.parametrize("sent", [each[0] for each in TAKEN.values()], ids=TAKEN)
def test_a_client_that_leaves_at_any_byte_has_asked_for_nothing(sent: bytes) -> None:
    for at in range(len(sent)):
        taken, _ = served([sent[:at]])
        assert taken == []


def test_the_host_of_a_whole_url_counts() -> None:
    for target, host in ((b"http://b:7/", "b:7"), (b"http://[::1]:7/", "[::1]:7"), (b"http://u:p@b", "b")):
        ((*_, headers),), _ = answers([b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target], headers=True)
        assert headers[b"host"] == host


@pytest.mark.parametrize("head", [b"GET /x HTTP/1.0\r\n\r\n", GET + b"Connection: close\r\n\r\n"])
def test_what_stands_behind_the_last_request_is_none(head: bytes) -> None:
    taken, written = answers([head + NEXT, NEXT, b"\0"])
    assert [each[1] for each in taken] == ["/x"]
    assert written.count(b"HTTP/1.1 ") == written.count(b"connection: close\r\n") == 1


def test_twenty_thousand_requests_at_once_get_a_few_answers_and_a_refusal() -> None:
    taken, written = answers([NEXT * 20_000])
    assert len(taken) == MAX_PIPELINED + 1
    assert written.rpartition(b"HTTP/1.1 ")[2].startswith(b"400 ")


def test_a_client_that_was_not_invited_and_may_send_its_body_or_not_is_left() -> None:
    taken, written = answers([POST + b"Expect: 100-continue\r\nContent-Length: 4000\r\n\r\n"], refuse=413)
    assert taken == []
    assert written.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close\r\n" in written


def test_an_old_client_is_not_invited() -> None:
    _, written = answers([b"POST /x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", b"abcd"])
    assert written.startswith(b"HTTP/1.1 200 ")


def test_a_trailer_is_no_header_of_its_request_or_of_the_next() -> None:
    first = CHUNKED + b"0\r\nAuthorization: no\r\n\r\n"
    second = POST + b"Transfer-Encoding: chunked\r\nAuthorization: no\r\n\r\n0\r\n\r\n"
    taken, _ = answers([first + second], headers=True)
    assert [b"authorization" in each[4] for each in taken] == [False, True]
    assert [dict(each[3]).keys() for each in answers([first])[0]] == [{b"host", b"transfer-encoding"}]


@pytest.mark.parametrize("refuse", [None, 405])
@pytest.mark.parametrize("endless", [b"0\r\nX: ", b"4\r\nabcd\r\n0\r\nX: ", b"4;x="], ids=["trailer", "later", "chunk"])
def test_what_stands_around_a_body_is_measured_like_a_head(endless: bytes, refuse: int | None) -> None:
    """The parser keeps a trailer until its end comes, also where the request has its answer already."""
    taken, written = answers([CHUNKED + endless, *[b"a" * 1000] * 40, b"\r\n\r\n", NEXT], refuse=refuse)
    assert taken == []
    assert b"HTTP/1.1 431 " in written
    taken, written = answers([CHUNKED + b"4\r\nabcd\r\n0\r\nX: ", *[b"a" * 1000] * 20, b"\r\n\r\n", NEXT])
    assert [each[1] for each in taken] == ["/x", "/next"]


def test_a_body_in_tiny_chunks_takes_about_as_much_memory_as_any_other() -> None:
    connection = cast(HttpConnection, None)
    request = Request(connection, "POST", b"/x", [], {}, None, chunks=True, keep_alive=True)
    tracemalloc.start()
    try:
        for number in range(50_000):
            request.receive(b"%02d" % (number % 100))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * request.size
    assert request.take() == b"".join(b"%02d" % each for each in range(100)) * 500


def test_a_path_is_measured_also_where_the_headers_are_those_of_the_last_request() -> None:
    _, written = answers([NEXT + NEXT.replace(b"/next", b"/" + b"a" * MAX_HEAD)])
    assert [int(part[:3]) for part in written.split(b"HTTP/1.1 ")[1:]] == [200, 431]
