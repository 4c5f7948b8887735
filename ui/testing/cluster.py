"""The embedded cluster of a test session: librdkafka's mock brokers, in a process of their own."""

from __future__ import annotations

import json
import select
import subprocess

from ...errors import BarnabasError
from ...proxy.supervisor.interpreter import python

START_SECONDS = 30.0
OWN_FINDINGS = {"malformed-api-versions-fallback": "", "surplus-bytes": "Metadata v13 response"}
"""What librdkafka's mock brokers do wrong themselves, whatever a test does: ids of findings, and words that they say."""


class ClusterFailed(BarnabasError, RuntimeError):
    """The cluster did not start; the text says why and what to do."""


class EmbeddedCluster:
    """Started when it is first asked for; ends with this process at the latest."""

    def __init__(self, brokers: int = 3) -> None:
        self._brokers = brokers
        self._child: subprocess.Popen[str] | None = None
        self._addresses: list[tuple[str, int]] = []

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of one of its brokers."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each of its brokers."""
        if not self._addresses:
            self._addresses = self._start()
        return self._addresses

    def _start(self) -> list[tuple[str, int]]:
        self._child = child = subprocess.Popen(
            python("ui.demo.cluster", str(self._brokers)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C reaches pytest, which ends it in its own time
        )
        assert child.stdout is not None
        ready = select.select([child.stdout], [], [], START_SECONDS)[0]
        line = child.stdout.readline() if ready else ""
        if not line:
            errors = self.stop()
            if "No module named 'confluent_kafka'" in errors:
                errors = (
                    "the embedded cluster comes out of confluent-kafka: pip install 'barnabas[demo]', or name a broker"
                )
            raise ClusterFailed(f"{errors or 'the embedded cluster did not start'} (--barnabas-broker HOST:PORT)")
        parts = [address.rpartition(":") for address in json.loads(line)["brokers"]]
        return [(host, int(port)) for host, _, port in parts]

    def stop(self) -> str:
        """End it. What it errors on stderr, the last line."""
        child, self._child = self._child, None
        self._addresses = []
        if child is None:
            return ""
        try:
            _, errors = child.communicate(timeout=10)  # its standard input ends, and so does it
        except subprocess.TimeoutExpired:
            child.kill()
            _, errors = child.communicate()
        return errors.strip().rpartition("\n")[2]
