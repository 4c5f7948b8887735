"""What all detectors share: findings, the traffic, and the inspector that hands them what happens."""
