"""What several detectors need to know of the traffic, read once: groups, offered versions, fetches, produced batches, waits."""
