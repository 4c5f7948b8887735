"""Bytes as they come from a connection: frames cut out of a stream, and where to go on when some are missing."""
