"""Secrets in files: every process reads them itself, and neither plans nor checkpoints show a secret."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from socket import gethostname

import pytest
from pyspark.sql import SparkSession

from postroad.api import TlsFiles
from postroad.errors import AccessDenied, InvalidArgument, ManagerUnavailable
from postroad.spark.manager_api import ManagerApi
from postroad.spark.options import read_options, write_options
from postroad.spark.reading import BatchReader
from postroad.spark.schema import spark_schema
from postroad.spark.streaming import StreamReader
from tests.certificates import Authority
from tests.served import Served, served

SECRET = "a-token-that-no-one-may-see"
QUEUE = r"private$\orders"


def options(manager: Served, **given: str) -> dict[str, str]:
    return {"api": f"http://{manager.server.host}:{manager.server.port}", "queue": QUEUE, **given}


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    return file


def test_a_process_reads_the_token_when_it_connects(token: Path) -> None:
    with served(token=SECRET) as manager:
        manager.run(manager.manager.create_queue(QUEUE))
        place = read_options(options(manager, tokenFile=str(token))).place
        token.write_text("wrong")
        with pytest.raises(AccessDenied):
            ManagerApi(place).mark()
        token.write_text(SECRET)
        assert ManagerApi(place).mark().messages == 0


def test_workers_get_only_the_path_of_a_secret(token: Path) -> None:
    given = {"queue": QUEUE, "tokenFile": str(token)}
    found = read_options(given)
    reader = pickle.dumps(BatchReader(found, spark_schema(found.columns)))
    assert str(token).encode() in reader
    assert SECRET.encode() not in reader
    assert write_options(given).place.token_file == str(token)


def test_a_reader_of_a_stream_that_has_called_travels_without_the_secret(token: Path) -> None:
    with served(token=SECRET) as manager:
        manager.run(manager.manager.create_queue(QUEUE))
        found = read_options(options(manager, tokenFile=str(token)))
        reader = StreamReader(found, spark_schema(found.columns))
        first = reader.initialOffset()
        reader.latestOffset(first, reader.getDefaultReadLimit())
        shipped = pickle.dumps(reader)
        reader.stop()
        assert SECRET.encode() not in shipped
        arrived = pickle.loads(shipped)
        assert arrived.initialOffset() == first
        arrived.latestOffset(first, arrived.getDefaultReadLimit())
        arrived.stop()


def test_the_certificates_of_both_sides_are_options(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.issue("127.0.0.1"), authority.issue("client.test")
    with served(tls=TlsFiles(*server, client_ca=authority.file)) as manager:
        manager.run(manager.manager.create_queue(QUEUE))
        given = {**options(manager), "api": f"https://127.0.0.1:{manager.server.port}", "timeout": "0.1"}
        with pytest.raises(ManagerUnavailable, match=r"certificate is not trusted .*caFile in Spark"):
            ManagerApi(read_options(given).place).mark()
        given["caFile"] = str(authority.file)
        with pytest.raises(ManagerUnavailable):
            ManagerApi(read_options(given).place).mark()
        given |= {"certificateFile": str(client[0]), "keyFile": str(client[1])}
        assert ManagerApi(write_options(given).place).mark().messages == 0
        shipped = pickle.dumps(ManagerApi(read_options(given).place))
        assert client[1].read_bytes().split(b"\n")[1] not in shipped
        assert pickle.loads(shipped).mark().messages == 0
        for name in ("caFile", "certificateFile"):
            wrong = {**given, name: str(tmp_path / "missing")}
            with pytest.raises(InvalidArgument, match=rf"^{name}: .*No such file.*, on {gethostname()}$"):
                ManagerApi(read_options(wrong).place).mark()


@pytest.mark.parametrize("text", ["", "one\ntwo\n", None])
def test_a_file_without_one_line_is_refused_with_the_machine(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "password"
    if text is not None:
        file.write_text(text)
    place = read_options({"queue": QUEUE, "user": "ann", "passwordFile": str(file)}).place
    why = "No such file" if text is None else "must contain exactly one line"
    with pytest.raises(InvalidArgument, match=rf"^passwordFile: {re.escape(str(file))} .*{why}"):
        ManagerApi(place).mark()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"token": "x", "tokenFile": "y"}, "tokenFile: must not be set together with `token`"),
        ({"user": "ann", "password": "x", "passwordFile": "y"}, "passwordFile: must not be set together with"),
        ({"passwordFile": "y"}, "passwordFile: needs the option `user`"),
        (
            {"user": "ann", "tokenFile": "y", "passwordFile": "y"},
            "user: must not be set together with `token` or `tokenFile`",
        ),
        ({"rpc": "host", "tokenFile": "y"}, "tokenFile: needs the option `api`"),
    ],
)
def test_options_that_exclude_each_other(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{re.escape(sentence)}"):
        read_options({"queue": QUEUE, **given})


def test_no_plan_and_no_checkpoint_shows_a_token(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(token=SECRET) as manager:
        manager.run(manager.manager.create_queue(QUEUE))
        given = options(manager, token=SECRET)
        spark.read.format("postroad").options(**given).load().where("priority = 3").explain(True)
        stream = spark.readStream.format("postroad").options(**given).load()
        checkpoint = tmp_path / "checkpoint"
        query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        done = query.trigger(availableNow=True).start()
        done.awaitTermination()
        done.explain(True)
        assert SECRET not in capsys.readouterr().out
        kept = [file.read_text(errors="replace") for file in checkpoint.rglob("*") if file.is_file()]
        assert kept
        assert not [text for text in kept if SECRET in text]
