"""Reading recordings: captures opened, exchanges and events read back, filters over them, damage."""
