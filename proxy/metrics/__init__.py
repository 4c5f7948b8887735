"""The meter: a process that counts the traffic, for Prometheus, StatsD and the live feed."""
