"""The ring in shared memory from which observers read the traffic, without ever delaying it."""
