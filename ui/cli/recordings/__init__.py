"""Commands for recordings: reading, exporting, changing and replaying them."""
