"""Fault rules: which exchanges they are for, when they fire, and the files they are read from."""
