"""A whole replay: the capture read, the target asked, one player per round, one report."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ...captures.reading.events import EventReader
from ...captures.replay.mapping import IdMapping, NameMap
from ...captures.replay.policy import Policy
from ...captures.replay.preparer import Preparer
from ...captures.replay.report import ReplayReport
from ...captures.replay.script import Script
from ...decoder import Exchange
from ...decoder.connection.events import ConnectionEvent
from ..relay.negotiation.sasl import SaslConfig
from ..relay.negotiation.security import TlsConfig
from .dialer import Address, Dialer
from .player import Player
from .resolver import TargetResolver
from .settings import Settings
from .target import TargetCluster


@dataclass(frozen=True, slots=True)
class Replay:
    """What to replay, to where and how. `rounds`: how many times in a row."""

    capture: Path
    to: Address
    names: NameMap = field(default_factory=NameMap)
    policy: Policy = field(default_factory=Policy)
    settings: Settings = field(default_factory=Settings)
    wanted: Callable[[Exchange], object] | None = None
    create_topics: bool = False
    rounds: int = 1
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None

    def script(self) -> Script:
        """The steps of the capture, from its start. Raises NotACapture, OSError."""
        events = EventReader(self.capture)
        return Script(_all_events(events), self.policy, self.wanted, self.renames)

    @property
    def renames(self) -> bool:
        """Whether any name is another one at the target."""
        return self.names != NameMap()

    def run(self, tick: Callable[[Player], None] = lambda player: None) -> ReplayReport:
        """Replay; SIGINT ends it early, with a report of what was done. Raises TargetFailed, SecurityError, NotACapture."""
        report = ReplayReport()
        dialer = Dialer(self.tls, self.sasl)
        target = TargetCluster(self.to, dialer)
        # A collection of garbage stops the loop for longer than requests may be late.
        collected = gc.isenabled()
        gc.disable()
        try:
            for _ in range(self.rounds):
                script = self.script()
                mapping = IdMapping(self.names, script.recorded)
                preparer = Preparer(mapping, target.offers)
                resolver = TargetResolver(script, target, mapping, report, self.create_topics)
                player = Player(script, preparer, target, dialer, report, self.settings, resolver)
                player.tick = lambda player=player: tick(player)  # type: ignore[misc]
                with _StoppedBySignals(player):
                    player.run()
                gc.collect()
                if report.interrupted:
                    break
        finally:
            target.close()
            if collected:
                gc.enable()
        return report


def _all_events(events: EventReader) -> Iterator[ConnectionEvent]:
    yield from events.read()
    yield from events.end()


class _StoppedBySignals:
    """Ctrl-C lets the player end by itself; a second one is an interrupt as usual."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)

        def stop(number: int, frame: FrameType | None) -> None:
            self._player.stop = True
            signal.signal(signal.SIGINT, self._before)

        try:
            signal.signal(signal.SIGINT, stop)
        except ValueError:  # not in the main thread, which alone gets Ctrl-C
            pass

    def __exit__(self, *_: object) -> None:
        try:
            signal.signal(signal.SIGINT, self._before)
        except ValueError:
            pass
