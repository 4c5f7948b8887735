"""Producers: batches, refusals, retries, idempotence, transactions."""
