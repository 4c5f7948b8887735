"""Reading recordings: opening captures, reading exchanges and events back, filters, damage."""
