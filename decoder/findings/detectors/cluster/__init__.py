"""The cluster as brokers show it: metadata, leaders, quotas, errors that nothing else explains."""
