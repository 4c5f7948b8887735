"""Tests against real brokers and clients. A package, so that its brokers end with its last test (fixtures of scope ``package``)."""
