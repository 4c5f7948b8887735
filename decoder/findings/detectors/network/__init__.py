"""Connections and bytes: addresses, refusals, other protocols, latency, unanswered and malformed messages."""
