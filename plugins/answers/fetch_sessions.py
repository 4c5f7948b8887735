"""Preventing fetch sessions, so that Fetch requests name all their topics while a rule or a plugin matches on topics
(KIP-227).

In a fetch session a client sends only what has changed, so most of its requests name no topic, and rules could not match
them. Instead of tracking sessions we prevent them: a request that would begin one (id 0, epoch 0) is sent as one without
a session (epoch -1, `FetchMetadata.FINAL_EPOCH`), the broker answers with session id 0, and the client sends complete
requests from then on. A request of an existing session is answered once with FETCH_SESSION_ID_NOT_FOUND, as brokers do
when they have evicted it, and the client starts over.
"""

from __future__ import annotations

import struct
from functools import cache

from ...decoder import encode_response
from ...decoder.codec.codec import header_version
from ...decoder.codec.message import Message
from ...decoder.connection.hit_notes import FOR_TOPICS
from ...decoder.filter import Filter
from ...decoder.filter.analysis import leaves
from ...decoder.filter.language.paths import Path
from ...decoder.filter.language.tree import Search
from ...decoder.schema import facts
from ...decoder.schema.plan import SIZES, plan

FETCH = facts.api_key("Fetch")
SINCE = 7
"""The version of Fetch that sessions came with."""
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
NOT_FOUND = facts.error_code("FETCH_SESSION_ID_NOT_FOUND")
NOTE = f"{FOR_TOPICS}: sent without a fetch session"
ENDED = f"{FOR_TOPICS}: the fetch session was ended"
SESSION = frozenset({"session_id", "session_epoch"})
"""The fields that identify the session of a Fetch."""
_BEGINS, _ALONE = struct.pack(">ii", 0, INITIAL_EPOCH), struct.pack(">i", FINAL_EPOCH)
_LATEST = facts.api(FETCH).versions.high or 0
_TOPICS = frozenset({"topic", "topic.id", "partition"})


def names_topics(wanted: Filter) -> bool:
    """Whether a filter that can be true of a Fetch asks for its topics or partitions."""
    keys = wanted.apis()
    if keys is not None and FETCH not in keys:
        return False
    for leaf in leaves(wanted.tree):
        if isinstance(leaf, Search) or leaf.field.name in _TOPICS:
            return True
        if isinstance(leaf.field, Path) and "topics" in leaf.field.steps:
            return True
    return False


def whole(request: Message) -> bool:
    """Whether a Fetch has no session and names all its topics, so that `replacement` changes nothing."""
    if request.api_version < SINCE:
        return True
    session, epoch = request["session_id"], request["session_epoch"]
    return bool(epoch != INITIAL_EPOCH and not (session and epoch > INITIAL_EPOCH))


@cache
def _before_session_id(version: int) -> tuple[int, bool]:
    """(bytes of a Fetch request's body before its session id, whether its header has tagged fields)."""
    count = 0
    for field in plan("request", FETCH, version).root.fields:
        if field.name == "session_id":
            break
        count += SIZES[field.type]  # numbers all of them
    return count, header_version("request", FETCH, version) > 1


def epoch_offset(data: bytes, at: int = 0) -> int | None:
    """The offset of the epoch of a Fetch request (with its size, at `at`) that begins a session; None if it begins none,
    or if its first bytes do not show it."""
    version = int.from_bytes(data[at + 6 : at + 8], "big")
    if not SINCE <= version <= _LATEST:
        return None
    count, tagged = _before_session_id(version)
    place = at + 14 + max(int.from_bytes(data[at + 12 : at + 14], "big", signed=True), 0)
    if tagged:
        if data[place : place + 1] != b"\0":
            return None
        place += 1
    place += count
    return place + 4 if data[place : place + 8] == _BEGINS else None


def without_session(frame: bytes) -> bytes | None:
    """A request (with its size) that begins a session as one without; None if it begins none."""
    place = epoch_offset(frame)
    return None if place is None else frame[:place] + _ALONE + frame[place + 4 :]


def replacement(request: Message, correlation_id: int) -> tuple[bytes | None, bytes | None]:
    """(the request to send instead, the response that ends its session), without sizes; None where not needed."""
    if request.api_key != FETCH or whole(request):
        return None, None
    if request["session_epoch"] == INITIAL_EPOCH:
        return request.replace({"session_epoch": FINAL_EPOCH}).encode(), None
    fields = {"error_code": NOT_FOUND, "session_id": 0, "responses": []}
    return None, encode_response(FETCH, request.api_version, fields, correlation_id=correlation_id)
