"""Sockets: the relay between clients and brokers, the ring it writes to, its observers and their supervisor."""

from . import recording_events, security_events
from .supervisor import Proxy, ProxyConfig, ProxyError

__all__ = ["Proxy", "ProxyConfig", "ProxyError", "recording_events", "security_events"]
