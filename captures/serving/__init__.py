"""A recording as a broker: the logic of `barnabas serve`, without sockets."""

from .answers import DelayedReply, LiveRequest, LiveSession, NotRecorded, Reply
from .cluster import OfferMode
from .engine import Engine, ServingSummary
from .usage import Content, UnrecordedRecord, Unused, whole_content

__all__ = [
    "Content",
    "DelayedReply",
    "Engine",
    "LiveRequest",
    "LiveSession",
    "NotRecorded",
    "OfferMode",
    "Reply",
    "ServingSummary",
    "UnrecordedRecord",
    "Unused",
    "whole_content",
]  # fmt: skip
