"""Proxies whose processes are forks of one that has loaded everything, as in the pytest plugin: hundreds are started.

``tests/real/test_through_proxy.py`` and the tests of the command start fresh interpreters, as a user does.
"""

from __future__ import annotations

import atexit
import os
from functools import cache

from barnabas import proxy
from barnabas.proxy import ProxyConfig
from barnabas.proxy.fork_server import ForkServer


def _settings() -> dict[str, str]:
    """What the environment says to processes of the product."""
    return {name: value for name, value in os.environ.items() if name.startswith("BARNABAS_")}


_AT_START = _settings()


@cache
def _shared() -> ForkServer:
    server = ForkServer()
    atexit.register(server.close)
    return server


def fork_server() -> ForkServer | None:
    """That of this test process; None where there is none, or where a test has set what one that was loaded before would not see."""
    return _shared() if ForkServer.available and _settings() == _AT_START else None


class Proxy(proxy.Proxy):
    """A proxy of the product."""

    def __init__(self, config: ProxyConfig) -> None:
        super().__init__(config, fork_server=fork_server())
