"""Payloads inside payloads: consumer protocol and internal topics."""
