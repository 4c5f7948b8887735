"""Copies of the frames that wait for a decision: shown, edited and answered in the control server.

The relay holds the frames themselves. An edit decodes a copy, changes the named fields and keeps every other byte.
"""

from __future__ import annotations

import time
from dataclasses import asdict

from ... import decoder
from ...decoder.codec.message import Message
from ...decoder.codec.secrets import MASK, mask
from ...decoder.present import RECORD_APIS, Range, payload_ranges, present
from ...decoder.schema import facts
from ...diagnostics import contained
from ...plugins.answers.responses import error_response
from ..processes.control_messages import Failure, FrameHeld, HeldNotice, Json, Notices
from .async_channel import CommandFailed


class HeldFrameCopy:
    """A frame that waits. `frame` and `request` (of a response) include their sizes."""

    def __init__(self, notice: HeldNotice, data: bytes) -> None:
        self.notice = notice
        self.request, self.frame = data[: notice.request_size], data[notice.request_size :]
        self.until = time.monotonic() + notice.timeout

    @property
    def number(self) -> int:
        return self.notice.id

    @property
    def of_response(self) -> bool:
        return self.notice.side == "response"

    def wait_for(self, seconds: float) -> None:
        """Let it wait for so long from now on."""
        self.until = time.monotonic() + seconds

    def message(self) -> Message:
        """The frame decoded; DecodeError if it cannot be."""
        if self.of_response:
            return decoder.read_response(self.frame[4:], api_key=self.notice.api_key, api_version=self.notice.api_version)
        return decoder.read_request(self.frame[4:])

    def request_message(self) -> Message:
        """The request, decoded."""
        return decoder.decode_request((self.request or self.frame)[4:])

    def to_dict(self, values: bool, body: bool = True) -> Json:
        """For JSON. Secrets are masked; keys and values of records are left out unless `values`."""
        notice = asdict(self.notice)
        del notice["request_size"]
        out = {
            **notice,
            "api": facts.api_name(self.notice.api_key),
            "size": len(self.frame) - 4,
            "remaining": round(max(self.until - time.monotonic(), 0.0), 3),
            "undecoded": None,
        }
        if body:
            out["body"] = None
            try:
                out["body"] = present(self.message(), values, asked=self.request[4:])
            except decoder.DecodeError as error:
                out["undecoded"] = str(error)
        return out

    def covered_bytes(self, values: bool) -> Json:
        """Its bytes without the size, for JSON: secrets are masked as in recordings, and the content of records is covered
        unless `values`; `hidden`: the covered ranges."""
        direction = decoder.Direction.RESPONSE if self.of_response else decoder.Direction.REQUEST
        key, frame = self.notice.api_key, self.frame[4:]
        try:
            frame = mask(direction, key, self.notice.api_version, frame, self.request[4:])
            hidden = [] if values else self._payloads(direction)
        except Exception as error:  # bytes of others; where their secrets are is unknown, so all are covered
            contained("masking a held frame", error)
            hidden = [(4 if self.of_response else 8, len(frame))]
        covered = bytearray(frame)
        for start, end in hidden:
            covered[start:end] = MASK * (end - start)
        return {"frame": covered.hex(), "hidden": [list(each) for each in hidden]}

    def _payloads(self, direction: decoder.Direction) -> list[Range]:
        api, frame = facts.api_name(self.notice.api_key), self.frame[4:]
        try:
            message = self.message()
        except decoder.DecodeError:
            return payload_ranges(direction, api, frame, None)
        found = payload_ranges(direction, api, frame, message)
        if message.trailing and api in RECORD_APIS:
            found.append((len(frame) - len(message.trailing), len(frame)))
        return found

    def with_edits(self, edits: Json) -> bytes:
        """The frame with these fields changed; CommandFailed names one that cannot be changed."""
        try:
            return _framed(self.message().replace(edits).encode())
        except decoder.DecodeError as error:
            raise CommandFailed(Failure.INVALID, f"the frame cannot be decoded, so it cannot be edited: {error}") from None
        except (decoder.EncodeError, KeyError, IndexError, OverflowError, TypeError) as error:
            raise CommandFailed(Failure.INVALID, str(error.args[0] if error.args else error)) from None

    def error_answer(self, error: str) -> bytes:
        """A response with this error for everything in the request."""
        try:
            code = facts.error_code(error)
        except KeyError as unknown:
            raise CommandFailed(Failure.INVALID, str(unknown.args[0])) from None
        try:
            return _framed(error_response(self.request_message(), code, self.notice.correlation_id))
        except (decoder.DecodeError, decoder.EncodeError) as fault:
            raise CommandFailed(Failure.INVALID, f"this request cannot be answered here: {fault}") from None


class HeldFrameCopies:
    """The frames that wait now, by number."""

    def __init__(self) -> None:
        self._all: dict[int, HeldFrameCopy] = {}

    def notice(self, notice: Notices, data: bytes) -> None:
        """Take a notice of the relay."""
        if isinstance(notice, FrameHeld):
            self._all[notice.held.id] = HeldFrameCopy(notice.held, data)
        else:
            self._all.pop(notice.held, None)

    def drop(self, worker: int, workers: int) -> None:
        """Drop the frames of a worker (from 0) that has ended."""
        self._all = {number: frame for number, frame in self._all.items() if (number - 1) % workers != worker}

    def listed(self) -> list[HeldFrameCopy]:
        return list(self._all.values())

    def get(self, number: int) -> HeldFrameCopy:
        found = self._all.get(number)
        if found is None:
            raise CommandFailed(Failure.MISSING, f"held {number} is no longer waiting")
        return found


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame
