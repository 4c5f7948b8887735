"""Captures of other tools: finding the Kafka connections in them, indexing them, importing them as recordings."""
