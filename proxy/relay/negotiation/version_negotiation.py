"""The version adapters of a relay's connections (`plugins.versions`), and the versions that brokers offer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....decoder import DecodeError
from ....plugins.translation.translating_adapter import TranslatingAdapter
from ....plugins.translation.version_ranges import served_by, shown
from ....plugins.versions.adapter import StackedAdapters, VersionAdapter
from ....plugins.versions.emulated_release import EmulatedRelease, offers
from ....plugins.versions.profile import Profile
from ...events import Address, NotHonoured, OffersLearned
from .api_versions_probe import CLOSES, IS_SILENT, QUESTIONS, ApiVersionsProbe, VersionsPending, offers_of, possible
from .version_adaptation import use_adapter

if TYPE_CHECKING:
    from ..addressing.resolver import SocketAddress
    from ..interfaces import ConnectionInterface, RelayInterface

Offers = Mapping[int, tuple[int, int]]
RECHECK_SECONDS = 60.0
"""Seconds after which what was assumed of a broker, or what it offered where versions are translated, is checked again."""


@dataclass(frozen=True, slots=True)
class VersionsConfig:
    """The versions that clients are offered. `profile`: other versions than the broker's. `translate`: requests of versions
    that the broker does not serve are brought into ones that it does."""

    profile: Profile | None = None
    translate: bool = False


@dataclass(slots=True)
class BrokerVersions:
    """What is known of one broker. `offers`: None: nothing; `assumed`: the release that they are assumed of, "": it has
    answered ApiVersions itself; `standing`: how many connections to it stand; `outdated`: the next connection asks
    again; `ended`: it has ended a connection since it was asked; `closed`: how often in a row it has closed the
    connection when it was asked, at most 2; `recheck_at`: when to ask again, in monotonic seconds, 0: never; `probe`:
    the one under way."""

    offers: Offers | None = None
    assumed: str = ""
    standing: int = 0
    outdated: bool = False
    ended: bool = False
    closed: int = 0
    recheck_at: float = 0.0
    probe: ApiVersionsProbe | None = None

    @property
    def answered(self) -> bool:
        """Whether the broker has said what it offers."""
        return self.offers is not None and not self.assumed


class VersionNegotiation:
    """One for all connections of a relay."""

    def __init__(self, relay: RelayInterface, config: VersionsConfig) -> None:
        self._relay = relay
        self._emulated = EmulatedRelease(config.profile, config.translate) if config.profile is not None else None
        self._translate = config.translate
        self._brokers: defaultdict[Address, BrokerVersions] = defaultdict(BrokerVersions)
        self.make: Callable[[ConnectionInterface], VersionAdapter | None] = self._make
        """The adapter of a connection that begins."""

    def begin(self, connection: ConnectionInterface) -> None:
        """A connection stands, and no byte of its client has been read."""
        known = self._brokers[connection.broker]
        if not known.standing and known.offers is not None and self._translate:  # it may have been replaced unnoticed
            if known.answered or (known.assumed == CLOSES and possible(self._relay)):
                known.outdated = True
            elif possible(self._relay):  # 0.9 would let every client that comes alone wait for 3 s
                self.probe(connection, lambda: None)
        known.standing += 1
        adapter = self.make(connection)
        if adapter is not None:
            use_adapter(connection, adapter)

    def _make(self, connection: ConnectionInterface) -> VersionAdapter | None:
        emulated = self._emulated
        if not self._translate:
            return emulated
        known = self._brokers[connection.broker]
        self._recheck(known, connection)
        if known.offers is None or known.outdated:
            return VersionsPending(self, connection)
        served = served_by(known.offers)
        if emulated is None:
            return TranslatingAdapter(served)
        release = emulated.profile.release
        return StackedAdapters(emulated, TranslatingAdapter(served, None if release is None else shown(served, release.name)))

    def renew(self, connection: ConnectionInterface, asked: bool = False) -> None:
        """It is known now what a connection's broker offers, or that it does not answer: then what was known holds.
        `asked`: on this connection."""
        self._brokers[connection.broker].outdated = False
        adapter = self.make(connection)
        connection.adapter = connection.free = None
        if adapter is not None and not isinstance(adapter, VersionsPending):
            inner = _inner(adapter)
            if isinstance(inner, TranslatingAdapter):
                inner.translator.asked = asked
            use_adapter(connection, adapter)

    def renewed(self, connection: ConnectionInterface, adapter: VersionAdapter) -> VersionAdapter:
        """The adapter of a connection whose broker has just answered ApiVersions: a new one if it offers something else than on
        the connections before, because another release has taken its place."""
        inner = _inner(adapter)
        found = self._brokers[connection.broker].offers
        if adapter is not connection.adapter or not isinstance(inner, TranslatingAdapter):
            return adapter
        if found is None or inner.translator.served == served_by(found):
            return adapter
        self.renew(connection)
        if isinstance(adapter, StackedAdapters) and isinstance(adapter.outer, EmulatedRelease):
            use_adapter(connection, self.with_profile(connection, adapter.outer))
        return connection.adapter or adapter

    def broker_ended(self, broker: Address) -> None:
        """A broker has ended a connection: another release may take its place, so the next connection asks."""
        known = self._brokers.get(broker)
        if known is not None and known.offers is not None and self._translate:
            known.outdated = known.ended = True

    def left(self, broker: Address) -> None:
        """A connection that `begin` has counted is gone."""
        self._brokers[broker].standing -= 1

    def knows(self, broker: Address) -> bool:
        """Whether it is known, or assumed, what a broker offers."""
        return self._brokers[broker].offers is not None

    def _recheck(self, known: BrokerVersions, connection: ConnectionInterface) -> None:
        if known.recheck_at and time.monotonic() > known.recheck_at:
            if possible(self._relay):  # what was assumed holds until there is an answer
                known.recheck_at = time.monotonic() + RECHECK_SECONDS
                self.probe(connection, lambda: None)
            else:
                known.recheck_at, known.outdated = 0.0, True

    def probe(self, connection: ConnectionInterface, done: Callable[[], None]) -> None:
        """Ask the broker of a connection what it offers, on another one. `done` is called when that is over."""
        broker, upstream = self._brokers[connection.broker], connection.upstream
        if broker.probe is None and upstream is not None:
            with suppress(OSError):  # it is gone already
                self._probe(connection.broker, (upstream.family, upstream.getpeername()))
        if broker.probe is not None:
            broker.probe.waiting.append(done)
        else:
            done()

    def _probe(self, broker: Address, at: SocketAddress) -> None:
        probe = self._brokers[broker].probe = ApiVersionsProbe(self._relay, broker, at)
        probe.begin()

    def answered(self, broker: Address) -> None:
        """A probe is over."""
        self._brokers[broker].probe = None

    def probe_early(self, broker: Address, at: SocketAddress) -> None:
        """A broker can be reached there: ask it, if it is of use to know what it offers before clients come."""
        wanted = self._emulated is not None or self._translate
        known = self._brokers[broker]
        if wanted and possible(self._relay) and known.offers is None and known.probe is None:
            self._probe(broker, at)

    def with_profile(self, connection: ConnectionInterface, emulated: EmulatedRelease) -> VersionAdapter:
        """A connection's adapter when a rule wants a profile for it."""
        inner = connection.adapter
        if isinstance(inner, StackedAdapters):
            if isinstance(inner.outer, EmulatedRelease) and inner.outer.profile == emulated.profile:
                return inner
            inner = inner.inner
        if inner is None or isinstance(inner, EmulatedRelease):
            return emulated
        return StackedAdapters(EmulatedRelease(emulated.profile, translated=True), inner)

    def on_response(self, broker: Address, frame: bytes, api_version: int, adapter: VersionAdapter | None = None) -> None:
        """A broker's ApiVersions response (without its size), as it came, on a connection with this adapter."""
        try:
            found = offers(frame, api_version)
        except DecodeError:
            return
        if found is not None:
            self.learned(broker, found)
            if isinstance(adapter, EmulatedRelease):
                self.compare(adapter.profile, found)

    def learned(self, broker: Address, found: Offers) -> None:
        """What a broker offers."""
        known = self._brokers[broker]
        known.assumed, known.closed, known.outdated, known.ended = "", 0, False, False
        # clients that never ask show no upgrade: the broker is asked again some time
        known.recheck_at = time.monotonic() + RECHECK_SECONDS if self._translate else 0.0
        if known.offers == found:
            return
        known.offers = found
        if self._emulated is not None and not self._translate:
            self.compare(self._emulated.profile, found)

    def assume(self, broker: Address, release: str, sure: bool = False) -> None:
        """A broker does not answer ApiVersions, like those of this release. Unless that is `sure`, what it has answered
        before holds, unless it has ended a connection since and is silent now: one that closes connections may just be
        stopping."""
        if not self._translate:
            return
        known = self._brokers[broker]
        known.recheck_at = time.monotonic() + RECHECK_SECONDS
        if sure or not known.answered or (known.ended and release == IS_SILENT):
            self._relay.emit_once(OffersLearned(broker, 0, release))
            known.offers, known.assumed = offers_of(release), release
        known.outdated = False

    def questions(self, broker: Address) -> Sequence[bytes]:
        """What to ask a broker on one connection."""
        return QUESTIONS[self._brokers[broker].closed]

    def closed_connection(self, broker: Address, control: bool | None) -> bool:
        """A broker has closed the connection when it was asked; whether there is no more to ask. `control`: whether it
        has answered the control before, None: it was not asked."""
        known = self._brokers[broker]
        known.closed = min(known.closed + 1, 2)
        if control is None and (known.answered or known.closed < 2):
            return False
        known.closed = 0
        self.assume(broker, CLOSES, bool(control))
        return True

    def compare(self, profile: Profile, found: Offers) -> None:
        """Report what of a profile a broker does not serve."""
        missing = tuple(each.text for each in profile.shortfall(found))
        if missing:
            self._relay.emit_once(NotHonoured(profile.text, missing))


def _inner(adapter: VersionAdapter) -> VersionAdapter:
    """The adapter that faces the broker."""
    return adapter.inner if isinstance(adapter, StackedAdapters) else adapter
