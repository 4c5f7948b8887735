"""The user interfaces: commands, terminal screens, web pages, the pytest plugin."""
