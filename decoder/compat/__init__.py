"""Which client uses which versions, and what breaks on which release: pure functions over observed requests."""

from __future__ import annotations

from .client_tracker import ClientTracker, IndexedRequest, Negotiation, ObservedClient, VersionUse
from .fingerprint import java_releases
from .matrix import Limit, MatrixRow, ObservedBroker, brokers, matrix
from .verdict import ClientReport, CompatReport, Reason, Verdict, report

__all__ = [
    "ClientReport",
    "ClientTracker",
    "CompatReport",
    "IndexedRequest",
    "Limit",
    "MatrixRow",
    "Negotiation",
    "ObservedBroker",
    "ObservedClient",
    "Reason",
    "Verdict",
    "VersionUse",
    "brokers",
    "java_releases",
    "matrix",
    "report",
]  # fmt: skip
