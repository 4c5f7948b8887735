"""Fault rules in a running relay: their list and hits, and carrying out what they decide."""
