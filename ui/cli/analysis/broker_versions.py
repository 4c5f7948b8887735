"""Ask a broker which versions it offers (ApiVersions, newest version first), and Metadata for the rest of its cluster."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field

from .... import __version__
from ....decoder import DecodeError, Message, encode_request, read_response
from ....decoder.compat import ObservedBroker
from ....decoder.compat.matrix import broker as broker_seen
from ....decoder.connection import api_versions
from ....decoder.schema import facts
from ....errors import BarnabasError
from ....proxy.events import Address, show

TIMEOUT = 5.0
_METADATA = facts.api_key("Metadata")
_CLIENT_ID = "barnabas-versions"
_MAX_ANSWER = 64 << 20
_ALERT, _HANDSHAKE = 21, 22  # TLS record types


class NoAnswer(BarnabasError):
    """The broker could not be asked; the text says why and what to do."""


class _Closed(Exception):
    """The connection ended without an answer."""


@dataclass(slots=True)
class ClusterVersions:
    """The answers of a cluster: the brokers that answered, and the problems with the others."""

    brokers: list[ObservedBroker] = field(default_factory=list)
    node_ids: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def ask_cluster(address: Address) -> ClusterVersions:
    """Ask a broker, and all those that it names. Raises NoAnswer when the first one cannot be asked."""
    found = ClusterVersions()
    first, nodes = _ask(address, metadata=True)
    if nodes is None:
        found.problems.append(
            f"{show(address)} answered ApiVersions but not Metadata, as a listener with SASL does before "
            "authentication: the other brokers of its cluster were not queried"
        )
        found.brokers.append(first)
        return found
    found.node_ids = {show(where): node for node, where in nodes.items()}
    if show(address) not in found.node_ids:  # asked under another name than the one it is advertised by
        found.brokers.append(first)
    for where in nodes.values():
        if where == address:
            found.brokers.append(first)
            continue
        try:
            found.brokers.append(_ask(where, metadata=False)[0])
        except NoAnswer as error:
            found.problems.append(str(error))
    return found


def _ask(address: Address, metadata: bool) -> tuple[ObservedBroker, dict[int, Address] | None]:
    version = api_versions.newest()
    try:
        try:
            offered, nodes = _conversation(address, version, metadata)
        except _Closed:
            offered, nodes = _conversation(address, 0, metadata)  # some close on a version they do not know
    except _Closed:
        raise NoAnswer(_why_closed(address)) from None
    except (OSError, DecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or "no answer in time"
        raise NoAnswer(f"{show(address)}: {reason}; is a broker listening there?") from None
    return broker_seen(show(address), offered), nodes


def _conversation(
    address: Address, version: int, metadata: bool
) -> tuple[dict[int, tuple[int, int]], dict[int, Address] | None]:
    with socket.create_connection(address, TIMEOUT) as connection:
        request = api_versions.request(version, correlation_id=1, client_id=_CLIENT_ID, software=__version__)
        answer = api_versions.read(_ask_frame(connection, request), version)
        if answer.again is not None:
            request = api_versions.request(answer.again, correlation_id=2, client_id=_CLIENT_ID, software=__version__)
            answer = api_versions.read(_ask_frame(connection, request), answer.again)
        ranges, nodes = answer.ranges, None
        if metadata and _METADATA in ranges:
            known = facts.api(_METADATA).versions.every()[-1]
            try:
                nodes = _nodes(_metadata(connection, min(known, ranges[_METADATA][1]), 3))
            except _Closed:
                pass
    return ranges, nodes


def _nodes(answer: Message) -> dict[int, Address]:
    return {node["node_id"]: (node["host"], node["port"]) for node in answer.to_dict()["brokers"]}


def _metadata(connection: socket.socket, version: int, correlation_id: int) -> Message:
    request = encode_request(_METADATA, version, {"topics": []}, correlation_id=correlation_id, client_id=_CLIENT_ID)
    return read_response(_ask_frame(connection, request), api_key=_METADATA, api_version=version)


def _ask_frame(connection: socket.socket, request: bytes) -> bytes:
    """The frame that answers a request."""
    try:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        head = _read(connection, 4)
        if head[0] in (_ALERT, _HANDSHAKE) and head[1] == 3:
            raise _Closed
        size = int.from_bytes(head, "big")
        if not 4 <= size <= _MAX_ANSWER:
            raise DecodeError(f"the server is not a Kafka broker (its response starts with {head.hex(' ')})")
        frame = _read(connection, size)
    except (ConnectionResetError, BrokenPipeError):
        raise _Closed from None
    if frame[:4] != request[4:8]:
        raise DecodeError("the server is not a Kafka broker (it does not return the correlation id)")
    return frame


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 16))
        if not more:
            raise _Closed
        data += more
    return bytes(data)


def _why_closed(address: Address) -> str:
    if _speaks_tls(address):
        return (
            f"{show(address)} uses TLS, but this command supports plain text only: give it a listener without TLS, or "
            "a capture of a client that uses this broker"
        )
    try:
        with socket.create_connection(address, TIMEOUT) as connection:
            _metadata(connection, 0, 1)
    except (OSError, DecodeError, _Closed):
        return (
            f"{show(address)} closes the connection on ApiVersions: it is not a Kafka broker, or it refuses this "
            "client; see its log for the reason"
        )
    return (
        f"{show(address)} is a Kafka broker older than 0.10.0: it answers Metadata v0 and closes the connection on "
        "ApiVersions, so it cannot report what it offers (0.9 and 0.8: barnabas schema release 0.9.0)"
    )


def _speaks_tls(address: Address) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent to it; the question is only whether it speaks TLS
    try:
        with socket.create_connection(address, TIMEOUT) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        # An alert is an answer in TLS too (a client certificate is wanted, no common version ...).
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
