"""The C accelerator of the relay: its ring, and the way of bytes through it. `accelerator` loads it."""
