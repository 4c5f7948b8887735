"""Commands that diagnose and compare captures."""
