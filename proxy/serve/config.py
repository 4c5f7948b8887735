"""What a recording is served with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ...captures.serving import Content, OfferMode, whole_content
from ..events import Address


class OnMiss(StrEnum):
    """What to do with a request that the recording cannot answer."""

    FAIL = "fail"
    """answer with an error"""
    PASSTHROUGH = "passthrough"
    """forward it to a real broker"""
    RECORD = "record"
    """forward it to a real broker, and add the exchange to the recording"""


class Contents(StrEnum):
    """Whether what clients produce is compared with what was recorded."""

    IGNORE = "ignore"
    CHECK = "check"
    """every record's key, value and headers; a record that was not recorded is reported, and accepted"""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """`listen`: where the first broker is served; the others get the ports that follow, or with port 0 free ones.
    `broker`: where misses go. `recorded_times`: answers take as long as they did. `everything`: records that recorded
    clients produced are there from the start, not only when they are produced again. `contents` may also be a function of a
    record: what it returns is compared."""

    capture: Path
    listen: Address = ("127.0.0.1", 0)
    on_miss: OnMiss = OnMiss.FAIL
    broker: Address | None = None
    recorded_times: bool = False
    everything: bool = False
    offer: OfferMode = OfferMode.RECORDED
    contents: Contents | Content = Contents.IGNORE

    @property
    def content(self) -> Content | None:
        """What is compared of each record; None for nothing."""
        if isinstance(self.contents, Contents):
            return whole_content if self.contents is Contents.CHECK else None
        return self.contents
