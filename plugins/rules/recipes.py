"""Rules for common failures of clusters, ready to be used or changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .rules import Rule


@dataclass(frozen=True, slots=True)
class Recipe:
    """Rules, with what they imitate and how a sound client reacts. In the matches of `rules`, ``{topic}``, ``{group}`` and
    ``{client}`` stand for a condition on the user's name; without one it is left out."""

    name: str
    about: str
    expect: str
    rules: tuple[dict[str, Any], ...]

    def settings(self) -> list[str]:
        """The names that a user may give: some of topic, group, client."""
        text = str(self.rules)
        return [name for name in CONDITIONS if f"{{{name}}}" in text]

    def to_rules(self, **named: str) -> list[Rule]:
        """The rules, for one topic, group or client (``topic="orders"``). Raises InvalidInput."""
        found = []
        for rule in self.rules:
            match = str(rule["match"])
            for name, condition in CONDITIONS.items():
                value = named.get(name)
                condition_text = f" and {condition} == {quoted(value)}" if value else ""
                match = match.replace(f" {{{name}}}", condition_text)
            found.append(Rule.from_dict(rule | {"match": match}))
        return found


CONDITIONS = {"topic": "topic", "group": "group", "client": "client"}


def quoted(text: str) -> str:
    """A text as filters write it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _rule(name: str, match: str, do: Any, **when: Any) -> dict[str, Any]:
    return {"name": name, "match": match, "do": do} | ({"when": when} if when else {})


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        "leader-election",
        "the leader of a topic's partitions moves: its old broker answers NOT_LEADER_OR_FOLLOWER, and Metadata names no "
        "leader for a moment",
        "producers and consumers request Metadata and continue; nothing is lost, and with idempotence nothing is duplicated",
        (
            _rule("old leader, produce", "api == Produce {topic}", {"error": "NOT_LEADER_OR_FOLLOWER"}, times=3),
            _rule("old leader, fetch", "api == Fetch {topic}", {"error": "NOT_LEADER_OR_FOLLOWER"}, times=3),
            _rule("no leader yet", "api == Metadata {topic}", {"leader": "none"}, after=1, times=2),
        ),
    ),
    Recipe(
        "stale-metadata",
        "Metadata names a broker that is not the leader, as when a client's metadata is stale",
        "the client gets NOT_LEADER_OR_FOLLOWER from that broker and refreshes its metadata",
        (_rule("stale leader", "api == Metadata {topic}", {"leader": "moved"}, times=2),),
    ),
    Recipe(
        "coordinator-loading",
        "a group's coordinator has just been elected and is reading its log",
        "members wait and retry; no rebalance",
        (
            _rule(
                "coordinator loads",
                "api in {JoinGroup, SyncGroup, Heartbeat, OffsetCommit, OffsetFetch, ConsumerGroupHeartbeat} {group}",
                {"error": "COORDINATOR_LOAD_IN_PROGRESS"},
                times=5,
            ),
        ),
    ),
    Recipe(
        "coordinator-moves",
        "the group coordinator has moved to another broker",
        "members send FindCoordinator and continue there",
        (
            _rule(
                "not the coordinator",
                "api in {Heartbeat, OffsetCommit, ConsumerGroupHeartbeat} {group}",
                {"error": "NOT_COORDINATOR"},
                times=3,
            ),
            _rule("no coordinator yet", "api == FindCoordinator", {"coordinator": "none"}, times=2),
        ),
    ),
    Recipe(
        "rebalance-storm",
        "every tenth heartbeat of a group starts a rebalance",
        "members rejoin; processing pauses each time, which a cooperative assignor or KIP-848 makes shorter",
        (_rule("rebalance", "api == Heartbeat {group}", {"error": "REBALANCE_IN_PROGRESS"}, every=10),),
    ),
    Recipe(
        "member-fenced",
        "the coordinator no longer knows a member (a pause longer than session.timeout.ms)",
        "the member rejoins with a new id; what it had not committed is read again",
        (_rule("member unknown", "api == Heartbeat {group}", {"error": "UNKNOWN_MEMBER_ID"}, after=2, times=1),),
    ),
    Recipe(
        "quota",
        "a broker throttles a client by its quota, one second each time",
        "the client slows down and loses nothing; its metrics show the throttling",
        (_rule("throttled", "api in {Produce, Fetch} {client}", {"throttle": "1s"}),),
    ),
    Recipe(
        "rolling-restart",
        "brokers stop one by one: connections end in the middle of requests",
        "clients reconnect (or connect elsewhere) and continue; with idempotence nothing is duplicated",
        (
            _rule(
                "stopping", "api in {Produce, Fetch, Heartbeat} {client}", {"disconnect": "before-response"}, every=50
            ),
            _rule("restarted, loading", "api == Metadata", {"leader": "none"}, every=5, times=5),
        ),
    ),
    Recipe(
        "zombie-producer",
        "another producer has taken the transactional id",
        "the producer ends with a fatal error, and its transaction is aborted",
        (
            _rule(
                "fenced",
                "api in {AddPartitionsToTxn, EndTxn, TxnOffsetCommit} {client}",
                {"error": "PRODUCER_FENCED"},
                after=2,
                times=1,
            ),
        ),
    ),
    Recipe(
        "producer-id-lost",
        "a broker no longer knows the producer id (its records were deleted by retention)",
        "an idempotent producer takes a new id or epoch (KIP-360) and continues",
        (_rule("unknown producer", "api == Produce {topic}", {"error": "UNKNOWN_PRODUCER_ID"}, after=3, times=1),),
    ),
    Recipe(
        "slow-broker",
        "a broker is slow, and sometimes very slow",
        "latencies grow; nothing fails as long as request.timeout.ms is not reached",
        (
            _rule(
                "a long pause", "api in {Produce, Fetch, Metadata} {client}", {"delay": "3s"}, probability=0.02, seed=1
            ),
            _rule("slow", "api in {Produce, Fetch, Metadata} {client}", {"delay": "80ms", "jitter": "40ms"}),
        ),
    ),
    Recipe(
        "silent-broker",
        "a broker accepts requests but no longer answers, as behind a firewall that drops packets",
        "the client gives up after request.timeout.ms and connects again",
        (_rule("silence", "api in {Produce, Fetch} {client}", {"blackhole": "forever"}, after=20, times=1),),
    ),
    Recipe(
        "lost-acknowledgement",
        "the broker has written a batch, and the producer gets no answer",
        "the producer sends it again; with idempotence it is written once, otherwise twice",
        (_rule("lost", "api == Produce {topic}", {"disconnect": "before-response"}, after=5, times=1),),
    ),
    Recipe(
        "poison-batch",
        "a batch on the way to the consumer is damaged",
        "the consumer reports a wrong CRC, and reads again or stops at that offset",
        (
            _rule(
                "damaged", "api == Fetch and resp.throttle_time_ms >= 0 {topic}", {"corrupt": "crc"}, after=1, times=1
            ),
        ),
    ),
    Recipe(
        "offset-out-of-range",
        "the offset that a consumer asks for has been deleted",
        "the consumer resets its position according to auto.offset.reset",
        (_rule("deleted", "api == Fetch {topic}", {"error": "OFFSET_OUT_OF_RANGE"}, after=1, times=1),),
    ),
    Recipe(
        "session-lost",
        "the broker has forgotten the fetch session (its cache is full, KIP-227)",
        "the consumer starts a new one with a full Fetch; nothing is lost",
        (
            _rule(
                "session gone",
                "api == Fetch {client}",
                {"error": "FETCH_SESSION_ID_NOT_FOUND"},
                after=3,
                every=10,
                times=3,
            ),
        ),
    ),
    Recipe(
        "leader-epoch-fenced",
        "the consumer's leader epoch is older than the broker's (KIP-320)",
        "the consumer requests Metadata, checks its position with OffsetForLeaderEpoch, and continues",
        (_rule("epoch fenced", "api == Fetch {topic}", {"error": "FENCED_LEADER_EPOCH"}, after=1, times=1),),
    ),
    Recipe(
        "authorization-denied",
        "an ACL is missing",
        "clients stop with an authorization error; most do not retry",
        (
            _rule("no write", "api == Produce {topic}", {"error": "TOPIC_AUTHORIZATION_FAILED"}),
            _rule("no read", "api == Fetch {topic}", {"error": "TOPIC_AUTHORIZATION_FAILED"}),
            _rule(
                "no group",
                "api in {JoinGroup, ConsumerGroupHeartbeat} {group}",
                {"error": "GROUP_AUTHORIZATION_FAILED"},
            ),
        ),
    ),
    Recipe(
        "not-enough-replicas",
        "too few replicas are in sync for acks=all",
        "producers retry until delivery.timeout.ms",
        (_rule("too few in sync", "api == Produce {topic}", {"error": "NOT_ENOUGH_REPLICAS"}, times=10),),
    ),
    Recipe(
        "version-rejected",
        "the broker does not serve the version of a request",
        "a client that sent ApiVersions never gets this error; others stop, or fall back",
        (_rule("version", "api in {Produce, Fetch, Metadata} {client}", {"error": "UNSUPPORTED_VERSION"}, times=1),),
    ),
    Recipe(
        "message-too-large",
        "a batch is larger than the broker accepts",
        "producers split the batch or report an error for its records",
        (_rule("too large", "api == Produce {topic}", {"error": "MESSAGE_TOO_LARGE"}, times=1),),
    ),
    Recipe(
        "slow-network",
        "a connection of 100 kB/s to the client",
        "consumers fetch slowly and stay in their group",
        (_rule("narrow", "api == Fetch {client}", {"bandwidth": "100kB"}, times=1),),
    ),
)


def find(name: str) -> Recipe | None:
    return next((recipe for recipe in RECIPES if recipe.name == name), None)
