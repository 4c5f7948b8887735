"""The last detector: error codes that no other finding names.

Every other detector reports certain errors once they are frequent enough to matter. This one reports all others, with the
texts of `explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from ....codec.message import is_error_code
from ....codec.plan import StructPlan
from ....connection.exchange import Exchange, State
from ....reference import explain
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, some, times, topic_name
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

_SUBJECTS = frozenset(
    ("name", "topic", "topic_name", "topic_id", "group_id", "group", "key", "coordinator_key", "resource_name", "user")
)
_PARTITIONS = frozenset(("partition", "partition_index", "partition_id", "index"))
_ASKED = ("group_id", "transactional_id", "key")
_WORD = re.compile(r"\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b|\bERROR\(-?\d+\)")
MOST_CASES = 4096
MOST_SUBJECTS = 1000
_NAMED = 50

Subject = tuple[Any, ...]
"""What an error is about: the names of its structs from the outside in, and the partition; () where only the request names it."""


class _Places(NamedTuple):
    """Where the fields of a struct stand: names, a partition's number, error codes, and structs with such inside."""

    names: tuple[int, ...]
    errors: tuple[int, ...]
    structs: tuple[tuple[int, bool, StructPlan], ...]


@cache
def _places(plan: StructPlan) -> _Places:
    single = [(i, f) for i, f in enumerate(plan.fields) if not f.array and f.struct is None]
    inner = [(i, f.array, f.struct) for i, f in enumerate(plan.fields) if f.struct is not None]
    return _Places(
        tuple(i for i, f in single if f.name in _SUBJECTS | _PARTITIONS or f.entity in ("topicName", "groupId")),
        tuple(i for i, f in single if is_error_code(f)),
        tuple((i, array, struct) for i, array, struct in inner if _has_errors(struct)),
    )


@cache
def _has_errors(plan: StructPlan) -> bool:
    places = _places(plan)
    return bool(places.errors or places.structs)


def _codes(plan: StructPlan, values: tuple[Any, ...], around: Subject) -> Iterator[tuple[Subject, int]]:
    """Every error code of a struct, 0 too, and what it is about."""
    places = _places(plan)
    names = [values[i] for i in places.names if values[i] not in (None, "")]
    if any(isinstance(name, str) for name in names):
        names = [name for name in names if not isinstance(name, bytes)]  # the id of something that is named as well
    subject = (*around, *names)
    for at in places.errors:
        yield subject, values[at]
    for at, array, struct in places.structs:
        value = values[at]
        for item in (value or ()) if array else (value,):
            if item is not None:
                yield from _codes(struct, item, subject)


def answers(exchange: Exchange) -> Iterator[tuple[Subject, int]]:
    """Every error code of a response, 0 too, and what it is about."""
    message, asked = exchange.response_view, exchange.request_view
    if message is None:
        if exchange.error:
            yield (), exchange.error  # of a truncated frame
        return
    around: Subject = ()
    if asked is not None:
        around = tuple(
            value
            for field, value in zip(asked.plan.root.fields, asked.values, strict=False)
            if field.name in _ASKED and value
        )
    yield from _codes(message.plan.root, message.values, around)


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
        why, remedy = meaning(exchange.api_key, code)
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
        if code in ORDINARY or is_retriable(code):
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
        found.seen = f"{about['api']} v{about['api_version']} of {conn.who} got {about['error']}{subjects} {times(found.count)}{span} from {conn.where}; {end}"
        return found


@cache
def is_retriable(code: int) -> bool:
    fact = facts.errors().get(code)
    return fact is not None and fact.retriable


@cache
def meaning(api_key: int, code: int) -> tuple[str, str]:
    """The meaning of an error in an API's response, and what to do."""
    if code not in facts.errors():
        return (
            "no known Kafka release has this error code: the broker is newer, or it is not Kafka.",
            "look the code up in the documentation of the broker's software",
        )
    text = explain.error(code).of(facts.api_name(api_key))
    causes = [cause.text for cause in text.causes]
    why = text.what + (f" Most frequent causes: {'; '.join(causes[:2])}." if causes else "")
    return why, "; ".join(text.do[:2]) or f"barnabas explain {text.name}"


def _names(finding: Finding) -> Iterator[tuple[str, str]]:
    """(API, error) pairs that a finding explains."""
    about = finding.about
    apis = {about.get("api"), *(about.get("apis") or ()), *(exchange.api for exchange in finding.exchanges)}
    errors = set(_WORD.findall(f"{finding.seen} {about}"))
    return ((api, error) for api in apis if isinstance(api, str) for error in errors)


def subject_text(exchange: Exchange, subject: Subject) -> str:
    """``orders-3``, ``billing``: a subject as text: the innermost name and the partition."""
    names: list[str] = []
    number = ""
    for part in subject:
        if isinstance(part, bytes):
            if any(part):
                names.append(topic_name(exchange, part))
        elif isinstance(part, str):
            names.append(part)
        else:
            number = f"-{part}"
    return f"{names[-1]}{number}" if names else ""
