"""The live feed: a summary of every exchange over UDP, to subscribers (docs/feed.md)."""
