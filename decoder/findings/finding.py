"""A finding: something wrong or odd in the traffic, said so that a person can act on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ..exchange import Exchange


class Severity(StrEnum):
    """How bad it is; ``str`` is what users write on the command line."""

    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(slots=True)
class Finding:
    """``seen`` is the fact, ``why`` what makes it matter (a KIP or setting named), ``remedy`` what to do."""

    id: str
    severity: Severity
    seen: str
    why: str
    remedy: str
    count: int = 1
    exchanges: list[Exchange] = field(default_factory=list)


class Detector(Protocol):
    """Looks at exchanges one by one and says at any time what it has found so far."""

    def look(self, exchange: Exchange) -> None: ...

    def findings(self) -> Iterable[Finding]: ...
