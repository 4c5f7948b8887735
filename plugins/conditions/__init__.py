"""When a rule applies: the values that it is written with, what its match can reach, and its counting."""
