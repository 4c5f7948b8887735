"""Which broker a connection leads to, and the addresses that clients are given for brokers."""
