"""A recording as a broker: the logic of `barnabas serve`, without sockets."""

from .asked import Ask, Later, Missed, Reply, Session
from .engine import Engine
from .offers import Offer
from .produced import Content, Difference, whole_content
from .usage import Unused

__all__ = [
    "Ask", "Content", "Difference", "Engine", "Later", "Missed", "Offer", "Reply", "Session", "Unused", "whole_content",
]  # fmt: skip
