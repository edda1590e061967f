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
    with pytest.raises(InvalidArgument, match="rpc: MS-MQQP reads queues and cannot send"):
        write_options({**QUEUE, "rpc": "winserver"})


def test_columns() -> None:
    assert read_options({**QUEUE, "columns": "id, label,id"}).columns == ("id", "label")
    assert read_options({**QUEUE, "columns": "id", "packet": "true"}).columns == ("id", "packet")
    without = read_options({**QUEUE, "body": "false"}).columns
    assert set(MESSAGE) - set(without) == {"body", "body_text"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"queue": ""}, "queue: it is missing"),
        ({"api": "127.0.0.1:8180"}, "api: '127.0.0.1:8180' is not the address of an HTTP API"),
        ({"api": "http://127.0.0.1:port"}, "api: "),
        ({"mode": "destroy"}, "mode: 'destroy' is not peek or consume"),
        ({"maxMessagesPerBatch": "0"}, "maxMessagesPerBatch: '0' is not a whole number between 1 and"),
        ({"maxMessagesPerBatch": "many"}, "maxMessagesPerBatch: 'many' is not"),
        ({"partitions": "-1"}, "partitions: '-1' is not"),
        ({"columns": "id,lable"}, "columns: 'lable' is no column of a message; did you mean label?"),
        ({"columns": " , "}, "columns: it names none of"),
        ({"packet": "yes"}, "packet: 'yes' is not true or false"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is not true or false"),
        ({"startingOffsets": "yesterday"}, "startingOffsets: 'yesterday' is not earliest, latest or an arrival number"),
        ({"startingOffsets": "-5"}, "startingOffsets: '-5' is not"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a number of seconds"),
        ({"maxMesagesPerBatch": "5"}, "maxmesagesperbatch: there is no such option; did you mean maxmessagesperbatch?"),
        ({"path": "/data"}, "path: a queue is not a path"),
        ({"queue": "orders"}, "queue: 'orders', character 1: a path must be a computer, a backslash and a queue"),
        ({"queue": "DIREKT=OS:alpha"}, "queue: 'DIREKT=OS:alpha', character 1: "),
        ({"priority": "8"}, "priority: '8' is not a whole number between 0 and 7"),
        ({"arrivalFrom": "soon"}, "arrivalFrom: 'soon' is not a whole number"),
        ({"rpc": "host", "api": "http://127.0.0.1:8180"}, "api: a queue is read by `api` or by `rpc`, not by both"),
        ({"rpc": ""}, "rpc: '' is not a host"),
        ({"rpc": "http://host"}, "rpc: 'http://host' is not a host, as in winserver or 10.0.0.5:2103"),
        ({"rpc": "host:port"}, "rpc: 'host:port' is not a host"),
        ({"rpc": "host:0"}, "rpc: 'host:0' is not a host"),
        ({"rpc": "host", "token": "secret"}, "token: it goes with the option `api`"),
        ({"rpc": "host", "hold": "mine"}, "hold: "),
        ({"rpc": "host", "startingOffsets": "latest"}, "startingOffsets: "),
        ({"rpc": "host", "password": "secret"}, "password: there is no `user`"),
        ({"user": "reader"}, "user: it goes with the option `rpc`"),
    ],
)
def test_a_wrong_option(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_options({**QUEUE, **given})
    assert str(caught.value).startswith(sentence)


def test_a_stream_selects_nothing() -> None:
    assert stream_options(QUEUE) == read_options(QUEUE)
    for name in ("label", "class", "priority", "arrivalFrom", "arrivalTo"):
        with pytest.raises(InvalidArgument, match=f"{name}: a stream takes what comes"):
            stream_options({**QUEUE, name: "1"})


def test_writing() -> None:
    with pytest.raises(InvalidArgument, match="queue: 'orders', character 1: a path must be a computer"):
        write_options({"queue": "orders"})
    options = write_options({**QUEUE, "name": "nightly", "checkpointLocation": "/somewhere"})
    assert (options.name, options.transactional) == ("nightly", None)
    assert write_options({**QUEUE, "transactional": "true"}).transactional is True
    with pytest.raises(InvalidArgument, match="transactional"):
        write_options({**QUEUE, "transactional": "perhaps"})
