"""Replaying a recording to a broker: the sockets. What is sent, and what answers mean, is in `captures.replay`."""
