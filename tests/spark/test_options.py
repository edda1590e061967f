"""Options of the sources: every mistake is reported with the option's name, in one sentence."""

from __future__ import annotations

import pytest

from postroad.errors import InvalidArgument
from postroad.spark.options import Mode, Rpc, Start, batch_options, read_options, stream_options, write_options
from postroad.spark.schema import MESSAGE

QUEUE = {"queue": r"private$\orders"}


def test_defaults() -> None:
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
    with pytest.raises(InvalidArgument, match="rpc: remote readers can read queues but not send"):
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
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger: must be between 1 and"),
        ({"minOffsetsPerTrigger": "few"}, "minOffsetsPerTrigger: must be a whole number, got 'few'"),
        ({"maxTriggerDelay": "-1"}, "maxTriggerDelay: must be between 0 and"),
        ({"endingOffsets": "earliest"}, "endingOffsets: must be latest, the arrival number after the last or JSON"),
        ({"startingTimestamp": "noon"}, "startingTimestamp: must be milliseconds since 1970, or a time as in"),
        ({"startingTimestamp": "2026-05-01T12:00"}, "startingTimestamp: must have a time zone, as in"),
        (
            {"startingTimestamp": "5", "startingOffsets": "5"},
            "startingTimestamp: must not be set together with `startingOffsets`",
        ),
        ({"queue": " , "}, "queue: must name a queue"),
        ({"queue": r"private$\a,orders"}, "queue: 'orders', character 1: a path must be a computer"),
        ({"queue": r"DIRECT=OS:x\private$\q*"}, "queue: a pattern must be a path"),
        ({"queue": r"private$\q*", "rpc": "winserver"}, "queue: must name one queue with `rpc`"),
        (
            {"startingOffsets": "yesterday"},
            "startingOffsets: must be earliest, latest, an arrival number or JSON with one for each queue, got",
        ),
        ({"startingOffsets": "-5"}, "startingOffsets: must be earliest, latest, an arrival number or JSON"),
        ({"timeout": "soon"}, "timeout: must be a number, got 'soon'"),
        ({"maxMesagesPerBatch": "5"}, "maxmesagesperbatch: there is no such option; did you mean maxMessagesPerBatch?"),
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
        ({"user": "reader", "password": "secret", "token": "x"}, "user: must not be set together with `token`"),
        ({"subscribe": "orders"}, "subscribe: there is no such option; use `queue`"),
        ({"kafka.bootstrap.servers": "x:1"}, "kafka.bootstrap.servers: there is no such option; use `api`"),
        ({"verify": "false"}, "verify: there is no such option; use `caFile`"),
        ({"zzz": "blue"}, "zzz: there is no such option; known are api, queue, "),
        ({"x" * 9000: "5"}, f"{'x' * 60}: there is no such option"),
        ({"api": "localhost:8180"}, "api: must be an http or https URL, as in http://127.0.0.1:8180, got"),
        ({"api": "soap://u:secret@host"}, "api: must be an http or https URL, as in http://127.0.0.1:8180, got 'soap:"),
        ({"caFile": "/ca.pem"}, "caFile: needs an `api` with https, got http://127.0.0.1:8180"),
        ({"api": "https://h", "keyFile": "/k.pem"}, "keyFile: needs the option `certificateFile`"),
        ({"rpc": "host", "caFile": "/ca.pem"}, "caFile: needs the option `api`"),
        ({"rpc": "host", "endingTimestamp": "5"}, "endingTimestamp: needs the option `api`"),
        ({"maxOffsetsPerTrigger": "5", "maxMessagesPerBatch": "5"}, "maxOffsetsPerTrigger: must not be set together"),
        ({"endingTimestamp": "5", "endingOffsets": "5"}, "endingTimestamp: must not be set together with `endingOff"),
        ({"startingOffsets": '{"private$'}, "startingOffsets: must be JSON, as in {"),
        ({"startingOffsets": "{" * 9000}, "startingOffsets: must be JSON, as in {"),
        ({"startingOffsets": '{"a": 5}'}, "startingOffsets: 'a' must be one of the queues of the option `queue`"),
        (
            {"startingOffsets": r'{"private$\\orders": true}'},
            r"startingOffsets: private$\orders: must be earliest, lat",
        ),
        (
            {"startingOffsets": r'{"private$\\orders": -3}'},
            r"startingOffsets: private$\orders: must be earliest, latest",
        ),
        (
            {"startingOffsets": r'{"private$\\orders": [[]]}'},
            r"startingOffsets: private$\orders: must be earliest, lat",
        ),
        ({"startingTimestamp": "9" * 20}, "startingTimestamp: must be milliseconds since 1970"),
        ({"startingOffsets": "9" * 1000}, "startingOffsets: must be earliest, latest, an arrival number or JSON"),
        (
            {"endingOffsets": r'{"private$\\orders": "earliest"}'},
            r"endingOffsets: private$\orders: must be latest, the",
        ),
        (
            {"endingOffsets": r'{"private$\\orders": 1, "PRIVATE$\\orders": 2}'},
            r"endingOffsets: 'PRIVATE$\\orders' must be given once",
        ),
    ],
)
def test_a_wrong_option(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_options({**QUEUE, **given})
    assert str(caught.value).startswith(sentence)
    assert "secret" not in str(caught.value)


def test_an_address_without_a_scheme_gets_the_right_one() -> None:
    with pytest.raises(InvalidArgument, match=r"write http://localhost:8180 or https://localhost:8180$"):
        read_options({**QUEUE, "api": "localhost:8180"})


def test_offsets_for_each_queue() -> None:
    queues = {"queue": r"private$\a,private$\b*"}
    given = {"startingOffsets": r'{"private$\\a": 7, "PRIVATE$\\B1": -1, "private$\\b2": -2}'}
    options = stream_options({**queues, **given, "endingOffsets": r'{"private$\\a": 9, "private$\\b1": "latest"}'})
    starts = [options.start_of(rf"private$\{name}") for name in ("a", "b1", "b2", "b3")]
    assert starts == [7, Start.LATEST, Start.EARLIEST, Start.EARLIEST]
    assert [options.end_of(rf"private$\{name}") for name in ("A", "b1", "b3")] == [9, None, None]
    with pytest.raises(InvalidArgument, match="startingOffsets: must be earliest or a number"):
        batch_options({**queues, **given})


def test_names_of_options_that_a_kafka_user_knows() -> None:
    assert stream_options({**QUEUE, "maxOffsetsPerTrigger": "5"}).max_rows == 5
    assert stream_options({**QUEUE, "endingTimestamp": "5"}).end_ms == 5


def test_a_stream_selects_only_where_it_keeps_the_messages() -> None:
    assert stream_options(QUEUE) == read_options(QUEUE)
    for name in ("label", "class", "priority"):
        assert stream_options({**QUEUE, name: "1"}).selection.equal
        with pytest.raises(InvalidArgument, match=f"{name}: needs the mode peek"):
            stream_options({**QUEUE, name: "1", "mode": "consume"})
    for name, instead in (("arrivalFrom", "startingOffsets"), ("arrivalTo", "endingOffsets")):
        with pytest.raises(InvalidArgument, match=f"{name}: is for spark.read; use `{instead}`"):
            stream_options({**QUEUE, name: "1"})
    with pytest.raises(InvalidArgument, match="minOffsetsPerTrigger: must be at most 5, as maxMessagesPerBatch is"):
        stream_options({**QUEUE, "minOffsetsPerTrigger": "6", "maxMessagesPerBatch": "5"})


def test_a_batch_has_a_start_and_an_end() -> None:
    options = batch_options({**QUEUE, "startingOffsets": "5", "endingOffsets": "9"})
    assert (options.start_of("any"), options.end_of("any")) == (5, 9)
    assert batch_options({**QUEUE, "endingOffsets": "latest"}) == batch_options(QUEUE)
    for given, sentence in (
        ({"startingOffsets": "latest"}, "startingOffsets: must be earliest or a number for spark.read, got latest"),
        ({"startingOffsets": "1", "arrivalFrom": "1"}, "startingOffsets: must not be set together with `arrivalFrom`"),
        ({"maxBytesPerTrigger": "5"}, "maxBytesPerTrigger: is for readStream; a batch reads all that is there"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            batch_options({**QUEUE, **given})
        assert str(caught.value).startswith(sentence)


def test_several_queues() -> None:
    options = read_options({"queue": r"private$\a, private$\q* ,private$\a"})
    assert options.queues == (r"private$\a", r"private$\q*")
    assert options.only_queue is None
    assert options.columns == (*MESSAGE, "queue")
    assert read_options(QUEUE).only_queue == r"private$\orders"
    assert read_options({**QUEUE, "columns": "id,queue"}).columns == ("id", "queue")


def test_times() -> None:
    assert read_options({**QUEUE, "startingTimestamp": "1777777777000"}).start_ms == 1777777777000
    assert read_options({**QUEUE, "startingTimestamp": "2026-05-01T12:00:00Z"}).start_ms == 1777636800000
    assert read_options({**QUEUE, "startingTimestamp": "2026-05-01T14:00:00+02:00"}).start_ms == 1777636800000


def test_writing() -> None:
    with pytest.raises(InvalidArgument, match="queue: 'orders', character 1: a path must be a computer"):
        write_options({"queue": "orders"})
    options = write_options({**QUEUE, "name": "nightly", "checkpointLocation": "/somewhere"})
    assert (options.name, options.transactional) == ("nightly", None)
    assert write_options({**QUEUE, "transactional": "true"}).transactional is True
    with pytest.raises(InvalidArgument, match="nam: there is no such option; did you mean name"):
        write_options({**QUEUE, "nam": "nightly"})
    assert write_options({}, has_queues=True).place.queue == ""
    with pytest.raises(InvalidArgument, match="queue: must not be set, because the rows have a column `queue`"):
        write_options(QUEUE, has_queues=True)
    with pytest.raises(InvalidArgument, match="transactional"):
        write_options({**QUEUE, "transactional": "perhaps"})
