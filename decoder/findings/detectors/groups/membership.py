"""Members that fall silent, stop polling, or disappear without LeaveGroup."""

from __future__ import annotations

from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration
from ...engine.traffic import ClientIdentity
from ...models.group import Group, Member, MemberState, Step
from ...models.group_calls import JOIN_GROUP, JOINING_APIS, Call
from ...models.groups import GroupDetector

PENDING = 2000
"""Most members kept in a pending state."""
BROKER_SESSION_MS = 45_000
"""The default of group.consumer.session.timeout.ms: the newer protocols do not transmit it."""


def session_ms(member: Member) -> int:
    """The session timeout of a member, -1 if unknown."""
    return member.session_timeout_ms if member.protocol == "classic" else BROKER_SESSION_MS


class MissedHeartbeats(GroupDetector):
    id = "missed-heartbeats"
    severity = Severity.LOW
    title = "a member is silent for most of its session timeout"
    explains = ("unknown-member", "stale-commit", "commit-failed", "rebalance-storm")

    MOST = 2 / 3
    """Heartbeats are due at a third of the session timeout at most: two in a row were missed."""

    def asked(self, call: Call) -> None:
        # Between JoinGroup and SyncGroup a silent member is one that assigns slowly: `SlowRebalance`.
        if call.member is not None and call.silence_ns and call.api != "SyncGroup":
            self._judge(call.group, call.member, call.silence_ns, call)

    def finish(self, now_ns: int) -> None:
        self._for_now = {}
        for group in self.groups.all():
            for member in group.live:
                end = member.closed_ns or now_ns
                if member.closed_ns and sum(each.conn.identity == member.conn.identity for each in group.live) == 1:
                    end = max(end, self.groups.polled_ns(member) or 0)  # its client reads on, as no other member
                silent = end - member.seen_ns
                quiet = not member.waits and not member.has_gap
                if quiet and silent > session_ms(member) * 1e6 > 0:
                    key = group, member.conn.identity
                    if key not in self._found:
                        self._for_now[key] = self._make(group, member, silent, None, "was silent for")
                        self._for_now[key].add_evidence(None, member.seen_ns)

    def _judge(self, group: Group, member: Member, silent: int, call: Call) -> None:
        limit = session_ms(member) * 1_000_000
        if limit <= 0 or silent < limit * self.MOST:
            return
        now = self._make(group, member, silent, call, "was silent for")
        finding = self.count((group, member.conn.identity), now, call.exchange)
        if silent // 1_000_000 > finding.about["silent_ms"]:
            finding.seen, finding.about, finding.severity, finding.explains = now.seen, now.about, now.severity, now.explains

    def _make(self, group: Group, member: Member, silent: int, call: Call | None, what: str) -> Finding:
        session = session_ms(member)
        lost = silent > session * 1e6
        note = "" if member.protocol == "classic" else " (the broker's default)"
        who = member.conn.identity
        fetched = self.groups.polled_ns(member) or 0
        # Neither was its process paused nor its network down. Clients with one id share what is known of their fetches.
        alone = sum(each.conn.identity == who for each in group.live) <= 1
        begin = call.asked_ns - silent if call else member.seen_ns
        meanwhile = fetched - max(self.groups.fetching_since.get(who, fetched), begin)
        used, sent = (0 if call else member.conn.last_ns - begin), "fetched"
        if used > meanwhile:
            meanwhile, sent = used, "sent other requests"
        awake = lost and alone and meanwhile > session * 1e6
        if awake:
            what = "sent no heartbeat for"
        found = self.finding(
            f"{member.who} of group {group.id!r} {what} {duration(silent)}; its session timeout is "
            f"{duration(session * 1e6)}{note}"
            + (", so the coordinator considered it dead" if lost else ": after that, the coordinator removes it"),
            "a member that sends no heartbeat for session.timeout.ms is removed from its group: the group rebalances, "
            "and other members read its records again. Java, librdkafka and the Python clients send heartbeats "
            "independently of the application, so a gap means that the process was paused (garbage collection, no "
            "CPU, a blocked event loop, a suspended machine) or the network was interrupted; KafkaJS sends them "
            "between two messages.",
            "look for pauses of the client at that time (GC log, CPU limits, swapping); raise session.timeout.ms "
            "(Java, librdkafka: 45000; kafka-python, aiokafka: session_timeout_ms) and keep heartbeat.interval.ms at "
            "a third of it or less; with KafkaJS, call heartbeat() during long work",
            Severity.MEDIUM if lost else Severity.LOW,
            group=group.id,
            member=member.member_id,
            silent_ms=silent // 1_000_000,
            session_timeout_ms=session,
            **member.conn.facts_of(call.exchange if call else None),
        )
        found.explains = self.explains if lost else ()
        if awake:
            found.seen += f"; it {sent} meanwhile, for {duration(meanwhile)}"
            found.why = (
                "a member that sends no heartbeat for session.timeout.ms is removed from its group, whether it fetches or not: the group "
                f"rebalances, and other members read its records again. The process was not paused, as it {sent} "
                "meanwhile. "
                "Likeliest first: the part of the client that sends heartbeats is blocked or has ended (a deadlock or bug of the library); the "
                "application sends them too seldom (KafkaJS between two messages, others in poll); the network to the coordinator alone was "
                "interrupted."
            )
            found.remedy = (
                f"client: upgrade its library {f'({member.conn.software})' if member.conn.software else ''}".rstrip() + ", and look at its threads "
                "when it happens; restart it. A longer session timeout only helps if heartbeats come late, not if they have stopped"
            )
        return found


class _Away:
    """A member that left while it might only have stopped polling. `limit_ms`: max.poll.interval.ms, -1 if unknown;
    `since_ns`: when it was last seen to be polled; `reason`: of its LeaveGroup."""

    def __init__(self, member: Member, call: Call, limit_ms: int, since_ns: int, reason: str = "") -> None:
        self.member, self.call, self.limit_ms, self.since_ns = member, call, limit_ms, since_ns
        self.topics, self.reason = member.topics, reason


class PollIntervalExceeded(GroupDetector):
    """A client leaves its group because the application does not poll.

    Java and kafka-python say so in the reason (KIP-800). librdkafka and aiokafka leave without one, stay connected,
    and join again with the same subscription in the next poll.
    """

    id = "poll-interval-exceeded"
    severity = Severity.MEDIUM
    title = "a consumer leaves its group because it was not polled for max.poll.interval.ms"
    explains = ("unknown-member", "stale-commit", "commit-failed", "rebalance-storm", "stalled-member")
    apis = JOINING_APIS | {facts.api_key("LeaveGroup")}

    NEARLY = 0.9
    """Of max.poll.interval.ms, that must have passed since the member was last seen to be polled."""
    UNPOLLED_NS = 2 * SECOND
    """Time without a Fetch, for clients that fetch when polled: a Fetch waits 500 ms, and the next one follows."""
    STUCK_NS = 10 * SECOND
    """A client that closes ends its connection within a second of its LeaveGroup."""
    OFTEN = 3

    def setup(self) -> None:
        self._away: BoundedDict[tuple[Group, ClientIdentity], _Away] = BoundedDict(PENDING)

    def asked(self, call: Call) -> None:
        group = call.group
        if call.leaves:
            for member_id, _, reason in call.leaving():
                member = group.members.get(member_id)
                if (
                    member is not None
                    and member.gone_ns == call.asked_ns
                    and member.conn.identity == call.conn.identity
                ):
                    self._left(call, member, reason or "")
        elif call.joins:
            away = self._away.pop((group, call.conn.identity), None)
            if away is not None and away.call.conn is call.conn and away.topics == call.topics():
                self._report(away, call.asked_ns)

    def _left(self, call: Call, member: Member, reason: str) -> None:
        now, limit = call.asked_ns, member.rebalance_timeout_ms
        polled = max(member.synced_ns, member.first_ns)
        fetched = self.groups.polled_ns(member) or 0
        polls_seen = bool(fetched) and "rdkafka" not in member.conn.software  # librdkafka fetches ahead, polled or not
        if polls_seen:
            polled = max(polled, fetched)
        if "poll" in reason.lower() and ("timeout" in reason.lower() or "interval" in reason.lower()):
            away = self._away[call.group, member.conn.identity] = _Away(member, call, limit, polled, reason)
            self._report(away, now)
            return
        unpolled = now - polled
        if limit <= 0 or unpolled < limit * self.NEARLY * 1e6:
            limit = -1  # aiokafka sends another timeout in JoinGroup
            if not polls_seen or unpolled < self.UNPOLLED_NS or not member.assignment:
                return
        self._away[call.group, member.conn.identity] = _Away(member, call, limit, polled)

    def ended(self, group: Group, member: Member) -> None:
        away = self._away.get((group, member.conn.identity))
        if away is not None and away.member is member:
            del self._away[group, member.conn.identity]

    def finish(self, now_ns: int) -> None:
        self._for_now = {}
        for (group, identity), away in list(self._away.items()):
            gone = now_ns - away.call.asked_ns
            if gone >= self.STUCK_NS and away.limit_ms > 0 and (group, identity) not in self._found:
                finding = self._make(away, away.call.asked_ns)
                finding.seen = (
                    f"{away.member.who} left group {group.id!r} and has stayed connected for {duration(gone)} since: "
                    f"it was not polled for max.poll.interval.ms ({duration(away.limit_ms * 1e6)}), or it unsubscribed"
                )
                finding.severity = Severity.LOW
                finding.add_evidence(away.call.exchange)
                self._for_now[group, identity] = finding

    def _report(self, away: _Away, now_ns: int) -> None:
        key = away.call.group, away.member.conn.identity
        now = self._make(away, now_ns)
        known = self._found.get(key)
        back = known is not None and bool(away.reason) and now_ns > away.call.asked_ns  # reported when it left
        finding = known if known is not None and back else self.count(key, now, away.call.exchange)
        if now.about["pause_ms"] > finding.about["pause_ms"]:
            finding.seen, finding.about = now.seen, now.about
        if finding.count >= self.OFTEN:
            finding.severity = Severity.HIGH

    def _make(self, away: _Away, now_ns: int) -> Finding:
        member, call, reason = away.member, away.call, away.reason
        limit = away.limit_ms
        back = now_ns - call.asked_ns
        pause = max(max(limit, 0) * 1_000_000 + back, now_ns - away.since_ns if limit < 0 else 0)
        stated = f", with the reason {reason!r}" if reason else ""
        again = f" and joined again {duration(back)} later" if back else ""
        known_limit = f", {duration(limit * 1e6)}" if limit > 0 else " (not given in its JoinGroup)"
        return self.finding(
            f"{member.who} left group {call.group.id!r}{stated} but stayed connected{again}: its application did not "
            f"poll for max.poll.interval.ms{known_limit}; the pause was at least {duration(pause)}",
            "a consumer that is not polled for max.poll.interval.ms (KIP-62; in JoinGroup it is the rebalance "
            "timeout) leaves its group: the group rebalances, commits for the records it was processing are refused "
            "with UNKNOWN_MEMBER_ID, and other members read the same records again.",
            "do less per poll: Java max.poll.records, kafka-python and aiokafka max_poll_records, librdkafka "
            "consume(num_messages=...); or process records in another thread and keep polling with pause(); or raise "
            "max.poll.interval.ms (kafka-python, aiokafka: max_poll_interval_ms) above the longest processing time",
            group=call.group.id,
            member=member.member_id,
            max_poll_interval_ms=limit if limit > 0 else None,
            pause_ms=pause // 1_000_000,
            **member.conn.facts_of(call.exchange),
        )


class ClosedWithoutLeaving(GroupDetector):
    id = "closed-without-leaving"
    usual_apis = frozenset({JOIN_GROUP})
    severity = Severity.LOW
    title = "a member's connection ends without LeaveGroup, and its group must wait for the session timeout"

    GONE_NS = 5 * SECOND
    """Clients connect again within a second (reconnect.backoff.max.ms), and go on with the same member id."""

    def setup(self) -> None:
        self._lost: BoundedDict[Member, Group] = BoundedDict(PENDING)

    def ended(self, group: Group, member: Member) -> None:
        conn = member.conn
        # A static member does not send LeaveGroup by design (KIP-345), nor does a Kafka Streams thread; brokers that end a
        # connection stop, or find it idle; and "" is where the capture ends.
        excused = member.instance_id or member.streams or member.has_gap
        if excused or not member.live or member.state is MemberState.PENDING:
            return
        last = next((m for m in reversed(member.timeline) if m.step is not Step.CLOSED), None)
        if conn.how in ("fin", "rst") and conn.by != "broker" and not (last and last.step is Step.ERROR):
            self._lost[member] = group

    def asked(self, call: Call) -> None:
        if call.member is not None:
            self._lost.pop(call.member, None)

    def answered(self, call: Call) -> None:
        group = call.group
        if not self._lost or call.error or not call.joins or call.protocol != "classic":
            return
        last = group.last_formed()
        if last is None:
            return
        for member, of in list(self._lost.items()):
            if (
                of is not group
                or last.formed_ns <= member.closed_ns
                or (member.live and member.member_id in last.joins)
            ):
                continue
            del self._lost[member]
            if member.state is MemberState.LEFT:
                continue
            cost = last.formed_ns - member.closed_ns
            now = self._make(group, member, cost)
            finding = self.count((group, member.conn.identity), now, None, member.closed_ns)
            if cost // 1_000_000 > finding.about["cost_ms"]:
                finding.seen = now.seen
                finding.about["cost_ms"] = cost // 1_000_000

    def finish(self, now_ns: int) -> None:
        self._for_now = {}
        for member, group in list(self._lost.items()):
            conn = member.conn
            key = group, conn.identity
            elsewhere = any(other.identity == conn.identity for other in self.traffic.connections.values())
            if now_ns - member.closed_ns < self.GONE_NS or elsewhere or not member.live or key in self._found:
                continue
            self._for_now[key] = self._make(group, member, None)
            self._for_now[key].add_evidence(None, member.closed_ns)

    def _make(self, group: Group, member: Member, cost: int | None) -> Finding:
        session = session_ms(member)
        ended = "was reset" if member.conn.how == "rst" else "was closed"
        parts = sum(len(p) for p in (member.assignment or {}).values())
        held = f"; meanwhile its partitions were not read ({parts} partition{'s' * (parts > 1)})" if parts else ""
        return self.finding(
            f"the connection of {member.who} of group {group.id!r} {ended} without LeaveGroup, and it did not come back: "
            + (
                f"the next generation was formed {duration(cost)} later{held}"
                if cost is not None
                else f"its partitions stay assigned to it until its session ends ({duration(session * 1e6)})"
            ),
            "the coordinator does not know that a member is gone until it has been silent for session.timeout.ms; "
            "until then, its partitions are not read. A consumer that is closed properly sends LeaveGroup first.",
            "close consumers when the process ends (close() in a finally block, a handler for SIGTERM, enough time "
            "before SIGKILL: terminationGracePeriodSeconds); for processes that crash, a lower session.timeout.ms "
            "shortens the wait",
            Severity.LOW if cost is None else Severity.MEDIUM,
            group=group.id,
            member=member.member_id,
            session_timeout_ms=session,
            cost_ms=None if cost is None else cost // 1_000_000,
            **member.conn.facts,
        )
