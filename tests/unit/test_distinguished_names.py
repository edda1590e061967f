"""DNs and filters: every spelling of a name is one name, and no name from outside changes what a filter means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.directory import distinguished_names as names
from postroad.errors import DirectoryError

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(st.lists(st.tuples(st.sampled_from(["CN", "OU", "DC"]), text), min_size=1, max_size=5))
def test_a_name_survives_its_own_escaping(parts: list[tuple[str, str]]) -> None:
    assert list(names.split(names.join(parts))) == parts


@pytest.mark.parametrize(
    ("dn", "value"),
    [
        (r"CN=a\,b,DC=test", "a,b"),
        (r"CN=a\2Cb,DC=test", "a,b"),
        (r"CN=a\3Db,DC=test", "a=b"),
        (r"CN=\#a,DC=test", "#a"),
        (r"CN=\C3\A4,DC=test", "ä"),
        (r"CN=a\ ,DC=test", "a "),
        ("CN = a , DC=test", "a"),
    ],
)
def test_both_ways_to_escape_are_read(dn: str, value: str) -> None:
    assert names.split(dn)[0] == ("CN", value)
    assert names.normal(dn) == names.normal(names.child("cn", value.upper(), "dc=TEST"))


@pytest.mark.parametrize("dn", ["orders", "CN=a,", "=a", "CN=a\\", r"CN=\C3", "CN=" + "a" * 5000])
def test_other_text_is_refused(dn: str) -> None:
    with pytest.raises(DirectoryError):
        names.split(dn)


def test_a_deleted_object_is_known_by_its_name() -> None:
    assert names.is_deleted(r"CN=msmq\0ADEL:25cb9f10-8aa0-4b05-9e32-0b2a9b1e9a3f,CN=Deleted Objects,DC=test")
    assert not names.is_deleted("CN=msmq DEL:,CN=a,DC=test")


@given(text)
def test_a_value_cannot_leave_its_filter(value: str) -> None:
    found = names.equals("cn", value)
    assert found.startswith("(cn=")
    assert found.endswith(")")
    assert not set("()*\0") & set(found[4:-1])


def test_filters_are_put_together() -> None:
    assert names.equals("objectGUID", b"\x01a") == r"(objectGUID=\01\61)"
    assert names.any_of(names.present("a"), names.at_least("b", 5)) == "(|(a=*)(b>=5))"
    assert names.all_of(names.equals("a", 1)) == "(&(a=1))"
