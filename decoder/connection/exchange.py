"""An exchange: one request and its response."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..codec import secrets
from ..codec.codec import UNSUPPORTED_VERSION, guess_request, read_request, read_response
from ..codec.message import Message
from ..codec.message_view import MessageView, view_of
from ..codec.project import first_error
from ..codec.truncated_frame import first_error_in
from ..errors import BadUtf8, DecodeError, UnknownVersion
from ..present import Presenter, payloads
from ..schema import facts
from ..schema.plan import API_VERSIONS, Fields
from ..wire.frame import Direction
from .api_versions import PeerInfo
from .plausible import Flaw, FlawKind, flaw
from .topics import Topics

if TYPE_CHECKING:
    from ..values import SchemaSource

_REFUSED = UNSUPPORTED_VERSION.to_bytes(2, "big")


class State(StrEnum):
    """The state of an exchange."""

    PENDING = "pending"
    """not answered yet, or not when the recording ended"""
    PAIRED = "paired"
    NO_RESPONSE = "no_response"
    """none is due (a Produce with acks=0), or the connection ended or went on without one"""
    ORPHAN = "orphan"
    """a response whose request was never seen"""


@dataclass(slots=True)
class BrokerLeg:
    """A message as it passed between proxy and broker, where the client's differs. `frame` lacks its last `cut` bytes."""

    frame: bytes
    cut: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Marks:
    """What is known of an exchange besides its frames, set by whoever recorded, read or inspected it.

    `segment`, `request_offset`, `response_offset`: the file it was read from and where its frames start in it, -1 for none.
    `changed`: the proxy changed it. `carried`: its request was repeated from an earlier segment. `notes`: what rules, plugins
    and people did to it; `noted`: whether there are any, where only that is known. `sizes`: of request and response, where the
    frames are not all there. `rules`: who caused it to fail, `after_rules`: somebody did something to its client before.
    """

    segment: str = ""
    request_offset: int = -1
    response_offset: int = -1
    changed: bool = False
    carried: bool = False
    noted: bool | None = None
    notes: list[str] = field(default_factory=list)
    sizes: tuple[int | None, int | None] | None = None
    broker_request: BrokerLeg | None = None
    broker_response: BrokerLeg | None = None
    rules: tuple[str, ...] = ()
    after_rules: bool = False

    @property
    def has_notes(self) -> bool:
        return bool(self.notes) if self.noted is None else self.noted

    def every_notes(self) -> list[list[str]]:
        """The notes of the exchange and of its broker legs."""
        if self.broker_request is None and self.broker_response is None:
            return [self.notes]
        return [self.notes, *(leg.notes for leg in (self.broker_request, self.broker_response) if leg is not None)]

    def leg(self, direction: int) -> BrokerLeg | None:
        return self.broker_response if direction else self.broker_request

    def set_leg(self, direction: int, leg: BrokerLeg) -> None:
        if direction:
            self.broker_response = leg
        else:
            self.broker_request = leg


_DECODED = ("_asked", "_answered", "_asked_view", "_answered_view")


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Exchange:
    """A request frame, its response frame, and their decoded content, on demand.

    Frames exclude the 4 size bytes; ``request_size``/``response_size`` are the values of those 4 bytes. Times are
    nanoseconds since the epoch. ``request_cut`` and ``response_cut``: bytes of a frame that were not kept, after those that
    were; such a frame has no message. ``about``: the peer info of the connection so far, shared by its exchanges; None if
    the connection was not followed.
    """

    connection: int = 0
    client: str = ""
    broker: str = ""
    api_key: int = -1
    api_version: int = -1
    correlation_id: int = 0
    client_id: str | None = None
    request: bytes | None = None
    request_time_ns: int | None = None
    response: bytes | None = None
    response_time_ns: int | None = None
    state: State = State.PENDING
    topics: Topics | None = None
    about: PeerInfo | None = None
    request_cut: int = 0
    response_cut: int = 0
    marks: Marks = field(default_factory=Marks)
    _asked: Message | DecodeError | None = field(default=None, init=False)
    _answered: Message | DecodeError | None = field(default=None, init=False)
    """What was decoded, or why it cannot be; None before anybody asked."""
    _asked_view: MessageView | None = field(default=None, init=False)
    _answered_view: MessageView | None = field(default=None, init=False)
    _error: int | None = field(default=None, init=False)
    _distrusted: bool = field(default=False, init=False)
    _flaws: tuple[Flaw | None, Flaw | None] | None = field(default=None, init=False)
    """Of the request and the response, once somebody asked after both were there."""

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Pickled without what was decoded, which is decoded again: the classes of values belong to no module."""
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in _DECODED}
        return None, kept | dict.fromkeys(_DECODED)

    def forget_decoded(self) -> None:
        """Free the decoded messages. They are decoded again when somebody asks for them."""
        for name in _DECODED:
            setattr(self, name, None)

    def undecoded_copy(self) -> Exchange:
        """The same exchange with nothing decoded, so that decoded messages are freed with this copy. `marks` are shared."""
        return replace(self)

    def __repr__(self) -> str:
        return f"<Exchange {self.api} v{self.api_version} #{self.correlation_id} {self.state}>"

    @property
    def api(self) -> str:
        """The API's name; empty for an orphan."""
        return facts.api_name(self.api_key) if self.api_key >= 0 or self.state is not State.ORPHAN else ""

    @property
    def request_size(self) -> int | None:
        """Size of the request frame in bytes, as given by its 4 size bytes; None if there is no request."""
        return None if self.request is None else len(self.request) + self.request_cut

    @property
    def response_size(self) -> int | None:
        """Size of the response frame in bytes, as given by its 4 size bytes; None if there is no response."""
        return None if self.response is None else len(self.response) + self.response_cut

    @property
    def latency_ns(self) -> int | None:
        """Nanoseconds from the request's first byte to the response's, measured where the bytes were captured."""
        if self.request_time_ns is None or self.response_time_ns is None:
            return None
        return self.response_time_ns - self.request_time_ns

    @property
    def request_message(self) -> Message | None:
        """The decoded request, or None if there is none or it cannot be decoded (see `undecoded` and `cut`)."""
        found = self._asked
        if found is None:
            if self.request is None or self.request_cut:
                return None
            found = self._decode(Direction.REQUEST)
        return found if isinstance(found, Message) else None

    @property
    def response_message(self) -> Message | None:
        """The decoded response, or None if there is none or it cannot be decoded (see `undecoded` and `cut`)."""
        found = self._answered
        if found is None:
            if self.response is None or self.response_cut or self.state is State.ORPHAN:
                return None  # an orphan's API is not known
            found = self._decode(Direction.RESPONSE)
        return found if isinstance(found, Message) else None

    @property
    def request_view(self) -> MessageView | None:
        """`request_message` in the form its definition promises: for conclusions, not for display (see `message_view`)."""
        if self._asked_view is None and (message := self.request_message) is not None:
            self._asked_view = view_of(message)
        return self._asked_view

    @property
    def response_view(self) -> MessageView | None:
        """`response_message` in the form its definition promises (see `message_view`); None once it is distrusted."""
        if self._answered_view is None and not self._distrusted and (message := self.response_message) is not None:
            self._answered_view = view_of(message)
        return self._answered_view

    def flaw(self, direction: Direction) -> Flaw | None:
        """What is wrong with a message that could be decoded; None for nearly all. A refusal of ApiVersions has none, as it may be in no
        version at all (see `api_versions`)."""
        return (self._flaws or self._find_flaws())[direction]

    def _find_flaws(self) -> tuple[Flaw | None, Flaw | None]:
        asked, answered = self.request_message, self.response_message
        wrong = flaw(answered) if answered is not None else None
        if wrong is not None and self.api_key == API_VERSIONS and (self.response or b"")[4:6] == _REFUSED:
            wrong = None
        # A request that the decoder found sound while it read it needs no call: so are nearly all.
        sound = asked is None or (asked.known_sound and not asked.trailing)
        found = self._flaws = None if sound or asked is None else flaw(asked), wrong
        return found

    def distrust(self) -> bool:
        """Whether a message has a flaw. From a response that has one, no conclusions are drawn from now on: it has no view and no error.
        `response_message` keeps what was read.

        A null beside an error is no reason: some brokers leave out all the rest of a response that has an error.
        """
        asked, found = self._flaws or self._find_flaws()
        if found is None:
            return asked is not None
        if found.kind is not FlawKind.NULL or not self.error or self.error not in facts.errors():
            self._distrusted, self._answered_view, self._error = True, None, 0
        return True

    def _decode(self, direction: Direction) -> Message | DecodeError:
        found: Message | DecodeError
        try:  # bytes left over are reported as surplus, not as undecoded
            if direction:
                found = read_response(self.response or b"", api_key=self.api_key, api_version=self.api_version)
            else:
                found = read_request(self.request or b"")
        except DecodeError as fault:
            found = fault
        if direction:
            self._answered = found
        else:
            self._asked = found
        return found

    @property
    def error(self) -> int:
        """The first error code of the response that is not 0, outer fields before nested ones; 0 if there is none. Of a cut
        response, only the codes that were kept count."""
        if self._error is not None:
            return self._error
        message = self.response_message
        if message is not None:
            self._error = first_error(message)
            return self._error
        if self.response_cut and self.state is not State.ORPHAN:
            self._error = first_error_in(self.response or b"", self.api_key, self.api_version, self.response_cut)
            return self._error
        return 0

    @property
    def succeeded(self) -> bool:
        """Whether it was answered without an error code, and both frames are whole and were decoded without surplus bytes, and
        the response is not distrusted."""
        if self.state is not State.PAIRED or self._distrusted:
            return False
        asked, answered = self._asked or self.request_message, self._answered or self.response_message
        if not isinstance(asked, Message) or not isinstance(answered, Message) or asked.trailing or answered.trailing:
            return False
        return not self.error

    @property
    def undecoded(self) -> str | None:
        """Why a frame of this exchange could not be decoded, or None."""
        _ = self.request_message, self.response_message
        if not isinstance(self._asked, DecodeError) and not isinstance(self._answered, DecodeError):
            return None
        reasons = [f"{d.name.lower()}: {fault}" for d in Direction if (fault := self.fault(d))]
        return "; ".join(reasons) or None

    @property
    def cut(self) -> str | None:
        """The part of this exchange's frames that was not kept, or None if both are whole."""
        frames = (("request", self.request, self.request_cut), ("response", self.response, self.response_cut))
        return "; ".join(
            f"{side}: cut at {len(frame)} of {len(frame) + missing} bytes"
            for side, frame, missing in frames
            if frame is not None and missing
        ) or None

    def _inside(self, values: bool) -> Fields:
        asked, answered = self.request_message, self.response_message
        found = {
            "request": payloads(asked, None, values) if asked else [],
            "response": payloads(answered, asked, values) if answered else [],
        }
        return {side: each for side, each in found.items() if each}

    def guess(self) -> Message | None:
        """A request of an unknown version, read as the nearest known one; None if the version is known or the bytes do not
        match. Only a guess: a newer version may have a different layout."""
        if self.request is None or self.request_cut or not isinstance(self.fault(Direction.REQUEST), UnknownVersion):
            return None
        return guess_request(self.request)

    def fault(self, direction: Direction) -> DecodeError | None:
        """Why the frame of that direction could not be decoded to its end, or None."""
        _ = self.request_message, self.response_message
        found = self._answered if direction else self._asked
        return found if isinstance(found, DecodeError) else None

    def masked(self, direction: Direction) -> bytes:
        """The frame of that direction as it may be stored: without secrets, and without parts that cannot be decoded (see
        `secrets`). Its length is the same; if nothing had to be masked, it is the frame itself."""
        answers = direction is Direction.RESPONSE
        frame, cut = (self.response, self.response_cut) if answers else (self.request, self.request_cut)
        assert frame is not None
        if answers and self.api_key < 0:
            return secrets.mask_behind_header(direction, frame)  # of an API that nobody knows here
        masked = secrets.mask(direction, self.api_key, self.api_version, frame, (self.request or b"") if answers else b"")
        if masked is not frame or cut:
            return masked
        message = self.response_message if answers else self.request_message
        if message is not None:
            return secrets.mask_undecoded(frame, len(frame) - len(message.trailing)) if message.trailing else frame
        fault = self.fault(direction)
        return secrets.mask_undecoded(frame, fault.offset, isinstance(fault, BadUtf8)) if fault else frame

    def masked_message(self, direction: Direction) -> Message | None:
        """The message of that direction with secrets masked, as it may be shown; None if it cannot be decoded."""
        message = self.response_message if direction else self.request_message
        return message and secrets.masked_message(message, (self.request or b"") if direction else b"")

    @property
    def surplus(self) -> tuple[int, int]:
        """Bytes after the end of the request and of the response: a fault of the sender."""
        asked, answered = self.request_message, self.response_message
        return len(asked.trailing) if asked else 0, len(answered.trailing) if answered else 0

    def to_dict(self, bodies: bool = True, values: bool = False, schemas: SchemaSource | None = None) -> Fields:
        """The keys of ``barnabas decode --json``; ``request`` and ``response`` are null without `bodies`.

        Secrets are masked; keys and values of records are omitted unless `values` is true; then they are decoded with
        `schemas`, where a schema is known (see `present`).
        """
        error = self.error
        out: Fields = {
            "time_ns": self.request_time_ns if self.request_time_ns is not None else self.response_time_ns,
            "connection": self.connection,
            "client": self.client,
            "broker": self.broker,
            "api": self.api,
            "api_key": self.api_key,
            "api_version": self.api_version,
            "correlation_id": self.correlation_id,
            "client_id": self.client_id,
            "request_size": self.request_size,
            "response_size": self.response_size,
            "latency_ns": self.latency_ns,
            "state": str(self.state),
            "error": facts.error_name(error) if error else None,
            "undecoded": self.undecoded,
            "request": None,
            "response": None,
        }
        cut = self.cut
        if cut is not None:
            out["cut"] = cut
        if any(self.surplus):
            out["surplus_bytes"] = {"request": self.surplus[0], "response": self.surplus[1]}
        if bodies:
            presenter = Presenter(values, self.topics.name if self.topics else None, schemas)
            for message in (self.request_message, self.response_message):
                if message:
                    out[message.plan.kind] = presenter.message(message, self.request or b"")
            inside = self._inside(values)
            if inside:
                out["embedded"] = inside
            guess = self.guess()
            if guess:
                out["guess"] = {"api_version": guess.api_version, guess.plan.kind: presenter.message(guess)}
        return out
