"""Who may use the control API: clients with the token, or the owner of the Unix socket; never a page in a web browser.

A page in a browser can make requests to loopback addresses. It does not know the token; besides, requests with a
foreign `Host` (DNS rebinding), an `Origin` or a `Sec-Fetch-Site` header are refused before anything is read.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping

_CREDENTIALS = struct.Struct("3i")
_NAMES = frozenset({"localhost", "localhost.localdomain"})


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's own, by its name or address alone."""
    if host in _NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AccessRefused(Exception):
    """A request that is not answered; `status`: the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class AccessGuard:
    """Checks requests. `token` "": a Unix socket, whose peers must belong to the same user. `port`: of TCP."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        self._port = port

    def check(self, headers: Mapping[str, str], sock: socket.socket | None, with_token: bool = True) -> None:
        """Raise Refused for a request that must not be answered. `with_token` False: anybody on this machine may ask."""
        host = headers.get("Host", "")
        if not self._own(host):
            raise AccessRefused(403, f"the Host header {host!r} is not valid for this API: use 127.0.0.1 or localhost")
        if "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none":
            raise AccessRefused(403, "requests from web pages are refused")
        if not self._token:
            if sock is None or _user(sock) != os.getuid():
                raise AccessRefused(403, "this socket accepts only its owner")
            return
        if not with_token:
            return
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        if not hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._token) or scheme.lower() != "bearer":
            raise AccessRefused(401, "the token is missing or wrong: send Authorization: Bearer TOKEN")

    def _own(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, ""
        if not is_loopback(name.strip("[]")):
            return False
        return not self._token or (port == str(self._port) if port else self._port == 80)


def _user(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket."""
    try:
        _, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    except OSError:
        return -1
    return int(user)
