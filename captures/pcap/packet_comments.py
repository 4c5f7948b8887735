"""Prefixes of our packet comments; docs/formats.md lists them."""

from collections.abc import Collection

MARK = "barnabas: "
CARRIED_COMMENT = MARK + "carried over"
OPAQUE_COMMENT = MARK + "opaque, "
ENDED_COMMENT = MARK + "ended by "
UPSTREAM_COMMENT = MARK + "upstream "
IMPORTED_COMMENT = MARK + "imported"
"""On a connection that was imported: bytes missing here were missing in the original capture."""
BOTH_LEGS = frozenset(("client", "broker"))
_TLS_COMMENTS = {leg: f"{MARK}tls on the {leg} leg" for leg in ("client", "broker")}


def tls_comments(legs: Collection[str]) -> tuple[str, ...]:
    """The legs that are TLS, from the comments of a connection's first packet: see `decoder.connection.events.Opened`."""
    return tuple(comment for leg, comment in _TLS_COMMENTS.items() if leg in legs)


def tls_legs(comments: Collection[str]) -> frozenset[str]:
    """The legs that are TLS by the comments of a connection's first packet."""
    return frozenset(leg for leg, comment in _TLS_COMMENTS.items() if comment in comments)
