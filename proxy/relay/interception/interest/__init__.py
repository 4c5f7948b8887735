"""Which frames have to be held, decided by as few of their bytes as possible."""
