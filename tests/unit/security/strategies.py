"""Security descriptors for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from postroad.security.descriptors import Ace, AceType, Acl, Control, OtherAce, SecurityDescriptor, Sid
from postroad.security.sddl import ALIASES

sids = st.one_of(
    st.sampled_from(sorted(ALIASES.values(), key=str)),
    st.builds(
        Sid,
        st.integers(0, 0xFFFFFFFFFFFF),
        st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=15).map(tuple),
    ),
)
FLAGS_IN_TEXT = 0xDF  # bit 0x20 has no word

masks = st.integers(0, 0xFFFFFFFF)
flags_in_text = st.integers(0, 0xFF).map(lambda flags: flags & FLAGS_IN_TEXT)
dacl_aces = st.builds(Ace, st.sampled_from([AceType.ALLOW, AceType.DENY]), masks, sids, flags_in_text)
sacl_aces = st.builds(Ace, st.just(AceType.AUDIT), masks, sids, flags_in_text)
other_aces = st.builds(
    OtherAce,
    st.integers(3, 255),
    st.integers(0, 20).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words)),
    st.integers(0, 255),
)


def acls(aces: st.SearchStrategy[Ace | OtherAce]) -> st.SearchStrategy[Acl]:
    return st.builds(Acl, st.lists(aces, max_size=6).map(tuple))


# Every descriptor that bytes can express.
descriptors = st.builds(
    SecurityDescriptor,
    owner=st.none() | sids,
    group=st.none() | sids,
    dacl=st.none() | acls(dacl_aces | sacl_aces | other_aces),
    sacl=st.none() | acls(dacl_aces | sacl_aces | other_aces),
    control=st.integers(0, 0x7FFF).map(lambda bits: Control(bits & ~0x14)),
    resource_manager=st.integers(0, 255),
)


@st.composite
def descriptors_in_text(draw: st.DrawFn) -> SecurityDescriptor:
    """Every descriptor that SDDL can express. The flags of a list require the list."""
    dacl = draw(st.none() | acls(dacl_aces))
    sacl = draw(st.none() | acls(sacl_aces))
    control = draw(st.integers(0, 0x3F00)) & (0x1500 if dacl is not None else 0)
    control |= draw(st.integers(0, 0x3F00)) & (0x2A00 if sacl is not None else 0)
    return SecurityDescriptor(draw(st.none() | sids), draw(st.none() | sids), dacl, sacl, Control(control))
