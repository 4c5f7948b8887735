"""What our own packet comments begin with; docs/formats.md lists them."""

MARK = "barnabas: "
CARRIED_COMMENT = MARK + "carried over"
OPAQUE_COMMENT = MARK + "opaque, "
ENDED_COMMENT = MARK + "ended by "
UPSTREAM_COMMENT = MARK + "upstream "
IMPORTED_COMMENT = MARK + "imported"
"""Of a connection: what of it is not in the recording was not in the capture it is from, or nobody knows."""
