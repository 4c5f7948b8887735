"""A recorded request sent again: through the proxy, as a client of its own, so that it is seen and recorded as any other.

The bytes go as they were recorded, with the client id that they have; only what was changed at the screen is different.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from typing import Any

from ...captures import Row
from ...captures.replay.policy import Policy, administrative
from ...decoder import DecodeError, Exchange, Message, decode_response, facts
from ...decoder.frame import MAX_FRAME

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 60.0
_READS = re.compile(r"Describe|List|Get|Find|Metadata|ApiVersions|Fetch|OffsetFetch|OffsetForLeaderEpoch|.*Describe$")
Address = tuple[str, int]


class NotSent(Exception):
    """It cannot be sent, or no answer came; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of it. `client`: the address it was sent from; `error`: the first error's name, or ""."""

    client: str
    latency_ns: int
    answered: bool
    error: str = ""


def why_not(exchange: Exchange) -> str:
    """Why a request cannot be sent again; "" if it can."""
    reason = Policy(admin=True, internal=True, refused=True).why_not(exchange)
    return f"it cannot be sent again: {reason}" if reason else ""


def warning(api_key: int) -> str:
    """What sending it once more would do; "" for an API that only reads."""
    name = facts.api_name(api_key)
    if _READS.match(name):
        return ""
    if administrative(api_key):
        return f"{name} alters or deletes something on the cluster, and does it again"
    return f"{name} changes something on the cluster: sent twice, it may be done twice"


def listener(brokers: list[dict[str, Any]], row: Row) -> Address:
    """Where the proxy listens for the broker that the request went to; its bootstrap address where that is not known."""
    where = {f"{each['broker'][0]}:{each['broker'][1]}": each["listen"] for each in brokers if each["listen"]}
    first = next(each["listen"] for each in brokers if each["bootstrap"])
    host, port = where.get(row.broker, first)
    return ("127.0.0.1" if host in ("0.0.0.0", "::", "") else str(host)), int(port)


def answered(message: Message) -> bool:
    """Whether an answer is due."""
    return not (message.api == "Produce" and message["acks"] == 0)


def send(address: Address, message: Message) -> Sent:
    """Send a request and read its answer. Raises `NotSent`."""
    where = f"{address[0]}:{address[1]}"
    frame = message.encode()
    try:
        connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
    except OSError as error:
        raise NotSent(f"the proxy does not accept connections at {where}: {error.strerror or error}") from None
    with connection:
        connection.settimeout(ANSWER_SECONDS)
        host, port = connection.getsockname()[:2]
        client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        began = time.monotonic_ns()
        try:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            if not answered(message):
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)  # until the broker has read it and ends the connection
                return Sent(client, time.monotonic_ns() - began, False)
            size = int.from_bytes(_exactly(connection, 4), "big")
            if not 4 <= size <= MAX_FRAME:
                raise NotSent(f"what came back from {where} is no answer: does the proxy speak TLS there?")
            answer = _exactly(connection, size)
        except TimeoutError:
            raise NotSent(f"no answer came from {where} in {ANSWER_SECONDS:g} s") from None
        except OSError as error:
            raise NotSent(f"the connection to {where} broke: {error.strerror or error}") from None
        took = time.monotonic_ns() - began
    return Sent(client, took, True, _error(message, answer))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise NotSent(
                "the connection ended without an answer: the broker wants a login or TLS that the recording cannot give "
                "(barnabas replay logs in), or it refused the request"
            )
        data += part
    return bytes(data)


def _error(message: Message, answer: bytes) -> str:
    try:
        said = decode_response(answer, api_key=message.api_key, api_version=message.api_version)
    except DecodeError as fault:
        if fault.message is None:
            return "the answer cannot be decoded"
        said = fault.message
    return next((facts.error_name(code) for _, code in said.errors()), "")
