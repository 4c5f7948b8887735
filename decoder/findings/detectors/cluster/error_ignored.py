"""Clients that send the same again after an error, and not what it asks for (`reference.next_steps`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ....connection.exchange import Exchange
from ....reference import explain
from ....reference.next_steps import next_steps
from ....schema import facts
from ...engine.finding import Finding, Severity
from ...engine.subjects import subject_text
from ...models.next_steps import FollowingDetector, PendingStep
from .contradictions import OldTopicId, ProducerIdNotRenewed
from .misrouted import RebootstrapIgnored

_OTHERS = OldTopicId.STEPS | ProducerIdNotRenewed.STEPS | RebootstrapIgnored.STEPS


class ErrorIgnored(FollowingDetector):
    """What the client did is added to the finding of another detector about the same error of the client, if there is one."""

    id = "error-ignored"
    severity = Severity.MEDIUM
    title = "a client ignores an error: it sends the same again, and not what the error asks for"
    STEPS = frozenset(step.name for step in next_steps().values()) - _OTHERS
    MANY = 20

    def refused(self, pending: PendingStep, exchange: Exchange) -> None:
        if not pending.ignored or pending.named:  # see `MetadataIgnored`
            return
        conn, error, about = pending.conn, facts.error_name(pending.code), subject_text(exchange, pending.subject)
        finding = self.report(
            (conn.identity, pending.step.name, pending.code, about, pending.per),
            exchange,
            f"{explain.error(pending.code).of(exchange.api).what} After it, a client must {pending.step.must} "
            f"({pending.step.source}). This one does not, and is refused each time. It is the client's fault.",
            "restart the client, and upgrade its library, or report it to its developers",
            error=error,
            subject=about,
        )
        finding.count = max(finding.count, pending.refused.count)
        finding.about["did"] = pending.did
        if finding.count >= self.MANY:
            finding.severity = Severity.HIGH
        where = f"{f' for {about}' * bool(about)} from {conn.where}"
        finding.seen = f"{conn.who} got {error} to {exchange.api} v{exchange.api_version}{where}, and {pending.did}"

    def after_others(self, found: list[Finding]) -> None:
        self._added: set[int] = set()
        for mine in self._found.values():
            for at, other in enumerate(found):
                if all(other.about.get(name) == mine.about[name] for name in ("error", "client_id", "software")):
                    did = mine.about["did"]
                    said = "" if did in other.seen else f"; the client {did}"
                    found[at] = replace(other, seen=other.seen + said, severity=max(other.severity, self.severity, key=lambda each: each.rank))
                    self._added.add(id(mine))

    def findings(self) -> Iterable[Finding]:
        return [finding for finding in self._found.values() if id(finding) not in self._added]
