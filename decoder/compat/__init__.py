"""Which client uses which versions, and what breaks on which release: pure functions over observed requests."""

from __future__ import annotations

from .client_tracker import ClientTracker, Negotiation, ObservedClient, Request, VersionUse
from .matrix import Limit, MatrixRow, ObservedBroker, brokers, matrix
from .verdict import ClientReport, Reason, Report, Verdict, report

__all__ = [
    "ClientReport", "ClientTracker", "Limit", "MatrixRow", "Negotiation", "ObservedBroker", "ObservedClient",
    "Reason", "Report", "Request", "Verdict", "VersionUse", "brokers", "matrix", "report",
]  # fmt: skip
