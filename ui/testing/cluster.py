"""The embedded cluster of a test session: librdkafka's mock brokers, in a process of their own."""

from __future__ import annotations

from ...errors import BarnabasError, install
from ...proxy.events import Address
from ..demo.child import ChildFailed, ChildProcess

START_SECONDS = 30.0
OWN_FINDINGS = {"malformed-api-versions-fallback": "", "surplus-bytes": "Metadata v13 response"}
"""What librdkafka's mock brokers do wrong themselves, whatever a test does: ids of findings, and words that they say."""


class ClusterFailed(BarnabasError, RuntimeError):
    """The cluster did not start; the text says why and what to do."""


class EmbeddedCluster:
    """Started when it is first asked for; ends with this process at the latest."""

    def __init__(self, brokers: int = 3) -> None:
        self._brokers = brokers
        self._child: ChildProcess | None = None
        self._addresses: list[Address] = []

    @property
    def address(self) -> Address:
        """Host and port of one of its brokers."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[Address]:
        """Host and port of each of its brokers."""
        if not self._addresses:
            self._addresses = self._start()
        return self._addresses

    def _start(self) -> list[Address]:
        self._child = child = ChildProcess("cluster", str(self._brokers))
        try:
            brokers = child.line(START_SECONDS)["brokers"]
        except ChildFailed:
            error = child.error() or "the embedded cluster did not start"
            self.stop()
            if "No module named 'confluent_kafka'" in error:
                error = f"the embedded cluster needs confluent-kafka: {install('demo')}, or give a broker"
            raise ClusterFailed(f"{error} (--barnabas-broker HOST:PORT)") from None
        parts = [address.rpartition(":") for address in brokers]
        return [(host, int(port)) for host, _, port in parts]

    def stop(self) -> None:
        """End it."""
        child, self._child = self._child, None
        self._addresses = []
        if child is not None:
            child.stop()
