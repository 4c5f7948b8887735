"""What all detectors share: findings, the state of the traffic, counters and text."""
