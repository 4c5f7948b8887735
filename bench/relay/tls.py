"""TLS in the relay beside HAProxy's: pairs of proxies, the first originates TLS, the second terminates it.

    python bench/relay/tls.py [the options of run.py]

The load generator speaks no TLS, so each candidate is a chain: plain ─► first ═TLS═► second ─► sink. The chains
without TLS say what the second hop alone costs.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import load
import run
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.relay.negotiation.certificates import CA_CERTIFICATE, Authority
from barnabas.proxy.relay.negotiation.security import TlsConfig


def _authority(folder: Path) -> tuple[Path, Path]:
    """A CA's folder and a server's certificate with its key in one file."""
    ca = folder / "ca"
    server = folder / "server.pem"
    authority = Authority.in_folder(ca)
    if not server.exists():
        chain, key = authority.certify(["127.0.0.1"])
        server.write_bytes(key + chain)
    return ca, server


def barnabas(tls: bool):
    @contextmanager
    def start(upstream: int, folder: Path):
        ca, _ = _authority(folder)
        terminate = TlsConfig(ca=ca) if tls else None
        originate = TlsConfig(broker_ca=ca / CA_CERTIFICATE) if tls else None
        before = load.children()
        with (
            Proxy(ProxyConfig(upstream=("127.0.0.1", upstream), probe=False, tls=terminate)) as second,
            Proxy(ProxyConfig(upstream=second.address, probe=False, tls=originate)) as first,
        ):
            yield first.address[1], sorted(load.children() - before)

    return start


def haproxy(tls: bool):
    @contextmanager
    def start(upstream: int, folder: Path):
        ca, server = _authority(folder)
        ports = load.free_port(), load.free_port()
        bind = f" ssl crt {server}" if tls else ""
        to = f" ssl ca-file {ca / CA_CERTIFICATE} verify required" if tls else ""
        head = "global\n nbthread 1\n maxconn 4000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n"
        texts = (
            f"listen first\n bind 127.0.0.1:{ports[0]}\n server next 127.0.0.1:{ports[1]}{to}\n",
            f"listen second\n bind 127.0.0.1:{ports[1]}{bind}\n server sink 127.0.0.1:{upstream}\n",
        )
        files = [Path(tempfile.mkstemp(dir=folder, suffix=".cfg")[1]) for _ in texts]
        for file, text in zip(files, texts, strict=True):
            file.write_text(head + text)
        with (
            load.process(["haproxy", "-db", "-f", str(files[1])], ports[1]) as (_, second),
            load.process(["haproxy", "-db", "-f", str(files[0])], ports[0]) as (port, first),
        ):
            yield port, first + second

    return start


if __name__ == "__main__":
    run.CANDIDATES = {
        "direct": (None, run.direct),
        "C": (None, run.yardstick),
        "haproxy x 2": ("haproxy", haproxy(False)),
        "haproxy TLS": ("haproxy", haproxy(True)),
        "barnabas x 2": (None, barnabas(False)),
        "barnabas TLS": (None, barnabas(True)),
    }
    run.main()
