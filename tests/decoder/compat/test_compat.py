"""Clients, the versions they used, and their verdicts: every case that a report distinguishes."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange, State
from barnabas.decoder.compat import ClientTracker, IndexedRequest, Limit, Negotiation, Verdict, brokers, matrix, report
from barnabas.decoder.records import Record, encode_batch, encode_messages
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts

UNSUPPORTED = facts.error_code("UNSUPPORTED_VERSION")


class Script:
    """Feeds a `ClientTracker` with requests."""

    def __init__(self) -> None:
        self.tracker = ClientTracker()
        self.tracker.capture(own=True)
        self.at = 0
        self.connection = 0

    def connect(self, client_id: str | None = "app", client: str = "10.0.0.5:50000", broker: str = "kafka:9092"):
        self.connection += 1
        self.ends = client, broker, client_id
        self.correlation_id = 0
        return self

    def request(self, api: str, version: int, count: int = 1, error: int = 0, state: State = State.PAIRED) -> IndexedRequest:
        client, broker, client_id = self.ends
        for _ in range(count):
            self.at += 1_000_000_000
            self.correlation_id += 1
            seen = IndexedRequest(
                self.connection, client, broker, client_id, facts.api_key(api), version, self.at, error, state,
                self.correlation_id,
            )  # fmt: skip
            self.tracker.request(seen)
        return seen

    def asks(self, release: str | None, name: str = "", version: str = "", api_version: int = 3):
        """ApiVersions, answered with the table of a release, or not at all."""
        seen = self.request("ApiVersions", api_version, state=State.PAIRED if release else State.NO_RESPONSE)
        fields = {"client_software_name": name, "client_software_version": version} if api_version >= 3 else {}
        asked = decoder.encode_request(18, api_version, fields, correlation_id=1, client_id="app")
        answer = None
        if release:
            offered = releases.release(release).offered.items()
            keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in offered]
            answer = decoder.encode_response(18, api_version, {"api_keys": keys}, correlation_id=1)
        exchange = Exchange(api_key=18, api_version=api_version, request=asked, response=answer, state=seen.state)
        self.tracker.api_versions(seen, exchange)
        return self

    def produces(self, version: int, records: bytes):
        seen = self.request("Produce", version)
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
        frame = decoder.encode_request(0, version, {"acks": 1, "topic_data": topics}, correlation_id=2, client_id="app")
        self.tracker.produced(seen, Exchange(api_key=0, api_version=version, request=frame))
        return self

    def verdict(self, against: str):
        (found,) = report(self.tracker.clients(), against).clients
        return found


@pytest.fixture
def script() -> Script:
    return Script()


# --- clients -----------------------------------------------------------------------------------------------


def test_connections_of_one_client_count_together(script):
    for port in (1, 2):
        script.connect(client=f"10.0.0.5:{port}").asks("3.9", "librdkafka", "2.3.0").request("Metadata", 12, 3)
    script.connect(client="10.0.0.6:1").asks("3.9", "librdkafka", "2.3.0").request("Fetch", 11)
    script.connect(client_id="other").asks("3.9", "librdkafka", "2.3.0").request("Fetch", 11)
    first, second, other = sorted(script.tracker.clients(), key=lambda c: (c.client_id, c.host))
    assert (first.host, first.client_id, first.software_label, first.connections) == ("10.0.0.5", "app", "librdkafka 2.3.0", 2)
    assert first.uses[3, 12].count == 6 and first.requests == 8
    assert (first.first_ns, first.last_ns) == (1_000_000_000, 8_000_000_000)
    assert second.host == "10.0.0.6" and other.client_id == "other"


def test_clients_that_ask_and_clients_that_do_not(script):
    script.connect("asks").asks("3.9").request("Fetch", 11)
    script.connect("in vain").asks(None)
    script.connect("never").request("Fetch", 2)
    assert {c.client_id: c.negotiation for c in script.tracker.clients()} == {
        "asks": Negotiation.ASKS, "in vain": Negotiation.UNANSWERED, "never": Negotiation.NEVER,
    }  # fmt: skip


def test_connections_older_than_the_capture_may_have_asked(script):
    script.tracker.capture(own=False)
    script.connect("old").correlation_id = 900
    script.request("Fetch", 11)
    script.connect("new").request("Fetch", 11)
    found = {c.client_id: c.negotiation for c in script.tracker.clients()}
    assert found == {"old": Negotiation.UNKNOWN, "new": Negotiation.NEVER}
    # it joins the only client that it can belong to
    script.connect("old").asks("3.9", "librdkafka", "2.3.0").request("Fetch", 11)
    (old,) = [c for c in script.tracker.clients() if c.client_id == "old"]
    assert old.software_label == "librdkafka 2.3.0" and old.connections == 2


def test_connections_to_old_brokers_join_the_named_client(script):
    script.connect().asks("0.10.2", "kafka-python", "3.0.12").request("Metadata", 2)
    script.connect().asks("0.10.2", api_version=0).request("Produce", 2)
    (client,) = script.tracker.clients()
    assert client.software_label == "kafka-python 3.0.12" and set(client.uses) >= {(3, 2), (0, 2)}


def test_some_ask_once_for_all_their_connections(script):
    script.connect().asks("4.3", "platformatic-kafka", "1.35.0").request("Metadata", 12)
    script.connect().request("Fetch", 17)
    (client,) = script.tracker.clients()
    assert client.negotiation is Negotiation.ASKS and client.connections == 2 and (1, 17) in client.uses
    # librdkafka asks on each connection: a connection that does not is another client, or configured not to
    other = Script()
    other.connect().asks("4.3", "librdkafka", "2.3.0").request("Metadata", 12)
    other.connect().request("Fetch", 2)
    assert [c.negotiation for c in other.tracker.clients()] == [Negotiation.NEVER, Negotiation.ASKS]
    # a connection that came before the first one that asked is another client
    early = Script()
    early.connect().request("Fetch", 2)
    early.connect().asks("4.3", "platformatic-kafka", "1.35.0").request("Metadata", 12)
    assert [c.negotiation for c in early.tracker.clients()] == [Negotiation.NEVER, Negotiation.ASKS]


def test_refusals_are_distinguished_from_lost_connections(script):
    script.connect().asks("4.0", "librdkafka", "2.3.0")
    script.request("Fetch", 2, state=State.NO_RESPONSE)  # the broker closed on it
    script.request("Fetch", 11, state=State.NO_RESPONSE)  # the connection was lost
    script.request("ListOffsets", 1, error=UNSUPPORTED)
    script.request("Produce", 9, state=State.NO_RESPONSE)  # acks=0
    (client,) = script.tracker.clients()
    counts = {k: (u.refused, u.unanswered) for k, u in client.uses.items() if k[0] != 18}
    assert counts == {(1, 2): (1, 0), (1, 11): (0, 1), (2, 1): (1, 0), (0, 9): (0, 0)}


def test_old_formats_are_counted(script):
    one = [Record(0, 5, None, b"v", ())]
    script.connect().produces(0, encode_messages(one, magic=0)).produces(2, encode_messages(one * 2, magic=1))
    script.produces(2, b"\x00\x01garbage").produces(2, encode_batch(one))
    (client,) = script.tracker.clients()
    assert dict(client.formats) == {0: 1, 1: 2}
    found = script.verdict("4.0")
    assert "It produced 1 message of format 0 and 2 messages of format 1" in found.notes[0]
    assert "KIP-724" in found.notes[0] and "KIP-724" not in script.verdict("3.9").notes[0]


# --- the matrix --------------------------------------------------------------------------------------------


def test_the_limit_is_the_brokers_or_the_clients(script):
    script.connect().asks("3.9", "librdkafka", "2.3.0")
    script.request("Fetch", 11)
    script.request("Metadata", 12)
    (client,) = script.tracker.clients()
    rows = {row.api: row for row in matrix(client)}
    assert rows["Fetch"].limit is Limit.CLIENT and rows["Fetch"].offered == ((0, 17),) and rows["Fetch"].highest == 17
    assert rows["Metadata"].limit is Limit.BROKER and rows["Metadata"].known == (0, 13)
    silent = Script()
    silent.connect().request("Fetch", 2)
    (row,) = matrix(silent.tracker.clients()[0])
    assert row.limit is Limit.UNKNOWN and row.offered == () and row.highest is None


def test_brokers_and_their_releases(script):
    script.connect(broker="a:9092").asks("3.4").connect(broker="b:9092").asks("4.1")
    found = brokers(script.tracker.clients())
    assert [(b.address, b.guess) for b in found] == [("a:9092", "3.3 or 3.4"), ("b:9092", "4.1")]


# --- verdicts ----------------------------------------------------------------------------------------------


def test_known_software_works(script):
    script.connect().asks("2.0", "librdkafka", "2.3.0").request("Produce", 2)
    script.request("Fetch", 8)
    found = script.verdict("2.0")
    assert found.verdict is Verdict.WORKS and found.remedies == [] == found.notes


def test_a_client_that_never_asks_breaks_on_dropped_versions(script):
    script.connect("kafka-python-producer-1").request("Produce", 2, 7)
    script.request("Metadata", 1)
    found = script.verdict("4.0")
    assert found.verdict is Verdict.BREAKS
    (reason,) = found.reasons
    assert (reason.use.api, reason.use.version, reason.use.count) == ("Produce", 2, 7)
    assert (reason.dropped_in, reason.kip, reason.served) == ("4.0", "KIP-896", (3, 12))
    assert "does not ask" in reason.text and found.certainty.startswith("certain")
    assert found.remedies[0].startswith("upgrade kafka-python to 2.0.2 or newer")
    assert "let it ask" in found.remedies[1] and found.remedies[2] == "until then, keep brokers on 3.9 or older"
    assert script.verdict("3.9").verdict is Verdict.WORKS and "never asks" in script.verdict("3.9").certainty


VERDICTS = {
    "the highest offered version": (
        ("0.10.2",), [("Produce", 2)], "4.0", Verdict.MAY_BREAK, "may support newer ones", "use a client made for Kafka 0.11.0 or newer"
    ),
    "less than the offered version": (
        ("3.9",), [("Fetch", 3)], "4.0", Verdict.BREAKS, "offered up to v17, but the client went no higher than v3", "use a client"
    ),
    "a newer version too": (("3.9",), [("Fetch", 3), ("Fetch", 11)], "4.0", Verdict.MAY_BREAK, "also used v11", "use a client"),
    "known software with an old version": (
        ("3.9", "librdkafka", "2.3.0"), [("Fetch", 3)], "4.0", Verdict.MAY_BREAK, "check whether it is configured to", "until then"
    ),
    "old software": (
        ("3.9", "librdkafka", "1.6.0"), [("Fetch", 11)], "4.0", Verdict.MAY_BREAK, "older than 1.8.2",
        "upgrade librdkafka to 1.8.2 or newer (known to work with Kafka 4.0: KIP-896)",
    ),
    "new software": (
        ("4.3", "apache-kafka-java", "4.1.0"), [("Produce", 13)], "2.0", Verdict.BREAKS,
        "the Java client 4.1.0 needs brokers of 2.1 or newer (Kafka 4.0 upgrade notes", "use brokers of 2.1 or newer",
    ),
    "a new client that never asks": (
        None, [("Produce", 9)], "2.7", Verdict.BREAKS, "came with Kafka 2.8", "use brokers of 2.8 or newer"
    ),
    "known software before ApiVersions": (
        ("4.3", "librdkafka", "2.3.0"), [("Metadata", 0)], "0.9.0", Verdict.BREAKS, "needs brokers of 0.10.0", "use brokers of 0.10.0"
    ),
    "unknown software before ApiVersions": (
        ("4.3", "tea", "1"), [("Metadata", 0)], "0.9.0", Verdict.MAY_BREAK, "close the connection", "use brokers of 0.10.0"
    ),
    "a version of no release": (None, [("Metadata", 99)], "4.0", Verdict.BREAKS, "no release up to", None),
}  # fmt: skip
CERTAINTY = {Verdict.BREAKS: "certain", Verdict.MAY_BREAK: "open"}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(script, name):
    asks, requests, against, verdict, reason, remedy = VERDICTS[name]
    script.connect()
    if asks:
        script.asks(*asks)
    for request in requests:
        script.request(*request)
    found = script.verdict(against)
    assert found.verdict is verdict and found.certainty.startswith(CERTAINTY[verdict])
    assert reason in found.reasons[0].text
    assert found.remedies == [] if remedy is None else found.remedies[0].startswith(remedy)


def test_known_software_on_old_brokers_is_known_to_do_more(script):
    script.connect().asks("0.10.2", "confluent-kafka-python", "2.16.1-rdkafka-2.16.0").request("Produce", 2)
    found = script.verdict("4.3")
    assert found.verdict is Verdict.WORKS and found.certainty.startswith("certain: known software (KIP-896)")
    assert "Produce v2" in found.notes[0] and "librdkafka 2.16.0 is known to work with Kafka 4.0" in found.notes[0]


def test_notes_and_remedies_of_old_software(script):
    script.connect().asks("3.9", "librdkafka", "1.6.0").request("Fetch", 11)
    found = script.verdict("4.0")
    assert found.remedies == ["upgrade librdkafka to 1.8.2 or newer (known to work with Kafka 4.0: KIP-896)"]
    assert any("KAFKA-19444" in note for note in found.notes)


def test_an_api_that_is_gone(script):
    script.connect().asks("3.9-zk").request("LeaderAndIsr", 7)
    (reason,) = script.verdict("4.0").reasons
    assert reason.verdict is Verdict.MAY_BREAK and reason.kip == "KIP-500" and reason.served is None


def test_an_api_of_another_role(script):
    script.connect().asks("3.5-zk").request("CreateDelegationToken", 3)
    (reason,) = script.verdict("3.5").reasons
    assert "a kraft broker of Kafka 3.5 does not support CreateDelegationToken v3" in reason.text
    assert script.verdict("3.5-zk").verdict is Verdict.WORKS


# the other way round: newer clients, older brokers


def test_java_4_works_with_2_1(script):
    script.connect("producer-1").asks("4.3", "apache-kafka-java", "4.1.0").request("Produce", 13)
    assert script.verdict("2.1").verdict is Verdict.WORKS


def test_a_new_client_that_asks_and_whose_minimum_is_not_known(script):
    script.connect().asks("4.3", "tea", "1.0").request("Produce", 13)
    assert script.verdict("2.7").verdict is Verdict.MAY_BREAK
    script.connect(broker="old:9092").asks("2.7", "tea", "1.0").request("Produce", 8)
    found = script.verdict("2.7")
    assert found.verdict is Verdict.WORKS and "also uses v8" in found.notes[0]


def test_apis_that_are_not_there_yet(script):
    script.connect().asks("4.3", "tea", "1").request("PushTelemetry", 0)
    script.request("ConsumerGroupHeartbeat", 1)
    found = script.verdict("3.6")
    (reason,) = found.reasons
    assert reason.verdict is Verdict.MAY_BREAK and reason.use.api == "ConsumerGroupHeartbeat"
    assert any("PushTelemetry" in note and "only if configured" in note for note in found.notes)


def test_the_worst_come_first(script):
    script.connect("fine").asks("4.0").request("Fetch", 11)
    script.connect("open").asks("0.10.2").request("Fetch", 3)
    script.connect("broken").request("Fetch", 3)
    found = report(script.tracker.clients(), "4.0")
    assert [c.client.client_id for c in found.clients] == ["broken", "open", "fine"]
    assert found.worst is Verdict.BREAKS and [found.count(v) for v in Verdict] == [1, 1, 1]
    assert report([], "4.0").worst is Verdict.WORKS
