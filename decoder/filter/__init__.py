"""The one filter language."""
