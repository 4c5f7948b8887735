"""What is wrong in a conversation, and why: detectors over what happens, each with its evidence and a remedy."""

from .catalogue import detectors
from .detector import Detector
from .finding import Finding, Severity
from .inspector import Inspector, inspect
from .scene import Cluster, Link, Scene

__all__ = ["Cluster", "Detector", "Finding", "Inspector", "Link", "Scene", "Severity", "detectors", "inspect"]
