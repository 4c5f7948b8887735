"""The table `throttles`: responses by which a broker tells a client that it is over its quota."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ...decoder import Exchange
from ...decoder.plan import plan
from .arrow import numpy
from .columns import KEY, Column, Table

TABLE = Table(
    "throttles",
    "response with a throttle time above 0",
    (
        *KEY,
        Column(
            "throttle_ms", "int32", "how long the client is to wait, milliseconds; brokers hold it back for as long"
        ),
        Column("request_size", "int32", "value of the 4 size bytes; null without a request", null=True),
        Column("response_size", "int32", "value of the 4 size bytes"),
    ),
)
FIELD = "throttle_time_ms"


def rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The columns behind those of `KEY`."""
    message = exchange.response_message
    if message is not None and has_one(exchange.api_key, exchange.api_version) and message[FIELD] > 0:
        sizes = {"request_size": exchange.request_size, "response_size": exchange.response_size}
        yield {"throttle_ms": message[FIELD], **sizes}


def unlikely(segment: Any, records: Any) -> Any:
    """A NumPy mask of index records of an own segment, whose bytes are `segment`, whose responses say, by the bytes where the throttle time stands, that
    it is 0: those need not be read. Only where it is the first field, and the packets are as our segments have them."""
    np = numpy()
    zero = np.zeros(len(records), dtype=bool)
    place = _places(records["api_key"], records["api_version"])
    at = np.flatnonzero((place > 0) & (records["response_offset"] >= 0) & (records["response_size"] >= place + 4))
    if not len(at):
        return zero
    data = np.frombuffer(segment, np.uint8)
    # Block header and Ethernet, then IP (the first half byte is its version), TCP, the 4 size bytes, and the frame.
    at = at[records["response_offset"][at] < len(data) - (28 + 14 + 40 + 60 + 24)]
    ip = records["response_offset"][at] + 28 + 14
    tcp = ip + np.where(data[ip] >> 4 == 6, 40, (data[ip] & 15).astype(np.int64) * 4)
    size = tcp + (data[tcp + 12] >> 4).astype(np.int64) * 4
    fits = _number(data, size) == records["response_size"][at]
    at, size = at[fits], size[fits]
    untagged = (place[at] == 4) | (data[size + 8] == 0)
    zero[at] = (_number(data, size + 4 + place[at]) == 0) & untagged
    return zero


def _number(data: Any, at: Any) -> Any:
    np = numpy()
    found = np.zeros(len(at), dtype=np.uint32)
    for byte in range(4):
        found = found << np.uint32(8) | data[at + byte].astype(np.uint32)
    return found


def _places(keys: Any, versions: Any) -> Any:
    """Where in a response frame the throttle time stands; 0 where that is not the same for all responses of a version."""
    np = numpy()
    both = keys.astype(np.int64) << 16 | versions.astype(np.int64) & 0xFFFF
    different, which = np.unique(both, return_inverse=True)
    pairs = [(int(each) >> 16, int(each) & 0xFFFF) for each in different]
    return np.array([_place(*pair) for pair in pairs], dtype=np.int64)[which.reshape(-1)]


@cache
def _place(api_key: int, api_version: int) -> int:
    if not has_one(api_key, api_version):
        return 0
    of = plan("response", api_key, api_version)
    # The header: the correlation id, and in newer versions tags, of which there are none yet (their count is one byte).
    return (5 if of.header_version else 4) if of.root.fields[0].name == FIELD else 0


@cache
def has_one(api_key: int, api_version: int) -> bool:
    """Whether the response of this version has a throttle time."""
    try:
        return any(field.name == FIELD for field in plan("response", api_key, api_version).root.fields)
    except Exception:  # a version that is not known
        return False
