"""Rules and their actions: what to break on purpose. Knows the protocol, but no sockets and no recordings."""
