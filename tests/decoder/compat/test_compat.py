"""Clients, the versions they used, and verdicts on them: every case that a report distinguishes."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange, State
from barnabas.decoder.compat import ClientTracker, Limit, Negotiation, Request, Verdict, brokers, matrix, report
from barnabas.decoder.records import Record, encode_batch, encode_messages
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts

UNSUPPORTED = facts.error_code("UNSUPPORTED_VERSION")


class Script:
    """Writes what clients said into a `ClientTracker`."""

    def __init__(self) -> None:
        self.watch = ClientTracker()
        self.watch.capture(own=True)
        self.at = 0
        self.connection = 0

    def connect(self, client_id: str | None = "app", client: str = "10.0.0.5:50000", broker: str = "kafka:9092"):
        self.connection += 1
        self.ends = client, broker, client_id
        self.correlation_id = 0
        return self

    def request(self, api: str, version: int, count: int = 1, error: int = 0, state: State = State.PAIRED) -> Request:
        client, broker, client_id = self.ends
        for _ in range(count):
            self.at += 1_000_000_000
            self.correlation_id += 1
            seen = Request(
                self.connection, client, broker, client_id, facts.api_key(api), version, self.at, error, state,
                self.correlation_id,
            )  # fmt: skip
            self.watch.request(seen)
        return seen

    def asks(self, release: str | None, name: str = "", version: str = "", api_version: int = 3):
        """ApiVersions, answered with the table of a release, or not at all."""
        seen = self.request("ApiVersions", api_version, state=State.PAIRED if release else State.NO_RESPONSE)
        said = {"client_software_name": name, "client_software_version": version} if api_version >= 3 else {}
        asked = decoder.encode_request(18, api_version, said, correlation_id=1, client_id="app")
        answer = None
        if release:
            keys = [
                {"api_key": key, "min_version": low, "max_version": high}
                for key, (low, high) in releases.release(release).offered.items()
            ]
            answer = decoder.encode_response(18, api_version, {"api_keys": keys}, correlation_id=1)
        exchange = Exchange(
            api_key=18, api_version=api_version, request=asked, response=answer,
            state=State.PAIRED if answer else State.NO_RESPONSE,
        )  # fmt: skip
        self.watch.api_versions(seen, exchange)
        return self

    def produces(self, version: int, records: bytes):
        seen = self.request("Produce", version)
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
        frame = decoder.encode_request(0, version, {"acks": 1, "topic_data": topics}, correlation_id=2, client_id="app")
        self.watch.produced(seen, Exchange(api_key=0, api_version=version, request=frame))
        return self

    def verdict(self, against: str):
        (found,) = report(self.watch.clients(), against).clients
        return found


@pytest.fixture
def script() -> Script:
    return Script()


# --- who was seen ------------------------------------------------------------------------------------------


def test_connections_of_one_client_count_together(script):
    for port in (1, 2):
        script.connect(client=f"10.0.0.5:{port}").asks("3.9", "librdkafka", "2.3.0").request("Metadata", 12, 3)
    script.connect(client="10.0.0.6:1").asks("3.9", "librdkafka", "2.3.0").request("Fetch", 11)
    script.connect(client_id="other").asks("3.9", "librdkafka", "2.3.0").request("Fetch", 11)
    first, second, other = sorted(script.watch.clients(), key=lambda c: (c.client_id, c.host))
    assert (first.host, first.client_id, first.software_label, first.connections) == ("10.0.0.5", "app", "librdkafka 2.3.0", 2)
    assert first.uses[3, 12].count == 6 and first.requests == 8
    assert (first.first_ns, first.last_ns) == (1_000_000_000, 8_000_000_000)
    assert second.host == "10.0.0.6" and other.client_id == "other"


def test_who_asks_and_who_does_not(script):
    script.connect("asks").asks("3.9").request("Fetch", 11)
    script.connect("in vain").asks(None)
    script.connect("never").request("Fetch", 2)
    assert {c.client_id: c.negotiation for c in script.watch.clients()} == {
        "asks": Negotiation.ASKS, "in vain": Negotiation.UNANSWERED, "never": Negotiation.NEVER,
    }  # fmt: skip


def test_what_began_before_the_capture_is_not_said_never_to_ask(script):
    script.watch.capture(own=False)
    script.connect("old").correlation_id = 900
    script.request("Fetch", 11)
    script.connect("new").request("Fetch", 11)
    found = {c.client_id: c.negotiation for c in script.watch.clients()}
    assert found == {"old": Negotiation.UNKNOWN, "new": Negotiation.NEVER}
    # it joins the client that it can only be of
    script.connect("old").asks("3.9", "librdkafka", "2.3.0").request("Fetch", 11)
    (old,) = [c for c in script.watch.clients() if c.client_id == "old"]
    assert old.software_label == "librdkafka 2.3.0" and old.connections == 2


def test_old_brokers_do_not_let_clients_name_themselves(script):
    script.connect().asks("0.10.2", "kafka-python", "3.0.12").request("Metadata", 2)
    script.connect().asks("0.10.2", api_version=0).request("Produce", 2)
    (client,) = script.watch.clients()
    assert client.software_label == "kafka-python 3.0.12" and set(client.uses) >= {(3, 2), (0, 2)}


def test_some_ask_once_for_all_their_connections(script):
    script.connect().asks("4.3", "platformatic-kafka", "1.35.0").request("Metadata", 12)
    script.connect().request("Fetch", 17)
    (client,) = script.watch.clients()
    assert client.negotiation is Negotiation.ASKS and client.connections == 2 and (1, 17) in client.uses
    # librdkafka asks on each connection: who does not is somebody else, or told not to
    other = Script()
    other.connect().asks("4.3", "librdkafka", "2.3.0").request("Metadata", 12)
    other.connect().request("Fetch", 2)
    assert [c.negotiation for c in other.watch.clients()] == [Negotiation.NEVER, Negotiation.ASKS]
    # and what came before anybody asked was not told
    early = Script()
    early.connect().request("Fetch", 2)
    early.connect().asks("4.3", "platformatic-kafka", "1.35.0").request("Metadata", 12)
    assert [c.negotiation for c in early.watch.clients()] == [Negotiation.NEVER, Negotiation.ASKS]


def test_refusals_are_told_from_other_silence(script):
    script.connect().asks("4.0", "librdkafka", "2.3.0")
    script.request("Fetch", 2, state=State.NO_RESPONSE)  # the broker closed on it
    script.request("Fetch", 11, state=State.NO_RESPONSE)  # the connection was lost
    script.request("ListOffsets", 1, error=UNSUPPORTED)
    script.request("Produce", 9, state=State.NO_RESPONSE)  # acks=0
    (client,) = script.watch.clients()
    told = {k: (u.refused, u.unanswered) for k, u in client.uses.items() if k[0] != 18}
    assert told == {(1, 2): (1, 0), (1, 11): (0, 1), (2, 1): (1, 0), (0, 9): (0, 0)}


def test_old_formats_are_counted(script):
    one = [Record(0, 5, None, b"v", ())]
    script.connect().produces(0, encode_messages(one, magic=0)).produces(2, encode_messages(one * 2, magic=1))
    script.produces(2, b"\x00\x01garbage").produces(2, encode_batch(one))
    (client,) = script.watch.clients()
    assert dict(client.formats) == {0: 1, 1: 2}
    found = script.verdict("4.0")
    assert "It produced 1 message of format 0 and 2 messages of format 1" in found.notes[0]
    assert "KIP-724" in found.notes[0] and "KIP-724" not in script.verdict("3.9").notes[0]


# --- the matrix --------------------------------------------------------------------------------------------


def test_whose_limit_it_is(script):
    script.connect().asks("3.9", "librdkafka", "2.3.0")
    script.request("Fetch", 11)
    script.request("Metadata", 12)
    (client,) = script.watch.clients()
    rows = {row.api: row for row in matrix(client)}
    assert rows["Fetch"].limit is Limit.CLIENT and rows["Fetch"].offered == ((0, 17),) and rows["Fetch"].highest == 17
    assert rows["Metadata"].limit is Limit.BROKER and rows["Metadata"].known == (0, 13)
    silent = Script()
    silent.connect().request("Fetch", 2)
    (row,) = matrix(silent.watch.clients()[0])
    assert row.limit is Limit.UNKNOWN and row.offered == () and row.highest is None


def test_brokers_and_their_releases(script):
    script.connect(broker="a:9092").asks("3.4").connect(broker="b:9092").asks("4.1")
    found = brokers(script.watch.clients())
    assert [(b.address, b.guess) for b in found] == [("a:9092", "3.3 or 3.4"), ("b:9092", "4.1")]


# --- verdicts ----------------------------------------------------------------------------------------------


def test_known_software_works(script):
    script.connect().asks("2.0", "librdkafka", "2.3.0").request("Produce", 2)
    script.request("Fetch", 8)
    found = script.verdict("2.0")
    assert found.verdict is Verdict.WORKS and found.remedies == [] == found.notes


def test_dropped_and_fixed_breaks(script):
    script.connect("kafka-python-producer-1").request("Produce", 2, 7)
    script.request("Metadata", 1)
    found = script.verdict("4.0")
    assert found.verdict is Verdict.BREAKS
    (reason,) = found.reasons
    assert (reason.use.api, reason.use.version, reason.use.count) == ("Produce", 2, 7)
    assert (reason.dropped_in, reason.kip, reason.served) == ("4.0", "KIP-896", (3, 12))
    assert "does not ask" in reason.text and found.certainty.startswith("sure")
    assert found.remedies[0].startswith("upgrade kafka-python to 2.0.2 or newer")
    assert "let it ask" in found.remedies[1] and found.remedies[2] == "until then keep brokers of 3.9 or older"
    assert script.verdict("3.9").verdict is Verdict.WORKS and "never asks" in script.verdict("3.9").certainty


def test_the_highest_that_was_offered_leaves_it_open(script):
    script.connect().asks("0.10.2").request("Produce", 2)
    found = script.verdict("4.0")
    assert found.verdict is Verdict.MAY_BREAK and "may know more" in found.reasons[0].text
    assert found.certainty.startswith("open")
    assert found.remedies[0] == "use a client made for Kafka 0.11.0 or newer"


def test_less_than_was_offered_is_the_clients_own_limit(script):
    script.connect().asks("3.9").request("Fetch", 3)
    found = script.verdict("4.0")
    assert found.verdict is Verdict.BREAKS
    assert "offered up to v17 and the client went no higher than v3" in found.reasons[0].text


def test_a_version_beside_a_newer_one_may_be_a_preference(script):
    script.connect().asks("3.9").request("Fetch", 3)
    script.request("Fetch", 11)
    found = script.verdict("4.0")
    assert found.verdict is Verdict.MAY_BREAK and "also used v11" in found.reasons[0].text


def test_known_software_on_old_brokers_is_known_to_do_more(script):
    script.connect().asks("0.10.2", "confluent-kafka-python", "2.16.1-rdkafka-2.16.0").request("Produce", 2)
    found = script.verdict("4.3")
    assert found.verdict is Verdict.WORKS and found.certainty.startswith("sure: known software (KIP-896)")
    assert "Produce v2" in found.notes[0] and "librdkafka 2.16.0 is known to work with Kafka 4.0" in found.notes[0]


def test_known_software_that_holds_back_is_asked_about(script):
    script.connect().asks("3.9", "librdkafka", "2.3.0").request("Fetch", 3)
    found = script.verdict("4.0")
    assert found.verdict is Verdict.MAY_BREAK and "is it configured to?" in found.reasons[0].text


def test_old_software_is_named_with_the_version_that_helps(script):
    script.connect().asks("3.9", "librdkafka", "1.6.0").request("Fetch", 11)
    found = script.verdict("4.0")
    assert found.verdict is Verdict.MAY_BREAK and "older than 1.8.2" in found.reasons[0].text
    assert found.remedies == ["upgrade librdkafka to 1.8.2 or newer (known to work with Kafka 4.0: KIP-896)"]
    assert any("KAFKA-19444" in note for note in found.notes)


def test_an_api_that_is_gone(script):
    script.connect().asks("3.9-zk").request("LeaderAndIsr", 7)
    (reason,) = script.verdict("4.0").reasons
    assert reason.verdict is Verdict.MAY_BREAK and reason.kip == "KIP-500" and reason.served is None


def test_an_api_of_another_role(script):
    script.connect().asks("3.5-zk").request("CreateDelegationToken", 3)
    (reason,) = script.verdict("3.5").reasons
    assert "a kraft broker of Kafka 3.5 has no CreateDelegationToken v3" in reason.text
    assert script.verdict("3.5-zk").verdict is Verdict.WORKS


# the other way round: newer clients, older brokers


def test_java_4_needs_2_1(script):
    script.connect("producer-1").asks("4.3", "apache-kafka-java", "4.1.0").request("Produce", 13)
    assert script.verdict("2.1").verdict is Verdict.WORKS
    found = script.verdict("2.0")
    assert found.verdict is Verdict.BREAKS
    assert "the Java client 4.1.0 needs brokers of 2.1 or newer (Kafka 4.0 upgrade notes" in found.reasons[0].text
    assert found.remedies[-1].startswith("use brokers of 2.1 or newer")


def test_a_new_client_that_never_asks_breaks_on_older_brokers(script):
    script.connect().request("Produce", 9)
    found = script.verdict("2.7")
    assert found.verdict is Verdict.BREAKS and "came with Kafka 2.8" in found.reasons[0].text
    assert found.remedies[0].startswith("use brokers of 2.8 or newer")


def test_a_new_client_that_asks_and_whose_minimum_is_not_known(script):
    script.connect().asks("4.3", "tea", "1.0").request("Produce", 13)
    assert script.verdict("2.7").verdict is Verdict.MAY_BREAK
    script.connect(broker="old:9092").asks("2.7", "tea", "1.0").request("Produce", 8)
    found = script.verdict("2.7")
    assert found.verdict is Verdict.WORKS and "also speaks v8" in found.notes[0]


def test_before_api_versions(script):
    script.connect().asks("4.3", "librdkafka", "2.3.0").request("Metadata", 0)
    found = script.verdict("0.9.0")
    assert found.verdict is Verdict.BREAKS and "needs brokers of 0.10.0" in found.reasons[0].text
    unknown = Script()
    unknown.connect().asks("4.3", "tea", "1").request("Metadata", 0)
    (reason,) = unknown.verdict("0.9.0").reasons
    assert reason.verdict is Verdict.MAY_BREAK and "close the connection" in reason.text


def test_apis_that_are_not_there_yet(script):
    script.connect().asks("4.3", "tea", "1").request("PushTelemetry", 0)
    script.request("ConsumerGroupHeartbeat", 1)
    found = script.verdict("3.6")
    (reason,) = found.reasons
    assert reason.verdict is Verdict.MAY_BREAK and reason.use.api == "ConsumerGroupHeartbeat"
    assert any("PushTelemetry" in note and "only when they are configured" in note for note in found.notes)


def test_a_version_that_no_release_has(script):
    script.connect().request("Metadata", 99)
    (reason,) = script.verdict("4.0").reasons
    assert "no release up to" in reason.text and reason.verdict is Verdict.BREAKS


def test_the_worst_come_first(script):
    script.connect("fine").asks("4.0").request("Fetch", 11)
    script.connect("open").asks("0.10.2").request("Fetch", 3)
    script.connect("broken").request("Fetch", 3)
    found = report(script.watch.clients(), "4.0")
    assert [c.client.client_id for c in found.clients] == ["broken", "open", "fine"]
    assert found.worst is Verdict.BREAKS and [found.count(v) for v in Verdict] == [1, 1, 1]
    assert report([], "4.0").worst is Verdict.WORKS
