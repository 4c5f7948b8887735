"""The report `compatibility`: which clients of a fleet would work with another release, as `barnabas compat` judges one capture."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...decoder import compat
from ...decoder.schema import facts
from .queries import FORMATS, OFFERS, REPORTS, QueryEngine

NAME = "compatibility"
NEEDS = ("exchanges", "connections", "versions", "batches")
ABOUT = "Whether each client (client id and software) works, may break or breaks with brokers of that release; why, and what helps."
COLUMNS = (
    "cluster_id", "client_id", "software", "verdict", "certainty", "requests", "hosts", "oldest_refused", "reasons", "remedies",
    "first_ns", "last_ns",
)  # fmt: skip
_ASKING = facts.api_key("ApiVersions")
_KEY = ("cluster_id", "client_id", "software_name", "software_version")
_Key = tuple[str | None, ...]


def rows(engine: QueryEngine, against: str) -> list[dict[str, Any]]:
    """A row per client of a cluster, the worst first. KeyError when there is no such release."""
    seen: dict[_Key, compat.ObservedClient] = {}
    hosts: Counter[_Key] = Counter()
    for row in engine.query(REPORTS["clients"].sql):
        key = tuple(row[name] for name in _KEY)
        client = seen.get(key)
        if client is None:
            client = seen[key] = compat.ObservedClient("", key[1] or "", key[2] or "", key[3] or "")
        hosts[key] = max(hosts[key], row["hosts"])
        use = compat.VersionUse(row["api_key"], row["api_version"], row["requests"], row["refused"])
        use.first_ns, use.last_ns = row["first_ns"], row["last_ns"]
        client.uses[row["api_key"], row["api_version"]] = use
        if row["api_key"] == _ASKING:
            client.negotiation = compat.Negotiation.ASKS
    for row in engine.query(OFFERS):
        client = seen.get(tuple(row[name] for name in _KEY))
        if client is not None:
            client.offered.setdefault("", {})[row["api_key"]] = row["offered_min"], row["offered_max"]
    for row in engine.query(FORMATS):
        for key, client in seen.items():
            if key[:2] == (row["cluster_id"], row["client_id"]):
                client.formats[row["magic"]] += row["batches"]
    keys = {id(client): key for key, client in seen.items()}
    return [_row(each, keys[id(each.client)][0], hosts[keys[id(each.client)]]) for each in compat.report(seen.values(), against).clients]


def _row(found: compat.ClientReport, cluster_id: str | None, hosts: int) -> dict[str, Any]:
    client = found.client
    broken = [reason.use for reason in found.reasons if reason.use is not None and reason.verdict]
    return {
        "cluster_id": cluster_id,
        "client_id": client.client_id or None,
        "software": client.software_label or None,
        "verdict": found.verdict.text,
        "certainty": found.certainty,
        "requests": client.requests,
        "hosts": hosts,
        "oldest_refused": f"{broken[0].api} v{broken[0].version}" if broken else None,
        "reasons": "; ".join(reason.text for reason in found.reasons) or None,
        "remedies": "; ".join(found.remedies) or None,
        "first_ns": client.first_ns,
        "last_ns": client.last_ns,
    }
