"""Frames that wait in the proxy for a decision."""
