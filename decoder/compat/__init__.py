"""Who speaks which versions, and what breaks on which release: pure functions over what was seen on connections."""

from __future__ import annotations

from .client_tracker import ClientSeen, Negotiation, Request, Use, Watch
from .matrix import BrokerSeen, Limit, MatrixRow, brokers, matrix
from .verdict import ClientReport, Reason, Report, Verdict, report

__all__ = [
    "BrokerSeen",
    "ClientReport",
    "ClientSeen",
    "Limit",
    "MatrixRow",
    "Negotiation",
    "Reason",
    "Report",
    "Request",
    "Use",
    "Verdict",
    "Watch",
    "brokers",
    "matrix",
    "report",
]
