"""A recording served as a broker: `Served` is `barnabas serve` for programs.

with Served("recording/") as served:
    producer = Producer({"bootstrap.servers": served.bootstrap})
"""

from .config import Contents, OnMiss, ServeConfig
from .served import Served, ServeError

__all__ = ["Contents", "OnMiss", "ServeConfig", "ServeError", "Served"]
