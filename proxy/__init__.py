"""Sockets: the relay between clients and brokers, the ring it writes to, its observers and their supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .supervisor.supervisor import Proxy, ProxyConfig, ProxyError

__all__ = ["Proxy", "ProxyConfig", "ProxyError"]


def __getattr__(name: str) -> Any:
    """The supervisor when it is asked for: the processes that it starts do without it, and are there sooner."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .supervisor import supervisor

    return getattr(supervisor, name)
