"""Access lists in words."""

from __future__ import annotations

import pytest

from postroad.reports.access_list import Entry, read_entries


@pytest.mark.parametrize(
    ("sddl", "entries"),
    [
        ("O:BA", [Entry("allow", "everyone", ("full",))]),
        ("D:", []),
        ("D:(A;;0x4;;;WD)", [Entry("allow", "everyone (S-1-1-0)", ("write",))]),
        ("D:(D;;0x3;;;S-1-5-21-1-2-3-4)", [Entry("deny", "S-1-5-21-1-2-3-4", ("receive",))]),
        ("D:(A;;0x1;;;AN)", [Entry("allow", "anonymous (S-1-5-7)", ("0x1",))]),
    ],
)
def test_entries_in_words(sddl: str, entries: list[Entry]) -> None:
    assert read_entries(sddl) == entries
