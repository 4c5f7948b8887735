"""Administrative requests whose refusal was the last word: the client did not try again, or never with success."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....reference import explain
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Finding, Severity
from ...engine.formatting import duration, some, times
from ...engine.layout import layout, rows
from ...engine.subjects import Subject, answers, subject_text
from ...engine.traffic import ClientConnection
from .unexplained import ORDINARY

_METADATA, _DESCRIBE_CLUSTER = facts.api_key("Metadata"), facts.api_key("DescribeCluster")
_ADMIN = facts.api_key_set(
    "CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords", "AlterConfigs", "IncrementalAlterConfigs", "ElectLeaders",
    "AlterPartitionReassignments", "DeleteGroups", "OffsetDelete", "CreateAcls", "DeleteAcls", "AlterClientQuotas",
    "AlterUserScramCredentials", "UpdateFeatures", "UnregisterBroker", "CreateDelegationToken",
    "RenewDelegationToken", "ExpireDelegationToken", "AddRaftVoter", "RemoveRaftVoter", "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)  # fmt: skip
_NOT_CONTROLLER = facts.error_code("NOT_CONTROLLER")
_QUIET = facts.error_code_set(
    "TOPIC_ALREADY_EXISTS", "ELECTION_NOT_NEEDED", "NO_REASSIGNMENT_IN_PROGRESS", "OPERATION_NOT_ATTEMPTED",
    "THROTTLING_QUOTA_EXCEEDED",
)  # fmt: skip
"""How tools learn that nothing is left to do; errors that come with another one; quotas, which have a detector of their own."""
_ABSENT = facts.error_code_set("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "GROUP_ID_NOT_FOUND", "RESOURCE_NOT_FOUND")
_DELETES = facts.api_key_set("DeleteTopics", "DeleteGroups", "OffsetDelete", "DeleteShareGroupOffsets", "AlterUserScramCredentials")
_SAYS_DISABLED = 3
"""The first version of DeleteTopics with TOPIC_DELETION_DISABLED (KIP-322, Kafka 2.1)."""
_CASES = 2000
_SUBJECTS = 200


@dataclass(slots=True)
class _Refusal:
    """One error of one API that one client got. `open`: what it is about, until that is answered otherwise, with its text."""

    conn: ClientConnection
    code: int
    finding: Finding
    open: dict[Subject, str] = field(default_factory=dict)
    asked_since: bool = False
    """Whether the client asked for Metadata after the last refusal."""
    still: str = ""
    """A topic that should have been deleted, and that Metadata shows after that."""


class AdminRefused(Detector):
    """Errors that clients usually retry, or that tools use to check whether something exists, are silent elsewhere unless they persist.

    Where the request changes the cluster and nothing followed, the change was not made.
    """

    id = "admin-request-refused"
    severity = Severity.MEDIUM
    title = "an administrative request was refused, and that was the last word"
    apis = _ADMIN | {_METADATA, _DESCRIBE_CLUSTER}

    def setup(self) -> None:
        self._refusals: BoundedDict[tuple[object, int, int], _Refusal] = BoundedDict(_CASES)
        self._controllers: BoundedDict[str, int] = BoundedDict(_CASES)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        if exchange.api_key in _ADMIN:
            if self._refusals or exchange.error:
                self._answered(conn, exchange)
            return
        message = exchange.response_view
        at = layout(message.plan.root).get("controller_id") if message is not None else None
        if message is not None and at is not None:
            self._controllers[conn.broker] = message.values[at]
        for refusal in self._refusals.values():
            if refusal.conn.identity == conn.identity:
                refusal.asked_since = True
                if message is not None and refusal.finding.about["api"] == "DeleteTopics":
                    topics = rows(message, "topics") if exchange.api_key == _METADATA else ()
                    there = {topic["name"] for topic in topics if not topic["error_code"]}
                    refusal.still = next((name for name in refusal.open.values() if name in there), "")

    def _answered(self, conn: ClientConnection, exchange: Exchange) -> None:
        found: dict[int, list[Subject]] = {}
        answered: dict[Subject, set[int]] = {}
        for subject, code in answers(exchange):
            answered.setdefault(subject, set()).add(code)
            if code:
                found.setdefault(code, []).append(subject)
        for (who, api, code), refusal in list(self._refusals.items()):
            if who == conn.identity and api == exchange.api_key:
                for subject in [s for s in refusal.open if s in answered and code not in answered[s]]:
                    del refusal.open[subject]
                if not refusal.open:
                    del self._refusals[who, api, code]
                    self._found.pop((who, api, code), None)
        for code, subjects in found.items():
            if code not in _QUIET and (code in ORDINARY or facts.is_retriable(code)):
                self._refused(conn, exchange, code, subjects)

    def _refused(self, conn: ClientConnection, exchange: Exchange, code: int, subjects: list[Subject]) -> None:
        key = conn.identity, exchange.api_key, code
        finding = self.report(key, exchange, "", "", error=facts.error_name(code))
        refusal = self._refusals.of(key, lambda: _Refusal(conn, code, finding))
        refusal.conn, refusal.finding, refusal.asked_since = conn, finding, False
        for subject in subjects:
            if len(refusal.open) < _SUBJECTS:
                refusal.open[subject] = subject_text(exchange, subject)

    def findings(self) -> Iterable[Finding]:
        for refusal in self._refusals.values():
            self._write(refusal)
        return super().findings()

    def _write(self, refusal: _Refusal) -> None:
        found, conn, name = refusal.finding, refusal.conn, facts.error_name(refusal.code)
        api, key = found.about["api"], facts.api_key(found.about["api"])
        subjects = [text for text in refusal.open.values() if text]
        of = f" of {some(subjects)}" if subjects else ""
        span = (found.last_ns or 0) - (found.first_ns or 0)
        over = f" in {duration(span)}" if found.count > 1 and span else ""
        end = "it did not try again" if found.count == 1 else "no later answer is without this error"
        if refusal.code == _NOT_CONTROLLER:
            self._write_controller(refusal, f"{conn.who} sent {api}{of} to {conn.where}, which refused it with NOT_CONTROLLER "
                                            f"{times(found.count)}{over}")  # fmt: skip
            return
        found.seen = f"{conn.where} refused {api}{of} of {conn.who} with {name} {times(found.count)}{over}; {end}"
        why, found.remedy = explain.error_meaning(api, refusal.code)
        found.why = f"{why} " + (
            "The change may have been made all the same, or may still be on its way: look before you repeat it."
            if name == "REQUEST_TIMED_OUT"
            else "The change was not made."
        )
        found.severity = Severity.LOW if refusal.code in _ABSENT and key in _DELETES else self.severity
        if name == "REQUEST_TIMED_OUT" and (request := found.exchanges[-1].request_view) is not None:
            at = layout(request.plan.root).get("timeout_ms")
            offered = conn.about.range(key)
            if api == "DeleteTopics" and refusal.still and (offered is None or offered[1] < _SAYS_DISABLED):
                found.seen += f"; Metadata still has {refusal.still!r}"
                found.why = (
                    "the topic was not deleted. Brokers before Kafka 2.1 let DeleteTopics run into its timeout where topics cannot be deleted "
                    "(delete.topic.enable=false, the default before 1.0; newer ones answer TOPIC_DELETION_DISABLED). Less likely: a broker with a "
                    "replica of it is down, or the controller is slow."
                )
                found.remedy = "set delete.topic.enable=true on all brokers and restart them; if it is set, check that all replicas' brokers are up"
            if at is not None and request.values[at] <= 0:
                found.seen += f"; the request's timeout_ms is {request.values[at]}"
                found.why = (
                    "with timeout_ms 0 a broker does not wait for the change: it answers REQUEST_TIMED_OUT at once, though the change "
                    "is accepted and usually made. So the client reports a failure each time."
                )
                found.remedy = "give the request a timeout (Java: request.timeout.ms; sarama: Admin.Timeout): it is the client's; look before you repeat it"

    def _write_controller(self, refusal: _Refusal, seen: str) -> None:
        found, conn = refusal.finding, refusal.conn
        controller = self._controllers.get(conn.broker)
        here = conn.cluster.node_at(conn.broker)
        address = conn.cluster.nodes.get(controller, "") if controller is not None else ""
        found.severity = Severity.HIGH
        found.about["controller"] = controller
        if controller is None:
            found.seen = f"{seen}; the client did not ask for Metadata, which names the controller"
            why = "the client has not looked for the controller, and sends it to any broker."
            remedy = "let the client ask for Metadata (v1 or newer) first and send such requests to the controller that it names"
        elif controller < 0:
            found.seen = f"{seen}; Metadata names no controller"
            why = "the cluster has no active controller at that time: nothing that it decides can be changed."
            remedy = "check the controllers (KRaft: kafka-metadata-quorum.sh describe --status) or ZooKeeper, then try again"
        elif controller == here:
            found.seen = f"{seen}; Metadata names this very broker ({here}) as the controller"
            why = "the controller has just changed, or the broker's metadata is out of date: the broker contradicts itself."
            remedy = "try again in some seconds; if it stays, check the brokers' logs about the controller election"
        else:
            where = f"broker {controller}{f' ({address})' if address else ''}"
            found.seen = f"{seen}; Metadata names {where} as the controller"
            if not refusal.asked_since:
                found.seen += ", and the client has not asked for it anew"
            why = f"the controller is {where}, and this request went to another broker."
            remedy = f"send it to the controller, {where}: it is the client that must do this. Upgrade the client, or use its admin API"
        found.why = (
            f"{why} Only the controller makes such changes; brokers of Kafka 2.8 and newer with KRaft forward them (KIP-590), others "
            "answer NOT_CONTROLLER, and the client must ask for Metadata and send the request again, to the controller. The change "
            "was not made."
        )
        found.remedy = remedy
