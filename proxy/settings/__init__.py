"""What a proxy is made of: its settings, limits, and the config file."""
