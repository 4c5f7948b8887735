"""The live feed: a summary of every exchange over UDP, to whoever subscribed (docs/feed.md)."""
