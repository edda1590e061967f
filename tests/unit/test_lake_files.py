"""A lake's files and the parts of its Parquet tables, without Spark: what counts, and what is replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from postroad.errors import PipelineError
from postroad.spark.pipeline.gold import _changed_days
from postroad.spark.pipeline.lake_files import LocalFiles, open_files, scheme_of
from postroad.spark.pipeline.tables import Commit, ParquetTable

SCHEMA = StructType().add("number", "long").add("day", "date")
ONE, TWO = "2024-05-17", "2024-05-18"


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("lake", None),
        ("/srv/lake", None),
        (r"C:\lake", None),
        ("./s3a:x", None),
        ("S3A://b/x", "s3a"),
        ("hdfs:/x", "hdfs"),
    ],
)
def test_an_address_has_a_scheme_and_a_path_has_none(path: str, scheme: str | None) -> None:
    assert scheme_of(path) == scheme


@pytest.mark.parametrize("first", ["lock", "write"])
def test_the_directory_of_tables_is_the_wall(tmp_path: Path, first: str) -> None:
    """Only its owner may enter, whatever the umask."""
    place = tmp_path / "above" / "lake"
    umask = os.umask(0)
    try:
        files = open_files(str(place), None)
        if first == "lock":
            with files.lock():
                pass
        files.write_text("bronze/name", "x")
    finally:
        os.umask(umask)
    assert [each.stat().st_mode & 0o777 for each in (place, place.parent)] == [0o700, 0o700]


def test_other_addresses_than_local_ones_need_spark(tmp_path: Path) -> None:
    assert open_files(f"file://{tmp_path}/a%20lake", None).root == str(tmp_path / "a lake")
    with pytest.raises(PipelineError, match="s3a://bucket/x: reading a lake on s3a needs a Spark session"):
        open_files("s3a://bucket/x", None)
    assert not list(tmp_path.iterdir())


def test_files_are_written_whole_listed_in_order_and_deleted(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    assert files.read_text("a/name") is None
    assert files.walk("a") == []
    files.write_text("a/name", "one")
    files.write_text("a/name", "two")
    files.write_text("a/b/other", "three")
    assert files.read_text("a/name") == "two"
    assert [(file.path, file.size) for file in files.walk("")] == [("a/b/other", 5), ("a/name", 3)]
    files.delete("a/b")
    files.delete("a/nothing")
    assert [file.path for file in files.walk("a")] == ["a/name"]


class Table(ParquetTable):
    """A table whose parts are made by hand. `days` are the days of the next part, each with an empty file."""

    def commit(self, batch: int, days: tuple[str, ...], replaced: tuple[str, ...] | None = ()) -> None:
        draft_of = self.lake.draft

        def draft(place: str) -> str:
            found = draft_of(place)
            for day in days:
                self.lake.write_text(f"{found}/day={day}/{batch}.parquet", "")
            Path(self.lake.url(found)).mkdir(parents=True, exist_ok=True)
            return found

        self.lake.draft = draft  # type: ignore[method-assign]
        self._commit(None, Commit(batch, {}, SCHEMA), replaced)
        self.lake.draft = draft_of  # type: ignore[method-assign]

    @property
    def content(self) -> list[tuple[str | None, str]]:
        """(day, batch) of the files that count."""
        return sorted((file.day, Path(file.path).stem) for file in self.files())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(None, LocalFiles(tmp_path), "gold/delivery")


def test_a_part_replaces_days_of_earlier_parts_only(table: Table) -> None:
    table.commit(1, (ONE, TWO))
    table.commit(2, (ONE,))
    assert table.content == [(ONE, "1"), (ONE, "2"), (TWO, "1")]
    table.commit(3, (ONE,), (ONE,))
    assert table.content == [(ONE, "3"), (TWO, "1")]
    table.commit(4, (ONE, TWO))
    assert table.content == [(ONE, "3"), (ONE, "4"), (TWO, "1"), (TWO, "4")]
    table.commit(5, (), (ONE, TWO))
    assert table.content == []
    assert table.parts() == 1
    table.commit(6, (TWO,), None)
    assert table.content == [(TWO, "6")]
    last = table.last()
    assert last is not None
    assert (last.batch, last.schema) == (6, SCHEMA)


def test_replaced_files_do_not_count_while_they_are_still_there(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed between the commit and the removal of old files."""
    table.commit(1, (ONE, TWO))
    with monkeypatch.context() as patch:
        patch.setattr(table, "clean", lambda: None)
        table.commit(2, (ONE,), (ONE,))
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
    assert table.content == [(ONE, "2"), (TWO, "1")]
    table.commit(3, ())
    assert table.content == [(ONE, "2"), (TWO, "1")]
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_a_part_of_an_older_version_of_the_lake_is_read(table: Table, tmp_path: Path) -> None:
    place = tmp_path / "gold/delivery/part=00000000-00000007" / f"day={ONE}"
    place.mkdir(parents=True)
    (place / "7.parquet").touch()
    kept = {"batch": 7, "facts": {}, "schema": SCHEMA.jsonValue()}
    (place.parent / "_commit.json").write_text(json.dumps(kept))
    table.commit(8, (ONE,))
    assert table.content == [(ONE, "7"), (ONE, "8")]
    assert {path.name for path in (tmp_path / "gold/delivery").iterdir()} == {
        "part=00000000-00000007",
        "part=00000008-00000008",
    }


def test_a_summary_counts_the_days_again_that_have_changed_since() -> None:
    delivered = Commit(9, {"changes": [[7, None], [8, [ONE]], [9, [TWO, ONE]]]}, SCHEMA)
    assert _changed_days(delivered, 9) == []
    assert _changed_days(delivered, 8) == [ONE, TWO]
    assert _changed_days(delivered, 7) == [ONE, TWO]
    assert _changed_days(delivered, 6) is None  # all were made again
    assert _changed_days(delivered, 2) is None  # not remembered
