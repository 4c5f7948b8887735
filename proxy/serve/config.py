"""What a recording is served with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ...captures.serving import Offer
from ..events import Address


class OnMiss(StrEnum):
    """What happens to a request that the recording has no answer to."""

    FAIL = "fail"
    """an error that the client understands"""
    PASSTHROUGH = "passthrough"
    """a real broker answers"""
    RECORD = "record"
    """a real broker answers, and the recording learns it"""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """`listen`: where the first broker is served; the others get the ports that follow, or with port 0 free ones.
    `broker`: where misses go. `recorded_times`: answers take as long as they did. `everything`: records that recorded
    clients produced are there from the start, not only when they are produced again."""

    capture: Path
    listen: Address = ("127.0.0.1", 0)
    on_miss: OnMiss = OnMiss.FAIL
    broker: Address | None = None
    recorded_times: bool = False
    everything: bool = False
    offer: Offer = Offer.RECORDED
