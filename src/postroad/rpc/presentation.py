"""Presentation contexts: the interface and transfer syntax of each context id, [MS-RPCE] 3.3.1.5.6. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from postroad.rpc.constants import ContextResult, ProviderReason
from postroad.rpc.interface import Interface
from postroad.rpc.ndr import Format
from postroad.rpc.pdu import NDR, NDR64, NO_SYNTAX, ContextAnswer, PresentationContext, SyntaxId, features_of

MAX_CONTEXTS: Final = 256  # of one connection; [MS-RPCE] 3.3.3.5.5 lets a server hold 4000 for each interface
FEATURES: Final = 0x03  # security context multiplexing, and keeping the connection after an orphaned PDU
_PREFERENCE: Final = (NDR, NDR64)  # NDR is the smaller


@dataclass(frozen=True, slots=True)
class Presentation:
    abstract: SyntaxId
    transfer: SyntaxId
    interface: Interface

    layout: Format


class Presentations:
    """The negotiated contexts of one connection."""

    def __init__(self, interfaces: Mapping[UUID, Interface]) -> None:
        self._interfaces = interfaces
        self._table: dict[int, Presentation] = {}

    def get(self, context_id: int) -> Presentation | None:
        return self._table.get(context_id)

    @property
    def full(self) -> bool:
        return len(self._table) > MAX_CONTEXTS

    def negotiate(self, proposed: tuple[PresentationContext, ...]) -> tuple[ContextAnswer, ...]:
        """One answer for each proposal, in order; of one interface's transfer syntaxes one is accepted."""
        wanted: dict[SyntaxId, set[SyntaxId]] = {}
        for context in proposed:
            wanted.setdefault(context.abstract, set()).update(context.transfers)
        best = {
            abstract: next((each for each in _PREFERENCE if each in transfers), None)
            for abstract, transfers in wanted.items()
        }
        taken: set[SyntaxId] = set()
        return tuple([self._answer(context, best[context.abstract], taken) for context in proposed])

    def _answer(self, context: PresentationContext, transfer: SyntaxId | None, taken: set[SyntaxId]) -> ContextAnswer:
        features = features_of(context.transfers[0]) if len(context.transfers) == 1 else None
        if features is not None:
            return ContextAnswer(ContextResult.NEGOTIATE_ACK, features & FEATURES, NO_SYNTAX)
        abstract = context.abstract
        interface = self._interfaces.get(abstract.uuid)
        # We can serve the same major version with at most our minor version: [C706] 6.1.2.
        if interface is None or abstract.major != interface.version[0] or abstract.minor > interface.version[1]:
            return _rejected(ProviderReason.ABSTRACT_SYNTAX_NOT_SUPPORTED)
        if transfer is None or transfer not in context.transfers or abstract in taken:
            return _rejected(ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED)
        taken.add(abstract)
        self._table[context.context_id] = Presentation(
            abstract, transfer, interface, Format.NDR if transfer == NDR else Format.NDR64
        )
        return ContextAnswer(ContextResult.ACCEPTANCE, 0, transfer)


def _rejected(reason: ProviderReason) -> ContextAnswer:
    return ContextAnswer(ContextResult.PROVIDER_REJECTION, reason, NO_SYNTAX)
