"""Secrets in messages: where they are, and how they are masked.

Masked bytes decode like the original: a field keeps its size, and its content becomes ``*``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from itertools import chain, repeat
from typing import NamedTuple

from ..errors import DecodeError, UnknownVersion
from ..schema import facts, meaning
from ..schema.meaning import Meaning
from ..schema.plan import Fields, Plan, field_paths
from ..schema.settings import holds_credentials, holds_no_credentials, may_be_credentials
from ..wire.frame import Direction
from . import metadata_log
from .codec import decode_request, decode_response, guess_request, peek_request, read_request
from .decode import decoder
from .message import Message
from .project import Place, places

MASK = b"*"

FETCHES = facts.api_key_set("Fetch", "FetchSnapshot")
"""The APIs whose responses may hold KRaft's metadata log (see `metadata_log`)."""
_FETCH = facts.api_key("Fetch")
# The response in an Envelope depends on a request that is not known here; it may have a new token's HMAC.
_SECRETS = Meaning.SECRET, Meaning.SETTING, Meaning.ENCLOSED_REQUEST, Meaning.ENCLOSED_RESPONSE
_CONFIG_APIS = {
    "AlterConfigs", "IncrementalAlterConfigs", "CreateTopics", "DescribeConfigs", "StreamsGroupHeartbeat",
    "StreamsGroupDescribe",
}  # fmt: skip
_LOGINS = {"SaslAuthenticate", "AlterUserScramCredentials"}
_QUOTING = facts.api_key_set(
    "DescribeUserScramCredentials", "CreatePartitions", "DeleteTopics", "CreateAcls", "AlterClientQuotas"
)
"""Besides the APIs that carry secrets or settings: policies and authorizers write their error messages."""
_REFUSED, _OF_SETTING = b"Invalid value ", b" for configuration "
"""How brokers quote what they refuse (org.apache.kafka.common.config.ConfigException)."""
_NAMED = re.compile(
    rb"(?i)\b(?:password|passwd|secret|token|assertion|signature|credentials?|hmac|nonce)\b[\"']?\s*[=:]\s*(\S+)"
)
_CALLED = re.compile(
    rb"(?i)\b(?:password|passphrase|secret|token|credentials?|(?:api|access) key)\s+(?P<quote>[\"']?)"
    rb"(?P<secret>[^\s\"'()]+)"
    rb"|\b(?:basic|bearer)\s+(?P<sent>[\w+/=.~-]+)"
)
"""What follows a word for a secret: it is one in quotes, or if it is no plain word."""
_USER_INFO = re.compile(rb"://[^\s/@:]{0,128}:([^\s/@]{1,256})@")
_LONG = re.compile(rb"[A-Za-z0-9+/_=.-]{24,}")
_PLAIN_WORD = re.compile(rb"[A-Za-z]{1,32}([.-][A-Za-z]{1,32})*\.?")


@cache
def secret_paths(direction: Direction, api_key: int) -> tuple[re.Pattern[str], ...]:
    """Patterns of the paths of `Message.map` that are secrets, or may be or quote some; empty for nearly all APIs."""
    paths = _value_paths(direction, api_key) + (_message_paths(api_key) if direction is Direction.RESPONSE else ())
    return tuple(re.compile(re.escape(p).replace(r"\[\*\]", r"\[\d+\]")) for p in paths)


@cache
def _value_paths(direction: Direction, api_key: int) -> tuple[str, ...]:
    """Where the whole value is the secret, or may be: all of `secret_paths` but error messages."""
    try:
        api = facts.api(api_key)
    except KeyError:
        return ()
    return meaning.paths(api.response if direction else api.request, *_SECRETS)


@cache
def _message_paths(api_key: int) -> tuple[str, ...]:
    """Error messages of brokers that may quote values of settings, or a login."""
    if api_key not in _QUOTING and not any(_value_paths(direction, api_key) for direction in Direction):
        return ()
    return meaning.paths(facts.api(api_key).response, Meaning.MESSAGE)


@cache
def decodable(direction: Direction, api_key: int, api_version: int) -> bool:
    """Whether the schema has this API and version."""
    try:
        return api_version in facts.api(api_key).versions
    except KeyError:
        return False


def concerns(direction: Direction, api_key: int, api_version: int) -> bool:
    """Whether `mask` may change such a frame; false for nearly all. Responses of `FETCHES` are not included: for those with
    KRaft's metadata log `metadata_log.may_be_in` is true."""
    return bool(secret_paths(direction, api_key)) or not decodable(direction, api_key, api_version)


def mask(direction: Direction, api_key: int, api_version: int, frame: bytes, asked: bytes = b"") -> bytes:
    """The frame with every secret overwritten. Its length does not change.

    A frame that cannot be decoded (an unknown API or version, or damage in a message with secrets) is masked after its
    header, as its secrets may be anywhere; a request of an unknown version is masked as the nearest known one if that
    fits. `asked`: the request of a response, as much of it as is there: its secrets are masked in the response too, because
    brokers quote what they refuse.
    """
    fetched = direction is Direction.RESPONSE and _may_be_metadata_log(api_key, api_version, frame)
    if not fetched and not concerns(direction, api_key, api_version):
        return frame
    message: Message | None
    try:
        if direction is Direction.REQUEST:
            message = decode_request(frame) if decodable(direction, api_key, api_version) else guess_request(frame)
        else:  # also of an unknown version: ApiVersions is refused in version 0 (KIP-511)
            message = decode_response(frame, api_key=api_key, api_version=api_version)
    except DecodeError as fault:
        if fetched and fault.message is None:
            return mask_undecoded(frame, fault.offset) if _names_metadata_log(api_key, api_version, fault.partial) else frame
        message = fault.message
    if message is None or (secret_paths(direction, api_key) and not decodable(direction, api_key, api_version)):
        return mask_behind_header(direction, frame)
    masked = _masked(message, asked)
    return frame if masked == frame else masked


def mask_behind_header(direction: Direction, frame: bytes) -> bytes:
    """The frame with everything masked except API key, version, correlation id and client id."""
    head = 4
    if direction is Direction.REQUEST:
        length = int.from_bytes(frame[8:10], "big", signed=True)
        try:
            frame[10 : 10 + length].decode()
        except UnicodeDecodeError:
            length = 0
        head = 10 + length if 0 < length <= len(frame) - 10 else 8
    return frame[:head] + MASK * (len(frame) - head)


KEPT = 8
"""Bytes that are kept of what cannot be decoded: enough to see what it is, and all that a decoder reads before it gives up."""


def mask_undecoded(frame: bytes, at: int, text: bool = False) -> bytes:
    """The frame with all but `KEPT` bytes masked from `at` on, where decoding ended. `text`: it ended at a string that is not
    UTF-8; only ASCII is masked then, so that it still is not."""
    rest = frame[at + KEPT :]
    return frame[: at + KEPT] + (rest.translate(_ASCII_MASKED) if text else MASK * len(rest))


_ASCII_MASKED = bytes(MASK[0] if code < 0x80 else code for code in range(256))


LEAST_QUOTED = 4
"""Bytes of a secret that is searched for in a response: shorter ones are everywhere by chance."""
_LEAST_BEGUN = 8
"""Bytes of a word of a response that is masked because a secret's word begins with it: brokers shorten what they quote."""
_MOST_SEARCHED = 64
"""Secrets of a request that are searched for one by one: each takes a pass over the response. If there are more, its error messages
are masked completely."""
_WORDS = re.compile(rb"[^\s,;:=\"'`()\[\]{}<>@/\0\x01]+")
_ENDS = b".!?"


class _Sent(NamedTuple):
    """The secrets of a request, the longest first, and their words, in lower case and sorted. `unknown`: there may be others."""

    whole: list[bytes]
    words: list[bytes]
    unknown: bool = False

    def quoted(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where a text has words of the secrets, or the beginning of one."""
        for match in _WORDS.finditer(text) if self.words else ():
            word = match[0].rstrip(_ENDS).lower()
            at = bisect_left(self.words, word)
            if word and at < len(self.words) and (
                self.words[at] == word or (len(word) >= _LEAST_BEGUN and self.words[at].startswith(word))
            ):  # fmt: skip
                yield match.start(), match.start() + len(word)


def _sent(request: bytes) -> _Sent:
    if not request:
        return _Sent([], [])
    message: Message | None
    try:
        message = read_request(request)
    except DecodeError as fault:
        message = fault.message
        if isinstance(fault, UnknownVersion):
            message = guess_request(request)
    if message is None:
        return _Sent([], [], unknown=True)
    # The login of PLAIN is ``authorization id, NUL, user, NUL, password``.
    login = message.api == "SaslAuthenticate"
    every = {content.rpartition(b"\0")[2] if login else content for _, content in _secrets(message)}
    whole = sorted((s for s in every if len(s) >= LEAST_QUOTED and set(s) != set(MASK)), key=len, reverse=True)
    if len(whole) > _MOST_SEARCHED:
        return _Sent([], [], unknown=True)
    words = {word for secret in whole for found in _WORDS.findall(secret) if len(word := found.rstrip(_ENDS)) >= LEAST_QUOTED}
    return _Sent(whole, sorted(word.lower() for word in words))


def without_quotes(api: str, text: str, asked: bytes = b"") -> str:
    """A broker's error message with what may be a secret in it masked. `asked`: the request, whose secrets it may
    quote. `api`: "" where the text is not a broker's: then only those are masked."""
    return _text_masked(api, text.encode("utf-8", "surrogatepass"), _sent(asked)).decode("utf-8", "replace")


def _text_masked(api: str, text: bytes, sent: _Sent) -> bytes:
    if sent.unknown:
        return MASK * len(text)
    out = text
    for secret in sent.whole:
        out = out.replace(secret, MASK * len(secret))
    found = bytearray(out)
    for start, end in (*(_quoted(api, text) if api else ()), *sent.quoted(text)):
        found[start:end] = MASK * (end - start)
    return bytes(found)


def _masked(message: Message, asked: bytes = b"") -> bytes:
    out = bytearray(message.frame)
    for end, content in _secrets(message):
        out[end - len(content) : end] = _hidden(message, content)
    for end, area in _metadata_areas(message):
        out[end - len(area) : end] = metadata_log.masked(area)
    if message.plan.kind == "response" and _message_paths(message.api_key):
        _mask_quotes(message, out, _sent(asked))
    if message.trailing:  # unknown bytes of a message with secrets
        out[-len(message.trailing) :] = MASK * len(message.trailing)
    return bytes(out)


def _mask_quotes(response: Message, out: bytearray, sent: _Sent) -> None:
    """Mask what a response quotes: in its error messages, and whole secrets in any text."""
    anywhere = [secret for secret in sent.whole if secret in out]
    paths = _text_paths(response.plan) if anywhere else _message_paths(response.api_key)
    for path, found in zip(paths, places(response, paths), strict=True):
        for text, end in found:
            at = end - len(raw := text.encode() if text else b"")
            if path.endswith("error_message"):
                out[at:end] = _text_masked(response.api, raw, sent)
                continue
            for secret in anywhere:
                out[at:end] = out[at:end].replace(secret, MASK * len(secret))


@cache
def _text_paths(of: Plan) -> tuple[str, ...]:
    return tuple(each.path for each in field_paths(of.root) if each.field.type == "string" and not each.field.array)


def _topic_field(api_key: int, api_version: int) -> str:
    """The field that identifies topics in the response of a fetch."""
    if api_key != _FETCH:
        return "name"
    return "topic_id" if api_version >= 13 else "topic"


def _may_be_metadata_log(api_key: int, api_version: int, frame: bytes) -> bool:
    return api_key in FETCHES and metadata_log.may_be_in(frame, _topic_field(api_key, api_version) == "topic_id")


def _names_metadata_log(api_key: int, api_version: int, tree: Fields) -> bool:
    """Whether the decoded part of a fetch response names the metadata log."""
    field = _topic_field(api_key, api_version)
    topics = tree.get("responses" if api_key == _FETCH else "topics") or ()
    return any(topic.get(field) in (metadata_log.TOPIC, metadata_log.TOPIC_ID) for topic in topics)


def _metadata_areas(message: Message) -> Iterator[tuple[int, bytes]]:
    """The record areas of KRaft's metadata log in a response: end and bytes of each."""
    key, version = message.api_key, message.api_version
    if message.plan.kind != "response" or not _may_be_metadata_log(key, version, message.frame):
        return
    (path,) = meaning.paths(facts.api(key).response, Meaning.RECORDS)
    topics, areas = places(message, (f"{path.partition('.')[0]}.{_topic_field(key, version)}", path))
    starts = [end for _, end in topics]
    for area, end in areas:
        if area and topics[bisect_left(starts, end) - 1][0] in (metadata_log.TOPIC, metadata_log.TOPIC_ID.bytes):
            yield end, area


def _hidden(message: Message, content: bytes) -> bytes:
    """What replaces a secret. A request inside an Envelope is kept except for its own secrets.

    Brokers forward no Envelope, so one inside another is no request: it is hidden completely, however deep it goes.
    """
    if message.api == "Envelope" and message.plan.kind == "request" and len(content) >= 8:
        key, version, _ = peek_request(content)
        if key != message.api_key:
            return mask(Direction.REQUEST, key, version, content)
    return MASK * len(content)


def _secrets(message: Message) -> Iterator[tuple[int, bytes]]:
    """Every secret of a message: its end and its bytes."""
    direction = Direction.REQUEST if message.plan.kind == "request" else Direction.RESPONSE
    paths = _value_paths(direction, message.api_key)
    settings = message.api in _CONFIG_APIS
    found = _secret_settings(message, paths) if settings else chain.from_iterable(places(message, paths) if paths else ())
    for value, end in found:
        if value:
            yield end, value if isinstance(value, bytes) else value.encode()


def _secret_settings(message: Message, paths: tuple[str, ...]) -> Iterator[Place]:
    """The values of settings that are secrets, and of those they are synonyms of."""
    asks = message.plan.kind == "request"
    outer: tuple[list[int], list[bool]] = [], []
    for path in paths:
        if "synonyms" not in path:
            outer = [], []  # nothing that it is a synonym of
        settings = path.removesuffix("value")
        name = settings + ("key" if settings.endswith("topic_configs[*].") else "name")
        names, values, marks = places(message, (name, path, settings + "is_sensitive"))
        its: tuple[list[int], list[bool]] = [], []
        for (name, at), value, (mark, _) in zip(names, values, marks or repeat((False, 0)), strict=False):
            secret = _setting_is_secret(name, value[0], asks, mark)
            its[0].append(at)
            its[1].append(secret)
            if secret or (outer[0] and outer[1][bisect_left(outer[0], at) - 1]):
                yield value
        outer = its


def _quoted(api: str, text: bytes) -> Iterator[tuple[int, int]]:
    """Where an error message has a secret, as far as the message alone tells: the value of a setting that it quotes;
    what it names as a secret; of a login what looks like a token, of others all if it holds credentials otherwise."""
    start, stop = text.find(_REFUSED), text.rfind(_OF_SETTING)
    if start < 0 or stop < start + len(_REFUSED):
        yield from (match.span(1) for pattern in (_NAMED, _USER_INFO) for match in pattern.finditer(text))
        for match in _CALLED.finditer(text):
            group = "secret" if match["secret"] else "sent"
            if match["quote"] or not _PLAIN_WORD.fullmatch(match[group].rstrip(b".,;:!?)")):
                yield match.span(group)
        if api in _LOGINS:
            yield from (match.span() for match in _LONG.finditer(text) if not _PLAIN_WORD.fullmatch(match[0]))
        elif holds_credentials(text.decode("utf-8", "replace")):
            yield 0, len(text)
        return
    value = text[start + len(_REFUSED) : stop].decode("utf-8", "replace")
    name = re.split(r"[^\w.-]", text[stop + len(_OF_SETTING) :].decode("utf-8", "replace"), maxsplit=1)[0]
    if not holds_no_credentials(name) or holds_credentials(value):
        yield start + len(_REFUSED), stop


def _setting_is_secret(name: str | None, value: str | None, asks: bool, marked: bool) -> bool:
    """Whether a setting is a secret, or may be one. In requests it is one unless its name is known to be harmless; in
    responses `is_sensitive` (`marked`), its name, and a value that looks like one decide. A value that holds
    credentials is one in any case."""
    if name is None or marked:  # a setting without its name may be anything
        return True
    if not holds_no_credentials(name) and (asks or may_be_credentials(name, value)):
        return True
    return value is not None and holds_credentials(value)


def shown(message: Message, asked: bytes = b"") -> Fields:
    """`Message.to_dict` with secrets masked. `asked`: see `mask`."""
    return masked_message(message, asked).to_dict()


def masked_message(message: Message, asked: bytes = b"") -> Message:
    """The message with secrets masked; the same one if it has none. `asked`: see `mask`."""
    direction = Direction.REQUEST if message.plan.kind == "request" else Direction.RESPONSE
    key, version = message.api_key, message.api_version
    if not secret_paths(direction, key) and not (direction and _may_be_metadata_log(key, version, message.frame)):
        return message
    masked = _masked(message, asked)
    if masked == message.frame:
        return message
    values, _ = decoder(message.plan)(masked, message.body_start)
    return Message(message.plan, values, masked, message.body_start, message.header)


def mask_token(frame: bytes) -> bytes:
    """A raw SASL token, masked."""
    return MASK * len(frame)
