"""What a person touches: the commands, the terminal screens, the pytest plugin."""
