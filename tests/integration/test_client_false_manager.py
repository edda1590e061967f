"""A false manager that answers real clients with Arrow streams that no manager would send."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, repeat

import pyarrow as pa
import pytest

import postroad
from postroad import aio
from postroad.client import exchange
from postroad.client.arrow import batches
from postroad.errors import ManagerUnavailable, RemoteProtocolError
from tests.arrow_samples import BODIES, HOSTILE, changed, honest, int64
from tests.faces import driven

ONLY_FOR_MESSAGES = {"too many rows", "too many batches"}
FACES: dict[str, Callable[[str], object]] = {
    "blocking": postroad.connect,
    "async": lambda url: driven(aio.connect(url)),
}


@contextmanager
def answering(
    pieces: Iterable[bytes], media_type: str = "application/vnd.apache.arrow.stream", status: int = 200
) -> Iterator[str]:
    """A server that gives this answer to everything, in chunks, until the client has enough. Gives its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            with suppress(OSError):
                for piece in pieces:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def read(face: str, pieces: Iterable[bytes]) -> list[object]:
    with answering(pieces) as url, FACES[face](url) as manager:  # type: ignore[attr-defined]
        found = batches(manager.queue(r"private$\orders").arrow())
        return [each for batch in found for each in batch["body"].to_pylist()]


@pytest.mark.parametrize("face", FACES)
def test_a_stream_that_is_right_is_read(face: str) -> None:
    assert read(face, [honest()]) == BODIES


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", sorted(set(HOSTILE) - ONLY_FOR_MESSAGES))
def test_a_stream_that_is_wrong_is_an_error_of_ours(name: str, face: str) -> None:
    whole, before = HOSTILE[name](), pa.total_allocated_bytes()
    with pytest.raises(RemoteProtocolError, match="must"):
        read(face, [whole[at : at + 1000] for at in range(0, len(whole), 1000)] or [])
    assert pa.total_allocated_bytes() - before < 1 << 20


ENDLESS: dict[str, Callable[[], Iterable[bytes]]] = {
    "what is no Arrow": partial(repeat, b"x" * 65536),
    "a batch larger than any": lambda: chain(
        [changed(pa.table({"body": ["x" * 3000]}), int64(3008), int64(1 << 60))], repeat(bytes(65536))
    ),
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_without_end_is_not_read_on(name: str, face: str) -> None:
    with pytest.raises(RemoteProtocolError, match="must"):
        read(face, ENDLESS[name]())


@pytest.mark.parametrize("face", FACES)
def test_what_follows_the_end_of_a_stream_is_not_read(face: str) -> None:
    assert read(face, repeat(honest())) == BODIES


@pytest.mark.parametrize("face", FACES)
def test_json_without_end_does_not_fill_the_memory(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_ANSWER", 1 << 20)
    with (
        answering(repeat(b"[" * 65536), "application/json") as url,
        FACES[face](url) as manager,  # type: ignore[attr-defined]
        pytest.raises(ManagerUnavailable),
    ):
        manager.info()


@pytest.mark.parametrize("face", FACES)
def test_an_error_without_end_does_not_fill_the_memory(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of a stream, which is read as it comes."""
    monkeypatch.setattr(exchange, "MAX_ANSWER", 1 << 20)
    with (
        answering(repeat(b"[" * 65536), "application/problem+json", 500) as url,
        FACES[face](url) as manager,  # type: ignore[attr-defined]
        pytest.raises(ManagerUnavailable),
    ):
        list(manager.queue(r"private$\orders").arrow())


@pytest.mark.parametrize("face", FACES)
def test_json_that_is_nested_deeply_is_an_error_of_ours(face: str) -> None:
    with (
        answering([b"[" * 100_000], "application/json") as url,
        FACES[face](url) as manager,  # type: ignore[attr-defined]
        pytest.raises(RemoteProtocolError, match="must be JSON"),
    ):
        manager.info()
