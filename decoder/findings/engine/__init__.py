"""What all detectors share: findings, the scene, and the inspector that hands them what happens."""
