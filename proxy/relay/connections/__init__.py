"""A client's connection through the relay: its life, its two directions, and its requests in flight."""
