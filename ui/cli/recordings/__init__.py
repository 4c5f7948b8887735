"""Commands for recordings: read, export, transform and replay them."""
