"""Version adapters: a connection whose client and broker use different versions. Sans-IO: frames in, steps out.

    client ─► rules, intercepts, plugins ─► VersionAdapter.request ─► broker
    client ◄─ rules, addresses ◄──────── VersionAdapter.response ◄─ broker

Everything else sees the client's versions. Frames are without their 4 size bytes, header first. An adapter belongs to one
connection and is called in the order of the frames. An exception affects that frame alone: see `VersionAdapter`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from ... import decoder


@dataclass(frozen=True, slots=True)
class Forward:
    """The request goes to the broker as `frame`; its correlation id is the client's.

    `before`: requests of the adapter's own that go in front of it, one after the other; their correlation ids are set on
    the way. `memo` comes back in `AdaptedRequest`. `note`: a line for the recording, where `frame` is not what the client
    sent.
    """

    frame: bytes
    before: tuple[bytes, ...] = ()
    memo: Any = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The broker does not get the request: the client gets `frame` after the responses to its earlier requests. A request
    without response (Produce with acks=0) gets none."""

    frame: bytes
    note: str = ""


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is closed after the responses to earlier requests. `reset`: with RST instead of FIN."""

    reset: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Silence:
    """The request is never answered, nor is any later one; the connection stays open until the client ends it.
    `onwards`: later ones are answered."""

    note: str = ""
    onwards: bool = False


Step = Forward | Answer | Close | Silence


@dataclass(frozen=True, slots=True)
class AdaptedRequest:
    """The client's request of a response, by its header, with the `memo` of the `Forward`."""

    api_key: int
    api_version: int
    correlation_id: int
    memo: Any = None


class VersionAdapter(Protocol):
    """The adapter of one connection. A frame that would have to pass it and is too large to be held (64 MiB) ends the
    connection with an event."""

    def wants(self, api_key: int, api_version: int) -> bool:
        """Whether requests of this API and version, and their responses, pass the adapter; all others pass untouched and
        fast. Called for known APIs only; the answer stays the same during a connection."""

    def request(self, frame: bytes) -> Step:
        """What to do with a client's request. If this raises, the request is sent unchanged."""

    def response(self, asked: AdaptedRequest, frame: bytes) -> bytes:
        """The response for the client. If this raises, the broker's response is passed on if the request was sent in the
        client's version; otherwise the client could not read it, and the connection ends."""

    def response_before(self, asked: AdaptedRequest, place: int, frame: bytes) -> None:
        """The response to the request `Forward.before[place]`. May raise: that is reported, and nothing else happens."""


class StackedAdapters:
    """Two adapters as one: `outer` faces the client, `inner` the broker. `outer` sends no requests of its own."""

    def __init__(self, outer: VersionAdapter, inner: VersionAdapter) -> None:
        self.outer, self.inner = outer, inner

    def wants(self, api_key: int, api_version: int) -> bool:
        return self.outer.wants(api_key, api_version) or self.inner.wants(api_key, api_version)

    def request(self, frame: bytes) -> Step:
        key, version, _ = decoder.peek_request(frame)
        first: Step = self.outer.request(frame) if self.outer.wants(key, version) else Forward(frame)
        if not isinstance(first, Forward):
            return first
        outer = AdaptedRequest(*decoder.peek_request(frame), first.memo)
        key, version, correlation = decoder.peek_request(first.frame)
        if not self.inner.wants(key, version):
            return replace(first, memo=(outer, None))
        second = self.inner.request(first.frame)
        if isinstance(second, Answer):
            return replace(second, frame=self._outwards(outer, second.frame))
        if not isinstance(second, Forward):
            return second
        inner = AdaptedRequest(key, version, correlation, second.memo)
        note = "; ".join(filter(None, (first.note, second.note)))
        return replace(second, memo=(outer, inner), note=note)

    def response(self, asked: AdaptedRequest, frame: bytes) -> bytes:
        outer, inner = asked.memo
        if inner is not None:
            frame = self.inner.response(inner, frame)
        return self._outwards(outer, frame)

    def response_before(self, asked: AdaptedRequest, place: int, frame: bytes) -> None:
        _, inner = asked.memo
        self.inner.response_before(inner, place, frame)

    def _outwards(self, asked: AdaptedRequest, frame: bytes) -> bytes:
        return self.outer.response(asked, frame) if self.outer.wants(asked.api_key, asked.api_version) else frame
