"""The digest of rows: equal for equal rows, however they are cut, and different for any others."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from postroad.spark.manager_api import RowDigest

ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=5),
        st.none() | st.text(max_size=5),
        st.none() | st.integers(-5, 5),
        st.none() | st.booleans(),
        st.none() | st.lists(st.none() | st.text(max_size=2), max_size=3),
    ),
    max_size=12,
)
SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("label", pa.string()),
        ("priority", pa.int32()),
        ("journal", pa.bool_()),
        ("ack", pa.list_(pa.string())),
    ]
)


def batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(SCHEMA)], schema=SCHEMA
    )


def digest(*batches: pa.RecordBatch) -> str:
    made = RowDigest()
    for each in batches:
        made.add(each)
    return made.text()


@given(ROWS, st.integers(0, 12), st.integers(0, 12))
def test_the_ends_of_batches_do_not_show(rows: list[tuple[object, ...]], first: int, second: int) -> None:
    whole = batch(rows)
    low, high = sorted((min(first, len(rows)), min(second, len(rows))))
    cut = (whole.slice(0, low), whole.slice(low, high - low), whole.slice(high))
    if rows:
        assert digest(*cut) == digest(whole)


@given(ROWS, ROWS)
def test_other_rows_have_another_digest(rows: list[tuple[object, ...]], others: list[tuple[object, ...]]) -> None:
    assert (digest(batch(rows)) == digest(batch(others))) == (rows == others)


def test_values_do_not_flow_into_each_other() -> None:
    def bodies(*values: bytes | None) -> str:
        return digest(pa.RecordBatch.from_pydict({"body": pa.array(values, pa.binary())}))

    assert (
        len({bodies(b"ab", b"c"), bodies(b"a", b"bc"), bodies(b"abc"), bodies(b"abc", b""), bodies(b"abc", None)}) == 5
    )


def test_a_slice_has_the_digest_of_its_rows() -> None:
    whole = pa.RecordBatch.from_pydict({"body": [b"x", b"a", b"b", b"y"]})
    assert digest(whole.slice(1, 2)) == digest(pa.RecordBatch.from_pydict({"body": [b"a", b"b"]}))


def test_the_digest_is_available_at_any_time() -> None:
    made = RowDigest()
    made.add(pa.RecordBatch.from_pydict({"body": [b"a"]}))
    first = made.text()
    assert first == made.text()
    made.add(pa.RecordBatch.from_pydict({"body": [b"b"]}))
    assert made.text() != first
    assert made.rows == 2
