"""The compatibility report: which of the observed clients would work with brokers of another release.

A client that asks (ApiVersions) takes the highest version that both sides know, so that what it used may be the broker's
limit and not its own. What is known of the software, and what the broker offered, decide as far as possible. Every reason
has its certainty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from ..reference import releases
from ..reference.clients import KnownVersion, Software, parse_version
from ..reference.releases import Release, release_order
from .client_tracker import API_VERSIONS, Negotiation, ObservedClient, Range, VersionUse


class Verdict(IntEnum):
    """Whether a client would work, best first."""

    WORKS = 0
    MAY_BREAK = 1
    BREAKS = 2

    @property
    def text(self) -> str:
        """``"may break"``"""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a client breaks or may break. `use`: None if it is not about one version. `served`: the release's range of that API,
    None if it has none. `dropped_in`, `came_with`: the release that dropped or introduced the version."""

    verdict: Verdict
    text: str
    use: VersionUse | None = None
    served: Range | None = None
    dropped_in: str = ""
    came_with: str = ""
    kip: str = ""


@dataclass(slots=True)
class ClientReport:
    """One client's verdict and its certainty. `remedies` are sentences, the smallest change first."""

    client: ObservedClient
    verdict: Verdict
    certainty: str
    reasons: list[Reason] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CompatReport:
    """Every client against one release, the worst first."""

    against: Release
    clients: list[ClientReport]

    @property
    def worst(self) -> Verdict:
        """The worst verdict of all clients."""
        return max((client.verdict for client in self.clients), default=Verdict.WORKS)

    def count(self, verdict: Verdict) -> int:
        """How many clients have this verdict."""
        return sum(client.verdict is verdict for client in self.clients)


def report(clients: Iterable[ObservedClient], against: str) -> CompatReport:
    """Judge clients against brokers of a release (``"4.0"``, ``"3.5-zk"``). Raises KeyError if there is no such release."""
    release = releases.release(against)
    found = [_Assessment(client, release).report() for client in clients]
    found.sort(key=lambda r: (-r.verdict, r.client.client_id, r.client.host, r.client.software_label))
    return CompatReport(release, found)


class _Assessment:
    """One client against one release."""

    def __init__(self, client: ObservedClient, release: Release) -> None:
        self.client, self.release = client, release
        self.software: Software | None = client.software
        self.needed: KnownVersion | None = None
        self.reaches: KnownVersion | None = None
        if self.software is not None:
            self.needed = self.software.client.needed_for(release.number)
            self.reaches = self.software.client.oldest_broker(self.software.version)
        self.reasons: list[Reason] = []
        self.fine: dict[str, list[str]] = {}
        self.notes: list[str] = []

    @property
    def new_enough(self) -> bool:
        """Whether the software is known to work with this release."""
        version = parse_version(self.software.version) if self.software else ()
        return bool(version and self.needed and version >= parse_version(self.needed.version))

    @property
    def too_old(self) -> bool:
        """Whether the software is older than the oldest version known to work with this release."""
        version = parse_version(self.software.version) if self.software else ()
        return bool(version and self.needed and version < parse_version(self.needed.version))

    @property
    def reaches_down(self) -> bool | None:
        """Whether the software works with brokers as old as this release; None if nothing is known."""
        if self.reaches is None:
            return None
        return release_order(self.reaches.release) <= release_order(self.release.number)

    def report(self) -> ClientReport:
        if self.reaches and self.software and self.reaches_down is False:
            text = f"{self.software.text} needs brokers of {self.reaches.release} or newer ({self.reaches.source})"
            self.reasons.append(Reason(Verdict.BREAKS, text, came_with=self.reaches.release))
        if self.too_old and self.needed and self.software:
            text = (
                f"{self.software.text} is older than {self.needed.version}, the oldest version known to work with "
                f"Kafka {self.needed.release} ({self.needed.source})"
            )
            self.reasons.append(Reason(Verdict.MAY_BREAK, text))
        for _, use in sorted(self.client.uses.items()):
            self._assess(use)
        self.notes += [f"{', '.join(what)}: {sure}" for sure, what in self.fine.items()]
        self.reasons.sort(key=lambda r: (-r.verdict, r.use.api_key if r.use else -1, r.use.version if r.use else 0))
        self._formats()
        worst = max((reason.verdict for reason in self.reasons), default=Verdict.WORKS)
        if self.software and worst:
            self.notes += [f"{note.text} ({note.source})" for note in self.software.client.notes]
        return ClientReport(self.client, worst, self._certainty(worst), self.reasons, self._remedies(), self.notes)

    # one version

    def _assess(self, use: VersionUse) -> None:
        if use.api_key == API_VERSIONS and self.release.negotiates:
            return  # an unknown version of it is answered with the known ones (KIP-35, KIP-511)
        if self.release.serves(use.api_key, use.version):
            return
        served = self.release.served(use.api_key)
        gone = releases.removed(use.api_key, use.version, self.release.number)
        if gone is not None:
            what = f"Kafka {gone.release} dropped {use.api} v{use.version}{f' ({gone.kip})' if gone.kip else ''}"
            verdict, sure = self._dropped(use, served)
            self._add(verdict, f"{what}; {sure}", use, served, dropped_in=gone.release, kip=gone.kip)
            return
        came = releases.since(use.api_key, use.version)
        if came is not None and release_order(came) <= release_order(self.release.number):
            what = f"a {self.release.role} broker of Kafka {self.release.number} does not support {use.api} v{use.version}"
            self._add(Verdict.MAY_BREAK, f"{what}; in another role, a node of that release does", use, served, came_with=came)
            return
        introduced = releases.introduced(use.api_key)
        if served is None and introduced and self.client.negotiation is not Negotiation.NEVER:
            came = introduced  # any version would do
        what = (
            f"{use.api}{f' v{use.version}' if came != introduced else ''} came with Kafka {came}"
            if came
            else f"no release up to {releases.releases()[-1]} has {use.api} v{use.version}"
        )
        verdict, sure = self._not_yet(use, served)
        self._add(verdict, f"{what}; {sure}", use, served, came_with=came or "")

    def _add(self, verdict: Verdict, text: str, use: VersionUse, served: Range | None, **where: str) -> None:
        if verdict is Verdict.WORKS:
            what, _, sure = text.partition("; ")
            self.fine.setdefault(sure, []).append(what)
        else:
            self.reasons.append(Reason(verdict, text, use, served, **where))

    def _dropped(self, use: VersionUse, served: Range | None) -> tuple[Verdict, str]:
        negotiation = self.client.negotiation
        if negotiation is Negotiation.NEVER:
            return Verdict.BREAKS, "the client does not ask what the broker offers, so it will keep using it"
        if served is None:
            return Verdict.MAY_BREAK, "the API was removed, so what the client uses it for will not work"
        others = [v for v in self.client.versions(use.api_key) if self.release.serves(use.api_key, v)]
        ranges = self.client.ranges(use.api_key)
        if self.new_enough and self.software and self.needed:
            known = f"{self.software.text} is known to work with Kafka {self.needed.release} ({self.needed.source})"
            if negotiation is not Negotiation.ASKS or not ranges or others or use.version >= min(h for _, h in ranges):
                return Verdict.WORKS, f"{known}, and uses a newer version if the broker offers one"
            offered = f"the broker offered up to v{min(h for _, h in ranges)}"
            return Verdict.MAY_BREAK, f"{known}, but it used v{use.version} although {offered}: check whether it is configured to"
        if others:
            return Verdict.MAY_BREAK, f"it also used v{max(others)}, which is supported, so it may only prefer this one"
        if negotiation is Negotiation.ASKS and ranges:
            top = max(high for _, high in ranges)
            if use.version < top:
                highest = max(self.client.versions(use.api_key))
                return Verdict.BREAKS, f"the broker offered up to v{top}, but the client went no higher than v{highest}"
            return Verdict.MAY_BREAK, "this was the highest version that the broker offered: the client may support newer ones"
        if negotiation is Negotiation.UNANSWERED:
            return Verdict.MAY_BREAK, "its broker does not answer ApiVersions; with a newer broker, it may use newer versions"
        return Verdict.MAY_BREAK, "the versions that the broker offered were not seen: the client may support newer ones"

    def _not_yet(self, use: VersionUse, served: Range | None) -> tuple[Verdict, str]:
        if use.api_key == API_VERSIONS:
            return Verdict.MAY_BREAK, "such brokers close the connection on it: configure the client for their release"
        if self.client.negotiation is Negotiation.NEVER:
            return Verdict.BREAKS, "the client does not ask what the broker offers, so it will still use it"
        if served is None:
            newest = releases.release(releases.releases()[-1]).offers.get(use.api_key)
            if newest is not None and newest.optional:
                return Verdict.WORKS, "brokers offer it only if configured to; clients work without it"
            return Verdict.MAY_BREAK, "the release does not have this API, so what the client uses it for will not work"
        lower = [v for v in self.client.versions(use.api_key) if self.release.serves(use.api_key, v)]
        if lower:
            return Verdict.WORKS, f"the client also uses v{max(lower)}, which is supported"
        if self.new_enough and self.software and self.needed:
            known = f"{self.software.text} is known to work with Kafka {self.needed.release} ({self.needed.source})"
            return Verdict.WORKS, f"{known}, and uses a lower version if the broker offers no higher one"
        if self.software and self.reaches:  # whether they are too old is a reason of its own
            known = f"{self.software.text} works with brokers from {self.reaches.release} on ({self.reaches.source})"
            return Verdict.WORKS, f"{known}, and uses a lower version if the broker offers no higher one"
        return Verdict.MAY_BREAK, f"it is not known whether the client can use v{served[1]} or lower"

    # all of them

    def _formats(self) -> None:
        old = {magic: count for magic, count in sorted(self.client.formats.items()) if count}
        if old:
            counted = " and ".join(
                f"{count} message{'s' * (count != 1)} of format {magic}" for magic, count in old.items()
            )
            after = (
                " Kafka 4.0 and newer accept only format 2 (KIP-724)."
                if release_order(self.release.number) >= (4,)
                else ""
            )
            self.notes.append(f"It produced {counted} (before KIP-98's record batches).{after}")

    def _certainty(self, worst: Verdict) -> str:
        if worst is Verdict.BREAKS:
            return "certain, as long as the client behaves as captured"
        if worst is Verdict.MAY_BREAK:
            return "open: the capture does not show what else the client can do"
        if self.client.negotiation is Negotiation.NEVER:
            return (
                "for the captured requests: the client never asks what the broker offers, and other requests may need "
                "other versions"
            )
        if self.new_enough and self.needed:
            return f"certain: known software ({self.needed.source}), and nothing in the capture contradicts it"
        return "for the captured requests: all are supported, or the client is known to use lower versions"

    def _remedies(self) -> list[str]:
        """What to do, the smallest change first."""
        dropped = [r for r in self.reasons if r.dropped_in]
        early = [r for r in self.reasons if r.came_with]
        found: list[str] = []
        client, never = self.client, self.client.negotiation is Negotiation.NEVER
        if dropped or self.too_old:
            if self.software and self.needed and not self.new_enough:
                why = f"known to work with Kafka {self.needed.release}: {self.needed.source}"
                found.append(f"upgrade {self.software.client.called} to {self.needed.version} or newer ({why})")
            elif not self.new_enough and any(r.served for r in dropped):
                found.append(f"use a client made for Kafka {self._made_for(dropped)} or newer")
            if never:
                found.append(
                    "let it ask what the broker offers: remove the fixed protocol or broker version from its settings"
                )
            uses = [r.use for r in dropped if r.use]
            removals = [releases.removed(use.api_key, use.version, self.release.number) for use in uses]
            if kept := [removal.last for removal in removals if removal]:
                found.append(f"until then, keep brokers on {min(kept, key=release_order)} or older")
        if early:
            newest = max((r.came_with for r in early), key=release_order)
            found.append(
                f"use brokers of {newest} or newer, or a client that is known to work with {self.release.number}"
            )
            if never and client.software is None:
                found.append("or set the broker's release in the client's settings")
        return found

    def _made_for(self, dropped: list[Reason]) -> str:
        """The release that introduced the lowest versions which are still served."""
        came = [releases.since(r.use.api_key, r.served[0]) for r in dropped if r.use and r.served]
        return max((release for release in came if release), key=release_order)
