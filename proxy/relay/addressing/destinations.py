"""Where the proxy connects to on behalf of clients, and where never: itself, and what `--upstream-allow` leaves out.

Broker addresses come from responses, so they are chosen by whatever answers as a broker, in any spelling (`0.0.0.0`, `127.1`,
`::ffff:127.0.0.1`, names). So the resolved address decides, right before each connect.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
ITSELF = "the proxy itself"


@dataclass(frozen=True, slots=True)
class Allowed:
    """A network with its ports."""

    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    low: int = 1
    high: int = 65535

    @classmethod
    def parse(cls, text: str) -> Allowed:
        """NETWORK[:PORT[-PORT]], an IPv6 network with ports in brackets. ValueError names what is wrong."""
        network, ports = text.strip(), ""
        if network.startswith("["):
            network, closed, rest = network[1:].partition("]")
            if not closed or (rest and not rest.startswith(":")):
                raise ValueError(f"{text!r} is not a network: write [NETWORK]:PORT for IPv6")
            ports = rest[1:]
        elif network.count(":") == 1:
            network, _, ports = network.partition(":")
        try:
            found = ipaddress.ip_network(network, strict=False)
        except ValueError:
            raise ValueError(f"{network!r} is not a network: write 10.0.0.0/8, 10.0.0.7 or [fd00::/8], with :PORT or :PORT-PORT") from None
        low, dash, high = ports.partition("-")
        try:
            first = int(low) if ports else 1
            last = (int(high) if dash else first) if ports else 65535
        except ValueError:
            raise ValueError(f"{ports!r} are not ports: write PORT or PORT-PORT") from None
        if not 1 <= first <= last <= 65535:
            raise ValueError(f"ports must be 1 to 65535, the lower one first, not {ports!r}")
        return cls(found, first, last)

    def has(self, address: IpAddress, port: int) -> bool:
        return self.low <= port <= self.high and address in self.network  # of the other family: False


class Destinations:
    """`reserved`: addresses that the proxy itself listens at for something else -> for what. `allowed`: none, for everywhere."""

    def __init__(self, reserved: Iterable[tuple[str, int, str]] = (), allowed: Sequence[str] = ()) -> None:
        self._own: dict[int, list[tuple[str, str]]] = {}
        """Port -> (the address it is bound to, what is there)."""
        for host, port, what in reserved:
            self._own.setdefault(port, []).append((host, what))
        self._allowed = [Allowed.parse(text) for text in allowed]

    def listens(self, host: str, port: int) -> None:
        """The proxy has a listener for clients there."""
        self._own.setdefault(port, []).append((host, ITSELF))

    def listens_no_more(self, host: str, port: int) -> None:
        found = self._own.get(port, [])
        if (host, ITSELF) in found:
            found.remove((host, ITSELF))

    def is_own_port(self, port: int) -> bool:
        """Whether anything of the proxy listens at this port, on whichever address."""
        return bool(self._own.get(port))

    def own(self, host: str, port: int) -> str:
        """What of the proxy a connect to an address (no name) would reach; empty if nothing."""
        there = self._own.get(port)
        if not there:
            return ""
        address = reached(host)
        for bound, what in there:
            at = ipaddress.ip_address(bound.partition("%")[0])
            at = mapped(at)
            if is_local(str(address)) if at.is_unspecified else at == address:
                return what
        return ""

    def refusal(self, host: str, port: int) -> str:
        """Why the proxy does not connect to an address (no name); empty if it does."""
        what = self.own(host, port)
        if what:
            return f"this is the address of {what}"
        address = reached(host)
        if self._allowed and not any(allowed.has(address, port) for allowed in self._allowed):
            return "--upstream-allow does not allow this address"
        return ""


def mapped(address: IpAddress) -> IpAddress:
    """An IPv4 address as such, also where it is written as an IPv6 one."""
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return inner or address


def reached(host: str) -> IpAddress:
    """The address that a connect to this one reaches: that of no host in particular leads to this machine."""
    address = mapped(ipaddress.ip_address(host.partition("%")[0]))
    if address.is_unspecified:
        return ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return address


def is_local(host: str) -> bool:
    """Whether an address is one of this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        try:
            sock.bind((host, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True
