"""Frames that are held: what rules, plugins and people do to requests and responses before they go on."""
