"""A recording as a broker: the logic of `barnabas serve`, without sockets."""

from .answers import DelayedReply, LiveRequest, LiveSession, NotRecorded, Reply
from .cluster import OfferMode
from .engine import Engine
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
    "UnrecordedRecord",
    "Unused",
    "whole_content",
]  # fmt: skip
