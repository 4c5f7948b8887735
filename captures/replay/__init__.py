"""Replaying a recording: what its fields are, what of it is sent again and how, and how answers compare. No sockets."""
