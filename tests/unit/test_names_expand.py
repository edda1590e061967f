"""Expand Format Name, [MS-MQDMPR] 3.1.7.3.8: what a list means once its distribution lists are resolved."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest

from postroad.errors import IllegalFormatName, PostroadError
from postroad.names import DistributionListName, FormatName, MultipleElementName, expand_format_name, parse_format_name

ONE, TWO, THREE = (f"DL={UUID(int=number)}" for number in (1, 2, 3))


class NotInDirectory(PostroadError):
    pass


def no_directory(name: DistributionListName) -> Iterable[FormatName]:
    raise NotInDirectory(str(name))


def expand(text: str, **lists: list[str]) -> str:
    """Expands `text`. The lists one, two and three have these members."""
    members = {parse_format_name({"one": ONE, "two": TWO, "three": THREE}[key]): value for key, value in lists.items()}

    def resolve(name: DistributionListName) -> Iterable[FormatName]:
        if name not in members:
            raise NotInDirectory(str(name))
        return map(parse_format_name, members[name])

    return str(expand_format_name(parse_format_name(text), resolve))


@pytest.mark.spec("DM-3.1.7.3.8-01")
@pytest.mark.parametrize(
    "text",
    [
        r"DIRECT=OS:Host\Private$\Orders",
        "MULTICAST=234.1.1.1:8001",
        rf"PRIVATE={UUID(int=9)}\1f;JOURNAL",
        f"MACHINE={UUID(int=9)};DEADXACT",
    ],
)
def test_a_single_name_stays_as_it_is(text: str) -> None:
    name = parse_format_name(text)
    assert expand_format_name(name, no_directory) is name
    assert str(name) == text


@pytest.mark.spec("DM-3.1.7.3.8-02")
def test_a_distribution_list_becomes_its_members() -> None:
    assert expand(ONE, one=[r"DIRECT=OS:b\q", r"DIRECT=OS:a\q"]) == r"DIRECT=OS:a\q,DIRECT=OS:b\q"
    assert expand(rf"{ONE},DIRECT=OS:c\q", one=[r"DIRECT=OS:a\q"]) == r"DIRECT=OS:a\q,DIRECT=OS:c\q"


@pytest.mark.spec("DM-3.1.7.3.8-02")
def test_lists_of_lists_are_flattened() -> None:
    flat = expand(ONE, one=[TWO, r"DIRECT=OS:c\q"], two=[THREE, r"DIRECT=OS:b\q"], three=[r"DIRECT=OS:a\q"])
    assert flat == r"DIRECT=OS:a\q,DIRECT=OS:b\q,DIRECT=OS:c\q"
    assert expand(ONE, one=[r"DIRECT=OS:b\q,DIRECT=OS:a\q"]) == r"DIRECT=OS:a\q,DIRECT=OS:b\q"


@pytest.mark.spec("DM-3.1.7.3.8-02")
def test_one_list_that_cannot_be_resolved_fails_the_whole() -> None:
    with pytest.raises(NotInDirectory):
        expand(rf"DIRECT=OS:a\q,{ONE}", one=[TWO, r"DIRECT=OS:b\q"])


def test_a_list_that_holds_itself_is_resolved_once() -> None:
    assert expand(ONE, one=[TWO], two=[ONE, r"DIRECT=OS:a\q"]) == r"DIRECT=OS:a\q"


def test_a_list_without_members_is_no_destination() -> None:
    with pytest.raises(IllegalFormatName, match="must have members"):
        expand(ONE, one=[])


def test_a_member_that_nobody_can_send_to_is_refused() -> None:
    with pytest.raises(IllegalFormatName):
        expand(ONE, one=[r"DIRECT=OS:a\q;JOURNAL", r"DIRECT=OS:b\q"])


@pytest.mark.spec("DM-3.1.7.3.8-03")
def test_duplicates_are_dropped_without_regard_to_case() -> None:
    assert expand(r"DIRECT=OS:a\q,direct=os:A\q") == r"DIRECT=OS:a\q"
    assert expand(r"DIRECT=OS:a\q,DIRECT=OS:b\q,direct=os:A\Q") == r"DIRECT=OS:a\q,DIRECT=OS:b\q"
    assert expand(rf"DIRECT=OS:a\q,{ONE}", one=[r"DIRECT=OS:A\q"]) == r"DIRECT=OS:a\q"


@pytest.mark.spec("DM-3.1.7.3.8-03")
def test_elements_are_sorted_without_regard_to_case() -> None:
    name = expand_format_name(parse_format_name(r"DIRECT=OS:B\q,DIRECT=OS:c\q,DIRECT=OS:a\q"), no_directory)
    assert isinstance(name, MultipleElementName)
    assert str(name) == r"DIRECT=OS:a\q,DIRECT=OS:B\q,DIRECT=OS:c\q"
