"""The meter: a process that counts the traffic, for Prometheus and the live feed."""
