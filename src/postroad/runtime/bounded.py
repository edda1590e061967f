"""A bounded table for what the manager remembers of strangers. One stranger's entries do not push out another's.

Every collection that outsiders can make grow is one of these. No clock and no I/O here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from ipaddress import IPv6Address, ip_address
from itertools import islice
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

ROOM: Final = 64  # the part of a full table that leaves at once, so that one search makes room for many newcomers
KEPT_FREE: Final = 16  # the part of a table that each standing leaves to those below it
KEPT_FEW: Final = 2  # a table of this size or less does not distinguish standings
_LOOK: Final = 64
_SUBNET_BITS: Final = 64  # an IPv6 host can use any address within its subnet


class Standing(IntEnum):
    """No entry gives way to one of a lower standing."""

    STRANGER = 0  # anybody can make such entries, as many as they like
    PROVEN = 1  # a queue has accepted a message from it, or its password was right
    KNOWN = 2  # the directory or `[peers]` names it, or we have called it


def owner_of(address: str) -> str:
    """The owner that an address counts for: itself, the IPv4 address within it, or its IPv6 subnet."""
    if ":" not in address:
        return address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address) or parsed.is_loopback:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    host_bits = 128 - _SUBNET_BITS
    return f"{IPv6Address(int(parsed) >> host_bits << host_bits)}/{_SUBNET_BITS}"


class _Share(Generic[K]):
    """The entries of one owner in one standing, in the order they were last heard of."""

    __slots__ = ("keys", "owner", "standing")

    def __init__(self, owner: str, standing: Standing) -> None:
        self.owner = owner
        self.standing = standing
        self.keys: dict[K, None] = {}


class BoundedTable(Generic[K, V]):
    """Holds at most `limit` entries, and at most `most` of one owner. An owner is an address (`owner_of`) or an
    identity.

    When the table is full, a new entry replaces one of the lowest standing, never one of a higher standing than its
    own. Within a standing, the owner with the most entries loses the one that was silent for longest. Among equal
    owners, the one that was silent for longest leaves. Nobody loses an entry to an owner that has more, nor one of its
    fair share while others have more than theirs, even if those entries are in use. Each standing leaves a sixteenth of
    the table to those below it, so that strangers can still prove themselves when the table is full of proven entries.
    Entries below `lowest` get only what is left over.

    An entry for which `in_use` is true stays. The table asks `standing` again before an entry leaves, so nobody has to
    report a rise. It calls `dropped` for each entry that was replaced.
    """

    __slots__ = (
        "_allowed",
        "_counts",
        "_dropped",
        "_entries",
        "_full",
        "_in_use",
        "_is_full",
        "_shares",
        "_standing",
        "limit",
        "most",
        "refused",
    )

    def __init__(
        self,
        limit: int,
        *,
        most: int | None = None,
        lowest: Standing = Standing.STRANGER,
        in_use: Callable[[K, V], bool] | None = None,
        standing: Callable[[K, V], Standing] | None = None,
        dropped: Callable[[K, V], None] | None = None,
    ) -> None:
        self.limit = limit
        self.most = limit if most is None else most
        self.refused = 0  # new entries refused since the start
        kept_free = max(1, limit // KEPT_FREE)
        # The limit for each standing together with those above it.
        self._allowed = [limit - max(0, standing - lowest) * kept_free for standing in Standing]
        self._in_use = in_use
        self._standing = standing
        self._dropped = dropped
        self._entries: dict[K, tuple[V, _Share[K]]] = {}  # in the order they were last heard of
        self._shares: tuple[dict[str, _Share[K]], ...] = tuple({} for _ in Standing)
        self._counts = [0 for _ in Standing]  # by standing
        self._full = [0 for _ in Standing]  # newcomers to refuse before the next search for room
        self._is_full = False

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        """In the order they were last heard of."""
        return iter(self._entries)

    def items(self) -> Iterator[tuple[K, V]]:
        for key, (value, _) in self._entries.items():
            yield key, value

    def values(self) -> Iterator[V]:
        for value, _ in self._entries.values():
            yield value

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        return None if found is None else found[0]

    def has_any(self, keys: Iterable[K]) -> bool:
        return not self._entries.keys().isdisjoint(keys)

    def owner(self, key: K) -> str:
        return self._entries[key][1].owner

    def standing(self, key: K) -> Standing:
        """The standing as last set or asked for."""
        return self._entries[key][1].standing

    def put(self, key: K, value: V, owner: str, standing: Standing = Standing.STRANGER) -> bool:
        """Adds an entry, or changes its value and makes it the newest. Returns False if there is no room."""
        self.pop(key)
        return self.put_all((key,), value, owner, standing)

    def put_all(self, keys: Iterable[K], value: V, owner: str, standing: Standing) -> bool:
        """Adds several entries. None of the keys may be here yet."""
        if self.limit <= KEPT_FEW:
            standing = Standing.STRANGER
        shares = self._shares[standing]
        share = shares.pop(owner, None) or _Share(owner, standing)
        shares[owner] = share
        members, entries = share.keys, self._entries
        before = len(members)
        new = dict.fromkeys(keys)
        members.update(new)
        entries.update(dict.fromkeys(new, (value, share)))
        self._counts[standing] += len(members) - before
        crowded = len(members) > self.most
        if crowded:
            self._shrink(share, len(members) - self.most + self.most // ROOM, new)
            self._refuse(list(islice(new, max(0, len(members) - self.most))))
        if len(entries) > self._allowed[standing]:  # otherwise there is room anyway
            self._make_room(share, new)
            crowded = True
        return not crowded or next(reversed(new), None) in entries

    def touch(self, key: K) -> None:
        """The entry was heard of just now: it becomes the newest."""
        entry = self._entries.pop(key)
        self._entries[key] = entry
        share = entry[1]
        del share.keys[key]
        share.keys[key] = None
        shares = self._shares[share.standing]
        shares[share.owner] = shares.pop(share.owner)

    def rise(self, key: K, standing: Standing) -> None:
        """Raises the standing of an entry. A standing never falls."""
        found = self._entries.get(key)
        if found is None or found[1].standing >= standing or self.limit <= KEPT_FEW:
            return
        share = self._move(key, found[0], found[1], standing)
        if len(share.keys) > self.most:
            self._shrink(share, len(share.keys) - self.most, {key: None})
        if self._above(standing) > self._allowed[standing]:
            self._make_room(share, {})

    def pop(self, key: K) -> V | None:
        """Removes an entry without calling `dropped`."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self._leave(key, found[1])
        return found[0]

    def set_values(self, value: V) -> None:
        """Sets the value of all entries. Their order stays."""
        self._entries = {key: (value, share) for key, (_, share) in self._entries.items()}

    def clear(self) -> None:
        for key in list(self._entries):
            self.pop(key)

    # Room

    def _above(self, standing: int) -> int:
        return sum(self._counts[standing:])

    def _leave(self, key: K, share: _Share[K]) -> None:
        del share.keys[key]
        self._counts[share.standing] -= 1
        if not share.keys:
            self._shares[share.standing].pop(share.owner, None)
        if self._is_full:
            self._full, self._is_full = [0 for _ in Standing], False

    def _move(self, key: K, value: V, share: _Share[K], standing: Standing) -> _Share[K]:
        self._leave(key, share)
        target = self._shares[standing].setdefault(share.owner, _Share(share.owner, standing))
        target.keys[key] = None
        self._counts[standing] += 1
        self._entries[key] = value, target
        return target

    def _make_room(self, grown: _Share[K], new: dict[K, None]) -> None:
        """Makes room after entries were added to this share: removes the excess, and a few more."""
        standing = grown.standing
        if self._full[standing] > 0:
            self._full[standing] -= 1
            self._refuse(new)
            return
        spare = self.limit // ROOM
        surplus = self._above(standing) - self._allowed[standing]
        if standing and surplus > 0:
            self._give_up(standing, surplus + spare, new, grown)
        surplus = len(self._entries) - self.limit
        for lower in Standing:
            if surplus <= 0 or lower > standing:
                break
            surplus -= self._give_up(lower, surplus + spare, new, grown)
        if surplus > 0 or self._above(standing) > self._allowed[standing]:
            self._refuse(new)
            self._full[standing], self._is_full = spare, True

    def _refuse(self, new: Iterable[K]) -> None:
        full, self._is_full = self._is_full, False
        for key in new:
            found = self._entries.pop(key, None)
            if found is not None:
                self._leave(key, found[1])
                self.refused += 1
        self._is_full = full

    def _give_up(self, standing: Standing, wanted: int, new: dict[K, None], grown: _Share[K]) -> int:
        """Removes `wanted` entries of this standing, or fewer if fewer may leave."""
        shares = self._shares[standing]
        order = [(-len(share.keys), place, share) for place, share in enumerate(shares.values())]
        heapify(order)
        smallest = 0  # share that gives an entry
        if standing is grown.standing and order:
            smallest = max(len(grown.keys), self._counts[standing] // len(order))
        left = wanted
        while order and left > 0:
            size, place, share = heappop(order)
            if share is not grown and -size < smallest:
                break
            # Take from the largest owner until another one is as large.
            due = min(left, max(1, -size + (order[0][0] if order else 0)))
            given = self._shrink(share, due, new)
            left -= given
            if given == due and share.keys:
                heappush(order, (size + given, place, share))
        return wanted - left

    def _shrink(self, share: _Share[K], wanted: int, new: dict[K, None]) -> int:
        """Removes an owner's oldest entries, except those that are new, in use or of a higher standing by now."""
        entries, in_use, standing, dropped = self._entries, self._in_use, self._standing, self._dropped
        given = staying = 0
        while given < wanted:
            keys = list(islice(share.keys, staying, staying + max(_LOOK, wanted - given)))
            if not keys:
                break
            for key in keys:
                value = entries[key][0]
                if key in new or (in_use is not None and in_use(key, value)):
                    staying += 1
                    continue
                if standing is not None and (now := standing(key, value)) > share.standing and self.limit > KEPT_FEW:
                    self._move(key, value, share, now)
                    continue
                del entries[key]
                self._leave(key, share)
                given += 1
                if dropped is not None:
                    dropped(key, value)
                if given == wanted:
                    break
        return given
