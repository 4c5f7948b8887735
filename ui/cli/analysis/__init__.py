"""Commands that say what is wrong, or different, in captures."""
