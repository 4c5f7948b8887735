"""The filter language: from text to a tree of typed tests."""
