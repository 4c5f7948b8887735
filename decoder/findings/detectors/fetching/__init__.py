"""Consumers' fetches: sessions, sizes, lag, replicas."""
