"""Replaying a recording, without sockets: what is sent again and how, and how answers compare."""
