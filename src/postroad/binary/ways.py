"""Where an outgoing queue leads, [MS-MQQB] 3.1.5.2.1, 3.1.7.4 and 3.1.7.5: an address, or next hops."""

from __future__ import annotations

from collections.abc import Callable

from postroad.binary.service import Hop, Resolve
from postroad.names import DirectName, FormatName
from postroad.names.direct import Protocol
from postroad.routing import Router


def resolver(router: Callable[[], Router]) -> Resolve:
    """Asks the router that is there when it is asked: the directory changes. NoRoute has its words."""

    def resolve(name: FormatName) -> list[Hop]:
        current = router()
        if isinstance(name, DirectName):
            known = current.directory.manager_named(name.host) if name.protocol is Protocol.OS else None
            return [Hop(known.host if known is not None else name.host)]
        found = current.next_hops_to(name)
        if found is None:
            return []
        return [Hop(each.host, each.identifier) for each in (*found.hops, *found.fallback)]

    return resolve
