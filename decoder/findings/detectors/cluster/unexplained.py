"""The last detector: error codes that no other finding names.

Every other detector reports certain errors once they are frequent enough to matter. This one reports all others, with the
texts of `explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....reference import explain
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, some, times
from ...engine.subjects import Subject, answers, subject_text
from ...engine.traffic import ClientConnection

ORDINARY = frozenset(
    facts.error_code(name)
    for name in (
        # how clients learn their member id or generation, or that a version or subscription does not exist
        "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH",
        "STALE_MEMBER_EPOCH", "UNSUPPORTED_VERSION", "UNKNOWN_SUBSCRIPTION_ID", "OFFSET_OUT_OF_RANGE",
        "OFFSET_MOVED_TO_TIERED_STORAGE", "DUPLICATE_SEQUENCE_NUMBER", "REBOOTSTRAP_REQUIRED",
        # how tools and applications check whether something exists or is already done
        "TOPIC_ALREADY_EXISTS", "GROUP_ID_NOT_FOUND", "RESOURCE_NOT_FOUND", "TRANSACTIONAL_ID_NOT_FOUND",
        "NO_REASSIGNMENT_IN_PROGRESS", "REASSIGNMENT_IN_PROGRESS", "NON_EMPTY_GROUP", "OPERATION_NOT_ATTEMPTED",
        # what reassignments, restarts and elections cause between brokers
        "STALE_BROKER_EPOCH", "STALE_CONTROLLER_EPOCH", "BROKER_ID_NOT_REGISTERED", "SNAPSHOT_NOT_FOUND",
        "POSITION_OUT_OF_RANGE", "NEW_LEADER_ELECTED", "INELIGIBLE_REPLICA", "FENCED_STATE_EPOCH",
    )
)  # fmt: skip
"""Normal errors besides those that Kafka calls retriable: reported only if they persist."""

_WORD = re.compile(r"\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b|\bERROR\(-?\d+\)")
MOST_CASES = 4096
MOST_SUBJECTS = 1000
_NAMED = 50

@dataclass(slots=True)
class _Case:
    """One error of one API that one client meets. `row`: answers with it since `open` was empty, `since_ns`: when the first of them
    came, `connections`: on which. `open`: what it is about, until that is answered without this error."""

    conn: ClientConnection
    finding: Finding
    row: int = 0
    since_ns: int = 0
    connections: set[int] = field(default_factory=set)
    open: dict[Subject, None] = field(default_factory=dict)
    persisted: bool = False


class UnexplainedError(Detector):
    """An error code that no other detector has named.

    Retriable and ordinary errors are reported only if they persist: many responses in a row, on few connections or over a long
    time.
    """

    id = "unexplained-error"
    severity = Severity.MEDIUM
    title = "an error code that no other finding covers: what it means, and whether it went away"

    IN_A_ROW = 20
    """Responses. A restart, an election or a rebalance costs a client a few."""
    EACH = 3
    """Responses per connection: many clients may share a name, and each may get the error once."""
    LONG_NS = 60 * SECOND

    def setup(self) -> None:
        self._cases: BoundedDict[tuple[object, int, int], _Case] = BoundedDict(MOST_CASES)
        self._open: BoundedDict[tuple[object, int], dict[int, _Case]] = BoundedDict(MOST_CASES)
        self._named: frozenset[tuple[str, str]] = frozenset()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        if not self._open and not exchange.error:
            return
        at = conn.identity, exchange.api_key
        open_cases = self._open.get(at)
        if open_cases is None and not exchange.error:
            return
        answered: dict[Subject, set[int]] = {}
        for subject, code in answers(exchange):
            answered.setdefault(subject, set()).add(code)
        codes: dict[int, list[Subject]] = {}
        for subject, found in answered.items():
            for code in found - {0}:
                codes.setdefault(code, []).append(subject)
        if open_cases is not None:
            self._close(at, open_cases, answered)
        for code, subjects in codes.items():
            self._count(conn, exchange, code, subjects)

    def _close(self, at: tuple[object, int], cases: dict[int, _Case], answered: dict[Subject, set[int]]) -> None:
        for code, case in list(cases.items()):
            for subject in [s for s in case.open if s in answered and code not in answered[s]]:
                del case.open[subject]
            if not case.open:
                case.row = 0
                case.connections.clear()
                del cases[code]
        if not cases:
            self._open.pop(at, None)

    def _count(self, conn: ClientConnection, exchange: Exchange, code: int, subjects: list[Subject]) -> None:
        now = exchange.response_time_ns or 0
        why, remedy = explain.error_meaning(exchange.api, code)
        finding = self.report(
            (conn.identity, exchange.api_key, code), exchange, why, remedy,
            error=facts.error_name(code), about=[],
        )  # fmt: skip
        case = self._cases.get((conn.identity, exchange.api_key, code))
        if case is None or case.finding is not finding:
            case = self._cases[conn.identity, exchange.api_key, code] = _Case(conn, finding)
        case.conn = conn
        if not case.row:
            case.since_ns = now
        case.row += 1
        if len(case.connections) < MOST_SUBJECTS:
            case.connections.add(conn.number)
        for subject in subjects:
            if len(case.open) < MOST_SUBJECTS:
                case.open[subject] = None
        names = finding.about["about"]
        for text in (subject_text(exchange, subject) for subject in subjects):
            if text and len(names) < _NAMED and text not in names:
                names.append(text)
        if code in ORDINARY or facts.is_retriable(code):
            long = now - case.since_ns >= self.LONG_NS
            case.persisted |= case.row >= self.IN_A_ROW and (long or case.row >= self.EACH * len(case.connections))
        else:
            case.persisted = True
        self._open.of((conn.identity, exchange.api_key), dict)[code] = case

    def after_others(self, found: list[Finding]) -> None:
        self._named = frozenset(pair for finding in found for pair in _names(finding))

    def findings(self) -> Iterable[Finding]:
        cases = [case for case in self._cases.values() if case.persisted]
        return [self._written(c) for c in cases if (c.finding.about["api"], c.finding.about["error"]) not in self._named]

    def _written(self, case: _Case) -> Finding:
        found, conn = case.finding, case.conn
        about = found.about
        gone = not case.open
        about["gone"] = gone
        found.severity = Severity.LOW if gone else self.severity
        first, last = found.first_ns or 0, found.last_ns or 0
        span = f" within {duration(last - first)}" if last > first else ""
        subjects = f" for {some(about['about'])}" if about["about"] else ""
        end = "it went away: later answers do not have it" if gone else "no later answer without it"
        if not gone and len(case.connections) == 1 < len(conn.cluster.nodes) and _any_broker(found.exchanges[0]):
            end += "; any broker answers this, and the client asks the same one each time, though Metadata lists others"
        found.seen = f"{about['api']} v{about['api_version']} of {conn.who} got {about['error']}{subjects} {times(found.count)}{span} from {conn.where}; {end}"
        return found


def _any_broker(exchange: Exchange) -> bool:
    """Whether every broker answers such a request: InitProducerId of an idempotent producer without transactions."""
    asked = exchange.request_view if exchange.api == "InitProducerId" else None
    return asked is not None and asked["transactional_id"] is None


def _names(finding: Finding) -> Iterator[tuple[str, str]]:
    """(API, error) pairs that a finding explains."""
    about = finding.about
    apis = {about.get("api"), *(about.get("apis") or ()), *(exchange.api for exchange in finding.exchanges)}
    errors = set(_WORD.findall(f"{finding.seen} {about}"))
    return ((api, error) for api in apis if isinstance(api, str) for error in errors)
