"""What is wrong in a conversation, and why: detectors over what happens, each with its evidence and a remedy."""

from .detectors.catalogue import detectors
from .engine.clusters import Cluster, Clusters
from .engine.detector import Detector
from .engine.finding import Finding, Severity
from .engine.traffic import ClientConnection, Traffic
from .inspector import Inspector, inspect
from .summary import summary

__all__ = ["ClientConnection", "Cluster", "Clusters", "Detector", "Finding", "Inspector", "Severity", "Traffic", "detectors", "inspect", "summary"]
