"""A process of its own that counts the traffic: Prometheus scrapes it; it sends to StatsD and to the live feed."""
