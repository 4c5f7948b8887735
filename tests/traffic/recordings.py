"""The recordings in ``tests/decoder/findings/captures``, and what the detectors find in them.

A recording's name is its file's, without the suffix: "groups-storm".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.captures import open_capture
from barnabas.decoder import Exchange
from barnabas.decoder.connection.events import ConnectionEvent
from barnabas.decoder.findings import Finding, Inspector, detectors
from barnabas.decoder.findings.detectors import catalogue

CAPTURES = Path(__file__).parents[1] / "decoder" / "findings" / "captures"
def _ids(*areas: str) -> tuple[str, ...]:
    """The detectors of these folders or modules below `barnabas.decoder.findings.detectors`."""
    prefixes = tuple(f"{catalogue.__package__}.{area}." for area in areas)
    return tuple(kind.id for kind in detectors() if f"{kind.__module__}.".startswith(prefixes))


GROUPS = _ids("groups")
PRODUCING = _ids("producing")
VERSIONS = _ids("versions.versions", "versions.outdated", "versions.mixed", "versions.odd_connections", "versions.features", "cluster.contradictions")  # fmt: skip
"""The detectors of three areas, by id."""


def names(area: str) -> list[str]:
    """The recordings whose names begin so."""
    return sorted(path.stem for path in CAPTURES.glob(f"{area}-*.pcapng"))


def _read(name: str | Path) -> Iterator[ConnectionEvent]:
    with open_capture(CAPTURES / f"{name}.pcapng" if isinstance(name, str) else name) as capture:
        yield from capture.events()


def recording(name: str | Path) -> list[ConnectionEvent]:
    """All that happens in a recording (by its name, or any by its path); each exchange is whole from its request on."""
    return list(_read(name))


def exchanges(name: str, api: str | None = None) -> list[Exchange]:
    """The exchanges of a recording, or those of one API."""
    with open_capture(CAPTURES / f"{name}.pcapng") as capture:
        return [e for e in capture.exchanges() if api is None or e.api == api]


def inspected(traffic: str | Path | Iterable[ConnectionEvent | Exchange], *ids: str) -> Inspector:
    """An inspector of these detectors (all by default) that has seen a recording, events, or whole exchanges."""
    inspector = Inspector(ids or None)
    for each in _read(traffic) if isinstance(traffic, str | Path) else traffic:
        inspector.look(each) if isinstance(each, Exchange) else inspector.feed(each)
    return inspector


def findings(traffic: str | Path | Iterable[ConnectionEvent | Exchange], *ids: str) -> list[Finding]:
    """What these detectors (all by default) find in it, the worst first; a detector that fails is among it."""
    inspector = inspected(traffic, *ids)
    first = [(f.id, f.count) for f in inspector.findings()]
    found = inspector.findings()
    assert [(f.id, f.count) for f in found] == first  # asked twice: nothing is counted again
    return found


def one(traffic: str | Path | Iterable[ConnectionEvent | Exchange], detector: str) -> Finding:
    """The only finding of a detector."""
    found = findings(traffic, detector)
    assert [f.id for f in found] == [detector], [f.seen for f in found]
    assert found[0].seen and found[0].why and found[0].remedy
    return found[0]


def summary(found: Iterable[Finding]) -> set[tuple[str, str]]:
    """(id, severity) of each."""
    return {(f.id, str(f.severity)) for f in found}
