"""Commands for live traffic: the proxy, its config file, control, feed, rules and plugins."""
