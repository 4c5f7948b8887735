"""Which frames are held at all: told from as few of their bytes as will do."""
