"""Connections whose client and broker use different versions (`plugins.versions.adapter`): carries out what the adapter decides.

Such a connection is followed request by request, as with rules. What its adapter wants to see is held; the rest passes.
The recording has the client's frames on the client's leg and the broker's on the broker's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....decoder import Exchange, peek_request
from ....diagnostics import contained
from ....errors import BarnabasError
from ....plugins.actions.fault_plan import FOREVER, ConnectionCut, CutPoint, FaultPlan
from ....plugins.versions.adapter import AdaptedRequest, Answer, Close, Forward, StackedAdapters, VersionAdapter
from ....plugins.versions.emulated_release import EmulatedRelease
from ...events import NotTranslated, Undecoded
from ..connections.correlation import REQUEST, Adaptation, InFlight
from ..interception.frame_editor import API_VERSIONS, HIGHEST_VERSION, KNOWN, framed
from ..interception.interest.api_version_bitmap import api_version_bitmap
from ..interception.rules import fault_executor
from .api_versions_probe import pending

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface, HalfConnectionInterface


OWN_IDS = 0x7F000000
"""Correlation ids of requests that are the proxy's own begin here; clients count from 0 or 1."""
_NOTE = "in the client's version"
_OWN = "sent by the proxy itself"


def use_adapter(connection: ConnectionInterface, adapter: VersionAdapter) -> None:
    """Give an adapter to a connection on which no request has passed, or that is followed (`Connection.inline`)."""
    if connection.adapter is adapter:
        return
    connection.adapter = adapter
    connection.free = None
    connection.inline = True


def wants(adapter: VersionAdapter | None, api_key: int, api_version: int) -> bool:
    """Whether a request with this head is for the adapter. Raw SASL tokens, which have no head, never are."""
    return (
        adapter is not None
        and api_key in KNOWN
        and 0 <= api_version <= HIGHEST_VERSION
        and adapter.wants(api_key, api_version)
    )


def refuses_unknown_versions(adapter: VersionAdapter | None) -> bool:
    """Whether the adapter refuses ApiVersions requests of versions that are not known here."""
    return isinstance(adapter.outer if isinstance(adapter, StackedAdapters) else adapter, EmulatedRelease)


def passing_requests(connection: ConnectionInterface, adapter: VersionAdapter) -> bytes:
    """The requests that pass without being held, as an `api_version_bitmap`: those that neither a rule nor the adapter wants."""
    held = connection.relay.editor.held
    if connection.free is None or connection.free[0] is not held:
        numbers = (
            key << 16 | version
            for key in KNOWN - held
            for version in range(HIGHEST_VERSION + 1)
            if not adapter.wants(key, version)
        )
        connection.free = held, api_version_bitmap(numbers)
    return connection.free[1]


def await_offers(connection: ConnectionInterface, api_key: int, then: Callable[[int], None], now: int) -> bool:
    """Whether a request of an API has to wait until it is known what the broker offers; `then` goes on with it."""
    probe = pending(connection.adapter)
    if probe is None:
        return False
    for place, own in enumerate(probe.begin(then, api_key)):
        _send_own(connection, Adaptation(probe, AdaptedRequest(*peek_request(own)), before=place), own, now)
    return True


def ended(connection: ConnectionInterface) -> None:
    """The broker has ended the connection."""
    probe = pending(connection.adapter)
    if probe is not None:
        probe.ended()
    else:
        connection.relay.version_negotiation.broker_ended(connection.broker)


def adapt_request(connection: ConnectionInterface, entry: InFlight, sent: bytes, original: bytes, answered: bool, now: int) -> bool:
    """Do with a request what the adapter decides; False if it is not for the adapter. `sent`: what the broker would get,
    `original`: what the client sent, both with sizes. `answered`: whether the client expects a response."""
    adapter = connection.adapter
    if adapter is None or not wants(adapter, entry.api_key, entry.api_version):
        return False
    try:
        step = adapter.request(sent[4:])
    except Exception as error:  # fail open: it goes on as it is
        _report(connection, entry, error)
        return False
    if isinstance(step, Forward):
        _forward(connection, adapter, entry, step, original, answered, now)
        return True
    if step.note:
        connection.note(entry.correlation, step.note, now)
    if isinstance(step, Answer):
        if entry.api_key == API_VERSIONS:
            shown = Exchange(api_key=API_VERSIONS, api_version=entry.api_version, request=sent[4:], response=step.frame)
            connection.about.learn(shown)
        if answered:
            entry.answer = framed(step.frame)
            connection.response_orderer.stand_in(entry, original, now)
        else:
            connection.publish_request(original, now)
    elif isinstance(step, Close):
        _close(connection, entry, step, original, now)
    elif step.onwards:
        connection.publish_request(original, now)
    else:
        connection.correlation.wait_for(entry)  # whatever would be answered behind it has to wait
        faults = FaultPlan("", 0, silence=FOREVER, silent=(True, False))
        fault_executor.apply_to_request(connection, faults, sent, original, now)
    return True


def _forward(
    connection: ConnectionInterface, adapter: VersionAdapter, entry: InFlight, step: Forward, original: bytes, answered: bool, now: int
) -> None:
    correlation = entry.correlation - (1 << 32) if entry.correlation >> 31 else entry.correlation
    request = AdaptedRequest(entry.api_key, entry.api_version, correlation, step.memo)
    entry.adaptation = Adaptation(adapter, request, int.from_bytes(step.frame[:4], "big"))
    for place, own in enumerate(step.before):
        _send_own(connection, Adaptation(adapter, request, before=place), own, now)
    if answered:
        connection.correlation.wait_for(entry, original)
    frame = framed(step.frame)
    if frame == original:
        connection.request.emit(frame, now)
        return
    connection.publish_request(original, now)
    connection.broker_leg(0, frame, step.note or "in the broker's version", now)
    connection.request.push(frame)


def _send_own(connection: ConnectionInterface, adaptation: Adaptation, own: bytes, now: int) -> None:
    """Send a request of the adapter's own."""
    connection.own_requests = (connection.own_requests + 1) & 0xFFFFFF
    frame = framed(own[:4] + (OWN_IDS + connection.own_requests).to_bytes(4, "big") + own[8:])
    _, key, version, correlation = REQUEST(frame)
    entry = InFlight(key, version, correlation)
    entry.adaptation = adaptation
    connection.correlation.wait_for(entry)
    connection.broker_leg(0, frame, _OWN, now)
    connection.request.push(frame)


def _close(connection: ConnectionInterface, entry: InFlight, step: Close, original: bytes, now: int) -> None:
    """An answer without bytes stands in the queue, and the end comes with its turn. Nothing more is read until then."""
    connection.request.paused = True
    connection.request.waits += 1
    entry.faults = FaultPlan("", 0, cut=ConnectionCut(CutPoint.BEFORE_RESPONSE, step.reset))
    entry.exchange = Exchange(api_key=entry.api_key, api_version=entry.api_version)
    entry.answer = b""
    connection.response_orderer.stand_in(entry, original, now)


def adapt_response(connection: ConnectionInterface, entry: InFlight, frame: bytes, now: int) -> bytes | None:
    """A broker's response (with its size) as the client gets it; None if nothing goes to the client."""
    if entry.adaptation is None:
        return frame
    adapter, request, sent, before = entry.adaptation
    if before is not None:
        connection.broker_leg(1, frame, _OWN, now)
        try:
            adapter.response_before(request, before, frame[4:])
        except Exception as error:  # an adapter may raise; nothing is lost but what it wanted to know
            _report(connection, entry, error)
        return None
    if request.api_key == API_VERSIONS:
        negotiation = connection.relay.version_negotiation
        negotiation.on_response(connection.broker, frame[4:], sent & 0xFFFF, adapter)
        adapter = negotiation.renewed(connection, adapter)
    try:
        return framed(adapter.response(request, frame[4:]))
    except Exception as error:  # fail open where that is possible
        if _same(entry, sent):
            _report(connection, entry, error)
            return frame  # fail open: it is a response at the client's version
        connection.broker_leg(1, frame, "not passed to the client", now)
        _end(connection, entry.api_key, entry.api_version, _why(error))
        return None


def note(entry: InFlight) -> str:
    """The note on a response that the adapter has changed."""
    adapter, asked, _, _ = entry.adaptation or (None, None, 0, None)
    adapter = adapter.outer if isinstance(adapter, StackedAdapters) else adapter
    if asked is not None and asked.api_key == API_VERSIONS and isinstance(adapter, EmulatedRelease):
        return adapter.profile.offer
    return _NOTE


def must_end(connection: ConnectionInterface, half: HalfConnectionInterface, entry: int | InFlight | None, why: str) -> bool:
    """Whether a frame that cannot be held must not pass either, as its receiver could not read it: then the connection
    is ended. `entry`: what a response answers, None for a request, whose head is the half's last."""
    if half.direction:
        adaptation = entry.adaptation if isinstance(entry, InFlight) else None
        if not isinstance(entry, InFlight) or adaptation is None or (_same(entry, adaptation.sent) and adaptation.before is None):
            return False
        key, version = entry.api_key, entry.api_version
    else:
        key, version = (int.from_bytes(half.last_head[at : at + 2], "big", signed=True) for at in (4, 6))
        if not wants(connection.adapter, key, version):
            return False
    _end(connection, key, version, why)
    return True


def _same(entry: InFlight, sent: int) -> bool:
    """Whether the broker has the request at the client's version."""
    return sent == entry.api_key << 16 | entry.api_version


def _end(connection: ConnectionInterface, key: int, version: int, why: str) -> None:
    connection.relay.emit(NotTranslated(connection.number, key, version, why))
    connection.close("fin")


def _report(connection: ConnectionInterface, entry: InFlight, error: Exception) -> None:
    connection.relay.emit(Undecoded(connection.number, entry.api_key, entry.api_version, _why(error)))


def _why(error: Exception) -> str:
    """What of an adapter's error is reported. An error that is no fault of the frame is counted, too."""
    if not isinstance(error, BarnabasError):
        contained("a version adapter", error, reported=True)
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name

