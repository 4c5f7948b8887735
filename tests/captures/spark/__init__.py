"""Tests that need Spark. A package, so that the session ends with its last test (a fixture of scope ``package``)."""
