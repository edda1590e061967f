"""How a manager that no directory knows names its own queues to others: by its own addresses."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.names import DirectName, FormatName


@dataclass(frozen=True, slots=True)
class AnswerAddresses:
    """The beginnings of direct names for queues here, such as `TCP:10.0.0.5` and `HTTP://10.0.0.5:8080/msmq`. None
    where the manager is not reached so."""

    binary: str | None = None
    http: str | None = None

    def name_for(self, destination: FormatName, path: str) -> DirectName | None:
        """The name of the queue `path` for answers of the destination, by its own protocol if possible. None if the
        destination is not known by its address either, or if no address is known here."""
        if not isinstance(destination, DirectName):
            return None
        http = None if self.http is None else f"{self.http}/{path.replace(chr(92), '/')}"
        binary = None if self.binary is None else f"{self.binary}\\{path}"
        text = (http or binary) if destination.is_send_only else (binary or http)
        return None if text is None else DirectName.from_wire(text)
