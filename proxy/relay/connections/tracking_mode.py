"""A connection that begins, or ceases, to be followed request by request while traffic runs (`Connection.inline`).

Answers made here wait for their place behind every request before them. Requests that passed before the switch were
not all remembered, so their responses must be accounted for first:

- Nothing is in flight (the last response seen has the last request's correlation id): nothing to do.
- The last request that passed gets a response: a number for it goes into the queue. Responses come in order, so when
  its own has come, all others have.
- It is not known whether that one is answered (a Produce with acks=0, or its head was cut off): a mark goes into the
  queue, and nothing is answered here before the first response to a request behind the mark has come. Rules and
  intercepts leave the requests until then alone. A producer with acks=0 has nothing that a rule could answer anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..interception.frame_editor import HIGHEST_VERSION, KNOWN, PRODUCE, produce_acks
from .correlation import ANY_API

if TYPE_CHECKING:
    from ..interfaces import ConnectionInterface

HEAD_KEPT = 128
"""Bytes of the last request that are kept to see whether it gets a response."""


def switch(connection: ConnectionInterface, inline: bool) -> None:
    """Follow every request from now on, or no longer."""
    inline = inline or connection.between_brokers or connection.adapter is not None
    if connection.inline == inline or connection.closed:
        return
    connection.inline = inline
    if not inline or connection.request.opaque or not connection.established:
        return
    if connection.request.hold is not None or connection.request.paused:
        return  # began while every request was followed, and nothing has passed since
    last = connection.request.last_id
    if last is None or (not connection.in_flight and last == connection.response.last_id and _settled(connection)):
        return
    remembered = {entry & 0xFFFFFFFF if isinstance(entry, int) else entry.correlation for entry in connection.in_flight}
    if connection.in_flight.doubtful in remembered:
        connection.correlation.mark_unsure()
    elif last in remembered or (last == connection.response.last_id and _settled(connection)):
        pass  # what is not remembered was answered before what is
    elif _gets_response(connection.request.last_head, last):
        connection.correlation.add(ANY_API, 0, last)
    else:
        connection.correlation.mark_unsure()


def _settled(connection: ConnectionInterface) -> bool:
    """Whether the last response's id is known: its head is not just passing in pieces."""
    return not connection.response.split_head


def _gets_response(head: bytes, correlation: int) -> bool:
    """Whether the request that begins so, and has this id, is surely answered."""
    if len(head) < 12 or int.from_bytes(head[8:12], "big") != correlation:
        return False
    key, version = int.from_bytes(head[4:6], "big"), int.from_bytes(head[6:8], "big")
    if key not in KNOWN or version > HIGHEST_VERSION:
        return False  # a raw SASL token, whose answer has no correlation id
    return key != PRODUCE or bool(produce_acks(head, 0, len(head)))
