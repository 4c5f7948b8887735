"""What is counted of the traffic, by a process of its own: Prometheus scrapes it, StatsD and the live feed are sent it."""
