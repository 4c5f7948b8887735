"""Example plugins, to use as they are or as a starting point. docs/plugins.md explains them."""
