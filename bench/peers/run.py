"""The relay beside proxies that others made, as far as they can be had here: one command, one run, ratios.

    python bench/peers/run.py [--rounds 5] [--seconds 0.5] [--shapes TEXT] [--install-only] [--json]

Installed once, into .cache/peers: mitmproxy by pip in an environment of its own, Toxiproxy by `go install`, Kroxylicious by
Maven. HAProxy and socat are taken from the PATH. What cannot be had is left out, and the reason is printed. The measuring is
that of bench/relay/run.py: the same frames between the same two programs, rounds interleaved. kafka-proxy is not among them:
it could not be had as a module of Go where this was written.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE.parents[1] / ".cache" / "peers"
BIN = PEERS / "bin"
MITMPROXY = "mitmproxy"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
CANDIDATES = "direct,C,haproxy,socat,toxiproxy,mitmproxy,kroxylicious,barnabas,barnabas inline,barnabas recording"
MINUTES = 10


class Missing(Exception):
    """This peer cannot be had here; the text says why."""


def step(command: list[str], **environment: str) -> None:
    """One step of an installation; Missing with its last line of output where it fails."""
    if shutil.which(command[0]) is None:
        raise Missing(f"no {command[0]} on the PATH")
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * MINUTES, env=os.environ | environment
    )
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines()
        raise Missing(f"`{' '.join(command[:3])}`: {lines[-1] if lines else done.returncode}")


def mitmproxy() -> None:
    if (BIN / "mitmdump").exists():
        return
    step([sys.executable, "-m", "venv", str(PEERS / "mitmproxy")])
    step([str(PEERS / "mitmproxy" / "bin" / "python"), "-m", "pip", "install", "-q", MITMPROXY])
    (BIN / "mitmdump").symlink_to(PEERS / "mitmproxy" / "bin" / "mitmdump")


def toxiproxy() -> None:
    if not (BIN / "toxiproxy-server").exists():
        step(["go", "install", TOXIPROXY], GOBIN=str(PEERS), GOFLAGS="-buildvcs=false")
        (PEERS / "server").rename(BIN / "toxiproxy-server")


def kroxylicious() -> None:
    if (BIN / "kroxylicious").exists():
        return
    jars = PEERS / "kroxylicious"
    pom, program = HERE / "pom.xml", HERE / "Kroxylicious.java"
    step(["mvn", "-q", "-B", "-ntp", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"])
    step(["javac", "-cp", f"{jars}/*", "-d", str(jars / "classes"), str(program)])
    words = shlex.join(["java", "-cp", f"{jars / 'classes'}:{jars}/*", "Kroxylicious"])
    (BIN / "kroxylicious").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (BIN / "kroxylicious").chmod(0o755)


def installed(tool: str) -> Callable[[], None]:
    def check() -> None:
        if shutil.which(tool) is None:
            raise Missing(f"no {tool} on the PATH")

    return check


INSTALL: dict[str, Callable[[], None]] = {
    "HAProxy": installed("haproxy"),
    "socat": installed("socat"),
    "Toxiproxy": toxiproxy,
    "mitmproxy": mitmproxy,
    "Kroxylicious": kroxylicious,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", default="5")
    parser.add_argument("--seconds", default="0.5")
    parser.add_argument("--shapes", default="", help="only shapes whose name contains this")
    parser.add_argument("--install-only", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    BIN.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin"
    for name, install in INSTALL.items():
        try:
            install()
        except (Missing, OSError, subprocess.TimeoutExpired) as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    if options.install_only:
        return
    command = [sys.executable, str(HERE.parent / "relay" / "run.py"), "--only", CANDIDATES]
    command += ["--rounds", options.rounds, "--seconds", options.seconds, "--shapes", options.shapes]
    sys.exit(subprocess.run(command + (["--json"] if options.json else [])).returncode)


if __name__ == "__main__":
    main()
