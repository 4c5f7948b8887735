"""Writing recordings: segments, their index, rotation and retention, and the flight recorder."""
