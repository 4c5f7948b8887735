"""API versions: refused, outdated, never negotiated, not used."""
