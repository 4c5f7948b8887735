"""A recording as a broker: the logic of `barnabas serve`, without sockets."""

from .answers import DelayedReply, LiveRequest, NotRecorded, Reply, Session
from .cluster import Offer
from .engine import Engine
from .usage import Content, Difference, Unused, whole_content

__all__ = [
    "Content",
    "DelayedReply",
    "Difference",
    "Engine",
    "LiveRequest",
    "NotRecorded",
    "Offer",
    "Reply",
    "Session",
    "Unused",
    "whole_content",
]  # fmt: skip
