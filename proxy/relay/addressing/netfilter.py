"""The nftables rules of transparent mode (`transparent`): as text, set, and removed. Linux, root.

Everything stands in one table of our own, `barnabas_transparent`, so that removing it removes exactly what was set;
tproxy adds one routing rule and one route for packets with our mark. The order in the chains:

1. The proxy's own connections pass: by the mark it gives them, or by the user it runs as (`exclude_uids`).
2. redirect: connections to the ports get the proxy's port, coming in and made on this machine.
   tproxy: packets to the ports, and those that come back to a kept source address, are marked, and marked packets
   are delivered here, whatever their address.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....errors import BarnabasError
from .transparent import PROXY_MARK

TABLE = "inet barnabas_transparent"
ROUTE_MARK = 0x6B66
"""Firewall mark of packets that are to be delivered here (tproxy)."""
ROUTE_TABLE = 27494
"""Number of the routing table that delivers them: the mark's, in decimal."""
FAMILIES = {"inet": ("-4", "-6"), "ip": ("-4",), "ip6": ("-6",)}


class NetfilterError(BarnabasError):
    """The rules cannot be set or removed; the text is the reason. `root`: whether only root may do it."""

    def __init__(self, text: str, root: bool = False) -> None:
        super().__init__(text)
        self.root = root


@dataclass(frozen=True, slots=True)
class Interceptor:
    """What is to be brought to the proxy.

    ports: the brokers'. to: the proxy's port on this machine. mode: "redirect" or "tproxy". local: also connections
    that are made on this machine. exclude_uids: users whose connections pass. family: "inet" (both), "ip" or "ip6".
    """

    ports: tuple[int, ...]
    to: int
    mode: str = "redirect"
    local: bool = True
    exclude_uids: tuple[int, ...] = ()
    family: str = "inet"

    def rules(self) -> str:
        """For ``nft -f``."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        ports = "{ " + ", ".join(map(str, sorted(set(self.ports)))) + " }"
        own = f"meta mark {PROXY_MARK:#x} return"
        only = {"inet": "", "ip": "meta nfproto ipv4 ", "ip6": "meta nfproto ipv6 "}[self.family]
        tproxy = self.mode == "tproxy"
        mark = f"meta mark set {ROUTE_MARK:#x}"
        yield f"table {TABLE} {{"
        yield "    chain prerouting {"
        if tproxy:
            yield "        type filter hook prerouting priority -150; policy accept;"
            yield f"        {own}"
            yield f"        {only}tcp sport {ports} socket transparent 1 {mark} accept"
            yield f"        {only}tcp dport {ports} tproxy to :{self.to} {mark} accept"
        else:
            yield "        type nat hook prerouting priority -100; policy accept;"
            yield f"        {own}"
            yield f"        {only}tcp dport {ports} redirect to :{self.to}"
        yield "    }"
        if self.local:
            yield "    chain output {"
            if tproxy:
                yield "        type route hook output priority -150; policy accept;"
            else:
                yield "        type nat hook output priority -100; policy accept;"
            yield f"        {own}"
            if self.exclude_uids:
                yield "        meta skuid { " + ", ".join(map(str, sorted(set(self.exclude_uids)))) + " } return"
            yield f"        {only}tcp dport {ports} " + (mark if tproxy else f"redirect to :{self.to}")
            yield "    }"
        yield "}"

    def routes(self) -> list[list[str]]:
        """Arguments of the ``ip`` commands that deliver marked packets here (tproxy)."""
        if self.mode != "tproxy":
            return []
        return [
            command
            for family in FAMILIES[self.family]
            for command in (
                [family, "rule", "add", *_MARKED],
                [family, "route", "add", "local", "default", "dev", "lo", "table", str(ROUTE_TABLE)],
            )
        ]


_MARKED = ["fwmark", f"{ROUTE_MARK:#x}", "lookup", str(ROUTE_TABLE)]


def is_up() -> bool:
    """Whether our table stands."""
    return _try("nft", ["list", "table", *TABLE.split()]).returncode == 0


def up(interceptor: Interceptor) -> None:
    """Set everything, or nothing."""
    _run("nft", ["-f", "-"], interceptor.rules())
    try:
        for command in interceptor.routes():
            _run("ip", command)
    except NetfilterError:
        _remove()
        raise


def down() -> list[str]:
    """Remove what `up` set: the commands that did it. Nothing to remove: an empty list."""
    if not is_up():
        return _remove_routes()
    return _remove()


def _remove() -> list[str]:
    _run("nft", ["delete", "table", *TABLE.split()])
    return [f"nft delete table {TABLE}", *_remove_routes()]


def _remove_routes() -> list[str]:
    done = []
    for family in FAMILIES["inet"]:
        for command in (
            [family, "rule", "del", *_MARKED],
            [family, "route", "del", "local", "default", "dev", "lo", "table", str(ROUTE_TABLE)],
        ):
            if _try("ip", command).returncode == 0:
                done.append("ip " + " ".join(command))
    return done


def _try(program: str, arguments: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = shutil.which(program, path=path)
    if found is None:
        package = {"nft": "nftables", "ip": "iproute2"}[program]
        raise NetfilterError(f"{program} is not installed: install it (Debian: apt-get install {package})")
    done = subprocess.run([found, *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode and ("not permitted" in done.stderr or "must be root" in done.stderr):
        raise NetfilterError("only root can set nftables rules and routes", root=True)
    return done


def _run(program: str, arguments: Sequence[str], text: str = "") -> None:
    done = _try(program, arguments, text)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        first = lines[0] if lines else os.strerror(errno.EIO).lower()
        raise NetfilterError(f"{program} {' '.join(arguments)} failed: {first}")
