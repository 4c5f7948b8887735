"""Captures that others made: what in them is Kafka, its index, and taking it in as a recording."""
