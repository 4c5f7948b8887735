"""Captures made into other captures: names replaced, a part cut out, several put together."""
