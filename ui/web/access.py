"""Access to pages: by the token in the printed address, which is exchanged for a cookie.

Pages of other sites can send requests to loopback addresses too. They do not know the token, and besides a foreign
`Host` (DNS rebinding) and a foreign `Origin` (a websocket of another page) are refused.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from ...proxy.control.auth import AccessRefused, is_loopback

TOKEN = "token"
"""The name of the parameter in the address."""


class Access:
    """Checks requests to a server at `host`, `port`; `token`: the one in the printed address."""

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        # A browser sends cookies to all ports of a host, whoever listens there, but only for paths below the cookie's:
        # nobody else knows this one.
        self.folder = f"/{secrets.token_urlsafe(24)}/"
        self.listens_at(port)
        self.ticket = secrets.token_urlsafe(24)
        self._loopback = is_loopback(host)

    def listens_at(self, port: int) -> None:
        self.cookie = f"barnabas-{port}"

    def check(self, headers: Mapping[str, str], query: Mapping[str, str], cookies: Mapping[str, str]) -> None:
        """`AccessRefused` if the request is not to be answered."""
        host = headers.get("Host", "")
        # The port may be another: somebody may come through a tunnel.
        if self._loopback and not is_loopback(urlsplit(f"//{host}").hostname or ""):
            raise AccessRefused(403, "this host name does not belong to this server: use 127.0.0.1 or localhost")
        if TOKEN in query:
            if not _same(query[TOKEN], self.token):
                raise AccessRefused(403, "the token is wrong: open the address that barnabas printed")
        elif not _same(cookies.get(self.cookie, ""), self.ticket):
            raise AccessRefused(403, "the token is missing: open the address that barnabas printed")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """`AccessRefused` if a websocket, or what is posted, does not come from a page of this server; `check` counts besides."""
        if urlsplit(headers.get("Origin", "")).netloc != headers.get("Host"):
            raise AccessRefused(403, "this is accepted only from pages of this server")


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
