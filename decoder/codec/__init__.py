"""From bytes to values and back, by a plan made from a message's definition."""
