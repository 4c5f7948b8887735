"""What is wrong in a conversation, and why: detectors over what happens, each with its evidence and a remedy."""

from .detectors.catalogue import detectors
from .engine.detector import Detector
from .engine.finding import Finding, Severity
from .engine.scene import Cluster, Link, Scene
from .inspector import Inspector, inspect

__all__ = ["Cluster", "Detector", "Finding", "Inspector", "Link", "Scene", "Severity", "detectors", "inspect"]
