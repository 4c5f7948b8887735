"""Bytes as they come from a connection: varints, frames, and the search for the next frame when bytes are missing."""
