"""Every detector there is. A module of detectors names its own in `DETECTORS`."""

from __future__ import annotations

from functools import cache

from . import (
    addresses,
    authentication,
    batches,
    churn,
    commits,
    contradictions,
    coverage,
    features,
    fetching,
    first_requests,
    idempotence,
    latency,
    malformed,
    membership,
    metadata,
    misrouted,
    producing,
    protocols,
    rebalances,
    sessions,
    unexplained,
    versions,
)
from .detector import Detector

_MODULES = (
    versions,
    first_requests,
    features,
    malformed,
    addresses,
    misrouted,
    protocols,
    authentication,
    rebalances,
    membership,
    commits,
    producing,
    batches,
    idempotence,
    fetching,
    sessions,
    metadata,
    latency,
    churn,
    contradictions,
    coverage,
    unexplained,
)


@cache
def detectors() -> tuple[type[Detector], ...]:
    """All detectors, each id once; the last one has what the others leave."""
    return tuple(kind for module in _MODULES for kind in module.DETECTORS)
