"""The manual of every command."""
