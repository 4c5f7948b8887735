"""Other proxies in front of one broker: each a function (its port, scratch folder, own port or 0) -> context manager.

Byte proxies pass what they get; Kroxylicious decodes Kafka's frames and gives clients its own addresses, for which it
takes the ports behind its own, one for each node id. See bench/peers/run.py for how those are installed that no package has.
"""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from load import Started, free_port, process, wait_for


def haproxy(upstream: int, folder: Path, port: int = 0) -> Any:
    port = port or free_port()
    config = folder / f"haproxy-{port}.cfg"
    config.write_text(
        "global\n nbthread 1\n maxconn 4000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1m\n"
        f" timeout server 1m\nlisten kafka\n bind 127.0.0.1:{port}\n server sink 127.0.0.1:{upstream}\n"
    )
    return process(["haproxy", "-db", "-f", str(config)], port)


def socat(upstream: int, folder: Path, port: int = 0) -> Any:
    port = port or free_port()
    listen = f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,nodelay,backlog=512"
    return process(["socat", "-b", "262144", listen, f"TCP:127.0.0.1:{upstream},nodelay"], port)


def mitmproxy(upstream: int, folder: Path, port: int = 0) -> Any:
    port = port or free_port()
    mode = f"reverse:tcp://127.0.0.1:{upstream}@127.0.0.1:{port}"
    return process(["mitmdump", "-q", "--mode", mode, "--set", f"confdir={folder}/mitm"], port)


@contextmanager
def toxiproxy(upstream: int, folder: Path, port: int = 0) -> Started:
    control, port = free_port(), port or free_port()
    with process(["toxiproxy-server", "-port", str(control)], control) as (_, pids):
        body = {"name": "kafka", "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream}", "enabled": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{control}/proxies", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=5).close()
        wait_for(port)
        yield port, pids


NODE_IDS = range(3)
"""The nodes that Kroxylicious stands for."""


def free_row(count: int) -> int:
    """The first of as many free ports in a row."""
    for _ in range(1000):
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise RuntimeError(f"no {count} free ports in a row")


def kroxylicious(upstream: int, folder: Path, port: int = 0) -> Any:
    port = port or free_row(1 + len(NODE_IDS))
    config = folder / f"kroxylicious-{port}.yaml"
    nodes = {"name": "all", "start": NODE_IDS[0], "end": NODE_IDS[-1]}
    gateway = {"bootstrapAddress": f"127.0.0.1:{port}", "nodeIdRanges": [nodes]}
    cluster = {
        "name": "kafka",
        "targetCluster": {"bootstrapServers": f"127.0.0.1:{upstream}"},
        "gateways": [{"name": "default", "portIdentifiesNode": gateway}],
    }
    config.write_text(json.dumps({"virtualClusters": [cluster]}))  # JSON is YAML
    return process(["kroxylicious", str(config)], port)


PEERS: dict[str, tuple[str | None, Callable[..., Any]]] = {
    "haproxy": ("haproxy", haproxy),
    "socat": ("socat", socat),
    "toxiproxy": ("toxiproxy-server", toxiproxy),
    "mitmproxy": ("mitmdump", mitmproxy),
    "kroxylicious": ("kroxylicious", kroxylicious),
}
"""Name -> the command that it needs on the PATH, and how it is started."""
