"""Make a release's table (see ``releases.py``) from the message definitions of its kafka-clients jar.

The definitions have valid versions, listeners, and whether the newest version is unstable. What Kafka's code decides is
written down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..schema import facts
from ..schema.notation import Definition
from .releases import ROLES, Offer, Release, release_order

# Listeners as definitions name them -> roles. Before 2.8 there are none: every broker has a ZooKeeper.
_LISTENERS = {"zkBroker": "zk", "broker": "kraft", "controller": "controller"}
_NO_LISTENERS = ("zkBroker",)

_PRODUCE = facts.api_key("Produce")
_OFFERED_FROM_0 = (4, 0)  # ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION (KAFKA-18659)
# Offered when a telemetry receiver is configured (KIP-714).
_OPTIONAL = (facts.api_key("GetTelemetrySubscriptions"), facts.api_key("PushTelemetry"))
# The Raft APIs were there, and switched off, in one release before they had listeners.
_RAFT = range(facts.api_key("Vote"), facts.api_key("DescribeQuorum") + 1)
_RAFT_OFF = (2, 7)


def tables_of(definitions: Mapping[str, Definition], number: str) -> dict[tuple[str, str], Release]:
    """The tables of release `number`, ``"4.4"`` or ``"4.0.1"``, by (number, role), from its definitions by name. Empty if these
    are not from kafka-clients."""
    if "ApiVersionsRequest" not in definitions:
        return {}
    order = release_order(number)
    offers: dict[str, dict[int, Offer]] = {}
    for definition in definitions.values():
        key, versions = definition.key, list(definition.versions.every())
        if definition.kind != "request" or key is None:
            continue
        if definition.unstable:
            versions = versions[:-1]
        if not versions or (order[:2] == _RAFT_OFF and key in _RAFT):
            continue
        low, high = versions[0], versions[-1]
        for listener in definition.listeners or _NO_LISTENERS:
            role = _LISTENERS.get(listener)
            if role is None:
                continue
            offered = 0 if key == _PRODUCE and order >= _OFFERED_FROM_0 else low
            offers.setdefault(role, {})[key] = Offer(offered, high, low, key in _OPTIONAL and role == "kraft")
    return {
        (number, role): Release(number, role, dict(sorted(offers[role].items()))) for role in ROLES if role in offers
    }


def merge_release(
    known: Mapping[tuple[str, str], Release], definitions: Mapping[str, Definition], full: str
) -> tuple[dict[tuple[str, str], Release], list[str]]:
    """`known` with the tables of release `full` (``"4.4.0"``), and a line for each difference.

    An unknown minor release is added under its minor number; a patch release that differs from its minor release, under its
    full number.
    """
    order = release_order(full)
    minor = ".".join(map(str, order[: 3 if order[0] == 0 else 2]))
    fresh = tables_of(definitions, minor)
    new_minor = not any(number == minor for number, _ in known)
    tables, lines = dict(known), []
    for (_, role), table in fresh.items():
        number = minor
        before = _latest(known, role, full)
        if before is not None and before.offers == table.offers and not new_minor:
            continue
        if not new_minor:
            number = full
        reasons = known[number, role].reasons if (number, role) in known else {}
        tables[number, role] = replace(table, number=number, reasons=reasons)
        lines += [f"release {number} {role}: {line}" for line in _differences(before, table)]
    return tables, lines


def _latest(known: Mapping[tuple[str, str], Release], role: str, full: str) -> Release | None:
    """The newest table of a role up to a release."""
    older = [t for t in known.values() if t.role == role and release_order(t.number) <= release_order(full)]
    return max(older, key=lambda t: release_order(t.number), default=None)


def _differences(before: Release | None, after: Release) -> list[str]:
    had = before.offers if before is not None else {}
    lines = []
    for key in sorted({*had, *after.offers}):
        was, now = had.get(key), after.offers.get(key)
        if was != now:
            lines.append(f"{facts.api_name(key)} {_range(now)} (before: {_range(was)})")
    return lines or ["as before"]


def _range(offer: Offer | None) -> str:
    return "none" if offer is None else f"{offer.served_from}-{offer.high}"
