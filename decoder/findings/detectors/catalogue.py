"""Every detector there is. A module of detectors names its own in `DETECTORS`."""

from __future__ import annotations

from functools import cache

from ..engine.detector import Detector
from .cluster import contradictions, metadata, misrouted, unexplained
from .fetching import fetching, sessions
from .groups import commits, membership, rebalances
from .network import addresses, churn, coverage, latency, malformed, protocols
from .producing import batches, idempotence, producing
from .security import authentication
from .versions import features, first_requests, versions

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
