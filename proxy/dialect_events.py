"""Events of connections that speak other versions to the client than to the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..decoder import facts
from .events import Address, Event, show


@dataclass(frozen=True, slots=True)
class NotTranslated(Event):
    """A frame could not be brought into the version that its receiver speaks, and passing it as it was would have been
    wrong: its connection was ended."""

    warning: ClassVar[bool] = True
    connection: int
    api_key: int
    api_version: int
    reason: str

    @property
    def text(self) -> str:
        return (
            f"connection {self.connection}: ended, as {facts.api_name(self.api_key)} v{self.api_version} cannot be "
            f"given to the other side: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class NotHonoured(Event):
    """What of a profile the broker does not serve; clients are not offered it. `missing`: a text for each API."""

    warning: ClassVar[bool] = True
    profile: str
    missing: tuple[str, ...]

    @property
    def text(self) -> str:
        few = ", ".join(self.missing[:_FEW])
        more = f" and {len(self.missing) - _FEW} more" if len(self.missing) > _FEW else ""
        return (
            f"clients are told of {self.profile}, but not of what this broker does not serve: {few}{more}; "
            "--translate bridges versions"
        )


@dataclass(frozen=True, slots=True)
class OffersLearned(Event):
    """What a broker offers is known, so that requests can be translated. `release`: by how it behaved, if it has no
    ApiVersions, else empty."""

    broker: Address
    apis: int
    release: str = ""

    @property
    def text(self) -> str:
        if self.release:
            return f"{show(self.broker)} has no ApiVersions: taken for Kafka {self.release}"
        return f"{show(self.broker)} offers {self.apis} APIs"


_FEW = 8
