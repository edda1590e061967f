"""Options of the sources: every wrong one is told by its name, in one sentence."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidArgument
from postroad.spark.options import Mode, Rpc, Start, read_options, stream_options, write_options
from postroad.spark.schema import MESSAGE

QUEUE = {"queue": r"private$\orders"}


def test_what_is_not_said() -> None:
    options = read_options(QUEUE)
    assert (options.place.api, options.place.queue) == ("http://127.0.0.1:8180", r"private$\orders")
    assert options.columns == tuple(MESSAGE)
    assert (options.mode, options.start, options.fail_on_data_loss) == (Mode.PEEK, Start.EARLIEST, True)
    assert (options.partitions, options.max_rows, options.hold, options.place.token) == (None, None, None, None)


def test_names_in_any_case_and_words_in_any_case() -> None:
    options = read_options({**QUEUE, "MAXMESSAGESPERBATCH": "7", "Mode": "Consume", "startingoffsets": "LATEST"})
    assert (options.max_rows, options.mode, options.start) == (7, Mode.CONSUME, Start.LATEST)


def test_a_server_to_read_by_rpc() -> None:
    assert read_options(QUEUE).rpc is None
    assert read_options({**QUEUE, "rpc": "winserver"}).rpc == Rpc("winserver", 2103, None, None)
    given = {"rpc": "[::1]:2200", "user": "reader", "password": "secret"}
    assert read_options({**QUEUE, **given}).rpc == Rpc("::1", 2200, "reader", "secret")
    with pytest.raises(InvalidArgument, match="rpc: MS-MQQP can read queues but not send"):
        write_options({**QUEUE, "rpc": "winserver"})


def test_columns() -> None:
    assert read_options({**QUEUE, "columns": "id, label,id"}).columns == ("id", "label")
    assert read_options({**QUEUE, "columns": "id", "packet": "true"}).columns == ("id", "packet")
    without = read_options({**QUEUE, "body": "false"}).columns
    assert set(MESSAGE) - set(without) == {"body", "body_text"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"queue": ""}, "queue: is missing"),
        ({"api": "127.0.0.1:8180"}, "api: must be an http or https URL"),
        ({"api": "http://127.0.0.1:port"}, "api: "),
        ({"mode": "destroy"}, "mode: must be peek or consume, got 'destroy'"),
        ({"maxMessagesPerBatch": "0"}, "maxMessagesPerBatch: must be between 1 and"),
        ({"maxMessagesPerBatch": "many"}, "maxMessagesPerBatch: must be a whole number, got 'many'"),
        ({"partitions": "-1"}, "partitions: must be between 1 and 10000, got -1"),
        ({"columns": "id,lable"}, "columns: there is no column 'lable'; did you mean label?"),
        ({"columns": " , "}, "columns: must name at least one of"),
        ({"packet": "yes"}, "packet: must be true or false, got 'yes'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: must be true or false, got 'maybe'"),
        (
            {"startingOffsets": "yesterday"},
            "startingOffsets: must be earliest, latest or an arrival",
        ),
        ({"startingOffsets": "-5"}, "startingOffsets: must be earliest, latest or an arrival number"),
        ({"timeout": "soon"}, "timeout: must be a number, got 'soon'"),
        ({"maxMesagesPerBatch": "5"}, "maxmesagesperbatch: there is no such option; did you mean maxmessagesperbatch?"),
        ({"path": "/data"}, "path: must not be set"),
        ({"queue": "orders"}, "queue: 'orders', character 1: a path must be a computer, a backslash and a queue"),
        ({"queue": "DIREKT=OS:alpha"}, "queue: 'DIREKT=OS:alpha', character 1: "),
        ({"priority": "8"}, "priority: must be between 0 and 7, got 8"),
        ({"arrivalFrom": "soon"}, "arrivalFrom: must be a whole number, got 'soon'"),
        ({"rpc": "host", "api": "http://127.0.0.1:8180"}, "api: must not be set together with `rpc`"),
        ({"rpc": ""}, "rpc: must be a host"),
        ({"rpc": "http://host"}, "rpc: must be a host, as in winserver or 10.0.0.5:2103, got 'http://host'"),
        ({"rpc": "host:port"}, "rpc: must be a host"),
        ({"rpc": "host:0"}, "rpc: must be a host"),
        ({"rpc": "host", "token": "secret"}, "token: needs the option `api`"),
        ({"rpc": "host", "hold": "mine"}, "hold: "),
        ({"rpc": "host", "startingOffsets": "latest"}, "startingOffsets: "),
        ({"rpc": "host", "password": "secret"}, "password: needs the option `user`"),
        ({"user": "reader"}, "user: needs the option `password`"),
        ({"password": "secret"}, "password: needs the option `user`"),
        ({"user": "reader", "password": "secret", "token": "x"}, "user: excludes `token`"),
    ],
)
def test_a_wrong_option(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_options({**QUEUE, **given})
    assert str(caught.value).startswith(sentence)


def test_a_stream_selects_nothing() -> None:
    assert stream_options(QUEUE) == read_options(QUEUE)
    for name in ("label", "class", "priority", "arrivalFrom", "arrivalTo"):
        with pytest.raises(InvalidArgument, match=f"{name}: a stream must read every message"):
            stream_options({**QUEUE, name: "1"})


def test_writing() -> None:
    with pytest.raises(InvalidArgument, match="queue: 'orders', character 1: a path must be a computer"):
        write_options({"queue": "orders"})
    options = write_options({**QUEUE, "name": "nightly", "checkpointLocation": "/somewhere"})
    assert (options.name, options.transactional) == ("nightly", None)
    assert write_options({**QUEUE, "transactional": "true"}).transactional is True
    with pytest.raises(InvalidArgument, match="transactional"):
        write_options({**QUEUE, "transactional": "perhaps"})
