"""Plugins to use, and to begin one of your own with. docs/plugins.md explains them."""
