"""The proxy's processes: the supervisor that starts them, watches over them and ends them, and what they share."""
