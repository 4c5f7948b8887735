"""`GET /metrics` of the control API: what the meter serves, behind the token."""

from __future__ import annotations

import asyncio
from typing import Any

from .api.api import Metrics

_SECONDS = 5.0


def scraped(address: Any) -> Metrics | None:
    """Ask the meter at `address` (host, port), which answers one request and closes; None without an address."""
    if not address:
        return None
    host, port = address

    async def ask(accept: str) -> tuple[bytes, str]:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                accept = "".join(letter for letter in accept if letter.isprintable())
                writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n".encode())
                await writer.drain()
                data = await reader.read(-1)
            finally:
                writer.close()
        head, _, text = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        if first.split(" ")[1:2] != ["200"]:
            raise ValueError(first)
        fields = (line.partition(":") for line in lines)
        kinds = [value.strip() for name, _, value in fields if name.lower() == "content-type"]
        return text, kinds[0] if kinds else "text/plain"

    return ask
