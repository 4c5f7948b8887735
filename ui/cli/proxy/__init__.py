"""Commands for live traffic: the proxy, its configuration, its control, feed, rules and plugins."""
