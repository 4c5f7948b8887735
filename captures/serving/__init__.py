"""A recording as a broker: the logic of `barnabas serve`, without sockets."""

from .asked import Ask, Later, Missed, Reply, Session
from .engine import Engine
from .offers import Offer

__all__ = ["Ask", "Engine", "Later", "Missed", "Offer", "Reply", "Session"]
