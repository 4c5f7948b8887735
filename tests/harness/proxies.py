"""Proxies whose processes are forks of one that has loaded everything, as in the pytest plugin: hundreds are started.

``tests/real/proxying/test_through_proxy.py`` and the tests of the command start fresh interpreters, as a user does.
"""

from __future__ import annotations

import atexit
import os
import queue
from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Any

from barnabas import proxy
from barnabas.captures import open_capture
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import Event
from barnabas.proxy.processes.fork_server import ForkServer


def _settings() -> dict[str, str]:
    """The environment variables that the product reads."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("BARNABAS_") and not name.startswith("BARNABAS_TEST_")
    }


_AT_START = _settings()


@cache
def _shared() -> ForkServer:
    server = ForkServer()
    atexit.register(server.close)
    return server


def fork_server() -> ForkServer | None:
    """The fork server of this test process; None where there is none, or where a test has set variables that it would not
    see."""
    return _shared() if ForkServer.available and _settings() == _AT_START else None


_KEPT = 30
_of_this_test: list[Proxy] = []


class _EventLog(queue.SimpleQueue):  # type: ignore[type-arg]
    """The proxy's queue of events, which also remembers the last ones for the report of a failure."""

    def __init__(self) -> None:
        self.last: deque[Event] = deque(maxlen=_KEPT)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item is not None:
            self.last.append(item)
        super().put(item, block, timeout)


class Proxy(proxy.Proxy):
    """A proxy of the product; what it reported and recorded is shown where its test fails."""

    def __init__(self, config: ProxyConfig) -> None:
        super().__init__(config, fork_server=fork_server())
        self._queue = _EventLog()
        self._stopped = False
        _of_this_test.append(self)

    def stop(self) -> None:
        super().stop()
        self._stopped = True

    def what_it_saw(self) -> str:
        """Its last events and the last exchanges of its recording."""
        lines = [f"events of the proxy in front of {self.config.upstream}:"]
        lines += [f"  {event.text}" for event in self._queue.last] or ["  none"]
        if self.config.record is not None:
            lines += [f"last exchanges in {self.config.record}:", *_last_exchanges(self.config.record)]
        return "\n".join(lines)


def _last_exchanges(recording: Any) -> Iterator[str]:
    try:
        with open_capture(recording) as capture:
            last = deque(capture.exchanges(), maxlen=_KEPT)
        for each in last:
            took = (each.response_time_ns - each.request_time_ns) / 1e6 if each.response_time_ns and each.request_time_ns else None
            yield (
                f"  connection {each.connection} #{each.correlation_id} {each.api} v{each.api_version} {each.state}"
                + (f" after {took:.1f} ms" if took is not None else "")
            )
    except Exception as error:  # the report of a failure must not hide the failure
        yield f"  cannot be read: {error!r}"


def new_test() -> None:
    """Forget the proxies of earlier tests that do not run."""
    _of_this_test[:] = [each for each in _of_this_test if each._address is not None and not each._stopped]


def what_they_saw() -> str:
    """Of every proxy that this test has made; empty if there is none."""
    return "\n".join(each.what_it_saw() for each in _of_this_test)
