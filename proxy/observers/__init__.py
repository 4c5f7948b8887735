"""Processes that read the ring beside the traffic: the observer, which records or counts, and the inspector, which looks for findings."""
