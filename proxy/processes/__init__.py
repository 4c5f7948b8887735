"""The processes of a proxy: how they start, end, send each other messages and share counters."""
