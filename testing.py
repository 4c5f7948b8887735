"""Types of the pytest fixture `barnabas`, for annotations and fixtures of your own. See docs/testing.md."""

from .ui.testing.cassette import Cassette
from .ui.testing.fixture import Barnabas, BrokerDown, Injected

__all__ = ["Barnabas", "BrokerDown", "Cassette", "Injected"]
