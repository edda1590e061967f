"""Reading a directory: GetDirectoryData, [MS-MQBR] 3.1.5.9, over the events of [MS-MQDMPR] 3.1.7.1.20 to 23."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from postroad.directory.objects import (
    AttributeFilter,
    Comparison,
    DirectoryObject,
    DirectoryOperationResult,
    Enterprise,
    Handle,
    ObjectSource,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    get_directory_data,
)
from postroad.directory.snapshot import Directory
from postroad.errors import DirectoryError
from tests.enterprises import client, guid, link, queue, server, site

SUCCESS, END_OF_DATA = DirectoryOperationResult.SUCCESS, DirectoryOperationResult.END_OF_DATA
SITES = (site("A"), site("B"), site("C"))
LINKS = (link("A", "B", 1), link("A", "C", 5), link("B", "C", 9))
MANAGERS = (client("alpha", "A"), server("beta", "B"))
QUEUES = (queue(r"alpha\orders"),)


def source() -> ObjectSource:
    return ObjectSource([*QUEUES, *MANAGERS, *LINKS, *SITES])


class Scripted:
    """A source that answers as a test says, and notes what it was asked."""

    def __init__(
        self,
        begin: DirectoryOperationResult,
        *answers: tuple[DirectoryOperationResult, DirectoryObject | None],
        end: DirectoryOperationResult = SUCCESS,
    ) -> None:
        self._begin, self._answers, self._end = begin, list(answers), end
        self.asked: list[object] = []

    def read_begin(
        self, object_type: str, filters: Sequence[AttributeFilter]
    ) -> tuple[DirectoryOperationResult, Handle]:
        self.asked.append((object_type, tuple(filters)))
        return self._begin, "the handle"

    def read_next(self, handle: Handle) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        self.asked.append(("next", handle))
        return self._answers.pop(0)

    def read_end(self, handle: Handle) -> DirectoryOperationResult:
        self.asked.append(("end", handle))
        return self._end


# GetDirectoryData


@pytest.mark.spec("BR-3.1.5.9-01", "DM-3.1.7.1.21-01")
def test_without_filters_all_objects_of_a_kind_are_read() -> None:
    assert get_directory_data(source(), Site) == SITES
    assert get_directory_data(source(), RoutingLink) == LINKS
    assert get_directory_data(source(), QueueManager) == MANAGERS
    assert get_directory_data(source(), Queue) == QUEUES


@pytest.mark.spec("BR-3.1.5.9-02", "DM-3.1.7.1.21-01")
def test_all_filters_must_be_satisfied() -> None:
    cheap = AttributeFilter("ActualCost", Comparison.LESS_THAN, 9)
    from_a = AttributeFilter("Site1Identifier", Comparison.EQUALS, guid("A"))
    from_b = AttributeFilter("Site1Identifier", Comparison.EQUALS, str(guid("B")))
    assert get_directory_data(source(), RoutingLink, [cheap]) == LINKS[:2]
    assert get_directory_data(source(), RoutingLink, [from_b]) == LINKS[2:]
    assert get_directory_data(source(), RoutingLink, [cheap, from_a]) == LINKS[:2]
    assert get_directory_data(source(), RoutingLink, [cheap, from_b]) == ()


@pytest.mark.spec("DM-3.1.7.1.20-02")
@pytest.mark.parametrize(
    ("comparison", "costs"),
    [
        (Comparison.EQUALS, [5]),
        (Comparison.NOT_EQUALS, [1, 9]),
        (Comparison.LESS_THAN, [1]),
        (Comparison.GREATER_THAN, [9]),
        (Comparison.LESS_THAN_OR_EQUAL, [1, 5]),
        (Comparison.GREATER_THAN_OR_EQUAL, [5, 9]),
    ],
)
def test_every_operator_has_the_attribute_at_its_left(comparison: Comparison, costs: list[int]) -> None:
    found = get_directory_data(source(), RoutingLink, [AttributeFilter("ActualCost", comparison, 5)])
    assert [each.actual_cost for each in found] == costs


@pytest.mark.spec("BR-3.1.5.9-03")
def test_a_read_that_cannot_begin_fails_at_once() -> None:
    offline = Scripted(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED)
    named = AttributeFilter("Name", Comparison.EQUALS, "A")
    with pytest.raises(DirectoryError, match="cannot be read: DirectoryNotConnected"):
        get_directory_data(offline, Site, [named])
    assert offline.asked == [("Site", (named,))]


@pytest.mark.spec("BR-3.1.5.9-04", "BR-3.1.5.9-06")
def test_objects_are_read_to_the_end_and_the_query_is_ended() -> None:
    scripted = Scripted(SUCCESS, *((SUCCESS, each) for each in SITES), (END_OF_DATA, None))
    assert get_directory_data(scripted, Site) == SITES
    assert scripted.asked == [("Site", ()), *[("next", "the handle")] * 4, ("end", "the handle")]


@pytest.mark.spec("BR-3.1.5.9-05", "BR-3.1.5.9-06")
def test_an_error_in_the_middle_discards_what_was_read_and_ends_the_query() -> None:
    failing = Scripted(
        SUCCESS, (SUCCESS, SITES[0]), (SUCCESS, SITES[1]), (DirectoryOperationResult.GENERIC_ERROR, None)
    )
    with pytest.raises(DirectoryError, match="in the middle of a read: GenericError"):
        get_directory_data(failing, Site)
    assert failing.asked[-1] == ("end", "the handle")
    assert failing.asked.count(("end", "the handle")) == 1


@pytest.mark.spec("BR-3.1.5.9-06")
def test_how_the_query_ended_makes_no_difference() -> None:
    scripted = Scripted(SUCCESS, (SUCCESS, SITES[0]), (END_OF_DATA, None), end=DirectoryOperationResult.GENERIC_ERROR)
    assert get_directory_data(scripted, Site) == SITES[:1]


def test_nothing_that_matches_is_an_answer_and_not_a_failure() -> None:
    """The specification returns Nothing for both. Here a caller can tell them apart."""
    assert get_directory_data(ObjectSource([]), Site) == ()


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(DirectoryError, match="must return a Site, got a QueueManager"):
        get_directory_data(Scripted(SUCCESS, (SUCCESS, MANAGERS[0])), Site)


# What the routing table is made from


@pytest.mark.spec("BR-3.1.3.1-02", "BR-3.1.3.1-03", "DM-3.1.3-04")
def test_a_directory_reads_all_sites_and_all_links() -> None:
    begun: list[tuple[str, int]] = []

    class Listening(ObjectSource):
        def read_begin(
            self, object_type: str, filters: Sequence[AttributeFilter]
        ) -> tuple[DirectoryOperationResult, Handle]:
            begun.append((object_type, len(filters)))
            return super().read_begin(object_type, filters)

    found = Directory.read(Listening([*SITES, *LINKS, *MANAGERS, *QUEUES]))
    assert (found.sites, found.links, found.managers, found.queues) == (SITES, LINKS, MANAGERS, QUEUES)
    assert begun == [("Site", 0), ("RoutingLink", 0), ("QueueManager", 0), ("Queue", 0), ("Enterprise", 0)]


@pytest.mark.spec("DM-3.1.7.1.20-01")
def test_of_two_objects_that_match_the_first_is_the_one_that_is_read() -> None:
    first, second = (Enterprise(identifier=guid(name), name=name) for name in ("first", "second"))
    again = replace(MANAGERS[0], computer_name="again")
    found = Directory.read(ObjectSource([first, second, *SITES, *MANAGERS, again]))
    assert found.enterprise is first
    assert found.manager(again.identifier) is MANAGERS[0]


# The source in memory


@pytest.mark.spec("DM-3.1.1.17-01")
def test_there_are_seven_results() -> None:
    names = (
        "Success",
        "GenericError",
        "DirectoryNotConnected",
        "ObjectNotFound",
        "AttributeNotFound",
        "EndOfData",
        "ObjectAlreadyExists",
    )
    assert [DirectoryOperationResult(name).value for name in names] == [each.value for each in DirectoryOperationResult]


@pytest.mark.spec("DM-3.1.7.1.22-01")
def test_after_the_last_object_the_data_ends() -> None:
    objects = source()
    _, handle = objects.read_begin("Site", [])
    answers = [objects.read_next(handle) for _ in range(5)]
    assert answers == [*((SUCCESS, each) for each in SITES), (END_OF_DATA, None), (END_OF_DATA, None)]


@pytest.mark.spec("DM-3.1.7.1.23-01")
def test_a_handle_is_good_for_nothing_after_its_end() -> None:
    objects = source()
    _, handle = objects.read_begin("Site", [])
    assert objects.read_end(handle) is SUCCESS
    assert objects.read_next(handle) == (DirectoryOperationResult.GENERIC_ERROR, None)
    assert objects.read_end(handle) is DirectoryOperationResult.GENERIC_ERROR


def test_two_queries_do_not_disturb_each_other() -> None:
    objects = source()
    _, one = objects.read_begin("Site", [])
    _, other = objects.read_begin("Site", [])
    assert objects.read_next(one) == objects.read_next(other) == (SUCCESS, SITES[0])


def test_a_kind_or_an_attribute_that_is_not_there_is_refused() -> None:
    named = AttributeFilter("Colour", Comparison.EQUALS, "green")
    assert source().read_begin("User", [])[0] is DirectoryOperationResult.GENERIC_ERROR
    assert source().read_begin("Site", [named])[0] is DirectoryOperationResult.ATTRIBUTE_NOT_FOUND
