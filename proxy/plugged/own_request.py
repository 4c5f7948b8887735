"""A request of a plugin's own that is on its way (`asks`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..relay.connection import Connection


@dataclass(slots=True)
class OwnRequest:
    """One of them. `number`: the host's (`host`); `question`: what its hook holds, 0: nothing."""

    host: int
    number: int
    question: int
    connection: Connection
    frame: bytes
    until: float
    by: str
    over: bool = False
