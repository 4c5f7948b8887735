"""What the proxy tells of TLS and logins. No event holds a password, a key, a token, or bytes of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .events import Address, Event, show


@dataclass(frozen=True, slots=True)
class TlsFailed(Event):
    """TLS failed. `side`: "client" or "broker"; `peer`: its address."""

    warning: ClassVar[bool] = True
    connection: int
    side: str
    peer: Address
    reason: str

    @property
    def text(self) -> str:
        return f"connection {self.connection}: no TLS with {self.side} {show(self.peer)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LoggedIn(Event):
    """The proxy has logged in at a broker (told once per broker). `lifetime_ms`: the session's; 0: it has no end."""

    broker: Address
    mechanism: str
    username: str
    lifetime_ms: int

    @property
    def text(self) -> str:
        who = f" as {self.username}" if self.username else ""
        again = f", again before each {self.lifetime_ms / 1000:g} s end" if self.lifetime_ms else ""
        return f"logged in at {show(self.broker)}{who} with {self.mechanism}{again}"


@dataclass(frozen=True, slots=True)
class LoginFailed(Event):
    """A broker did not accept the proxy's login. `reason` has the broker's own words."""

    warning: ClassVar[bool] = True
    connection: int
    broker: Address
    mechanism: str
    reason: str

    @property
    def text(self) -> str:
        return f"connection {self.connection}: no login at {show(self.broker)} with {self.mechanism}: {self.reason}"


@dataclass(frozen=True, slots=True)
class NotVerified(Event):
    """Said at the start and again and again, for as long as brokers' certificates are not verified."""

    warning: ClassVar[bool] = True

    @property
    def text(self) -> str:
        return (
            "brokers' certificates are NOT verified (--broker-insecure): anybody in between can read and change the "
            "traffic; use --broker-ca instead"
        )
