"""Stories of addresses, logins, sizes and order on connections."""

from __future__ import annotations

from barnabas.decoder import encode_response
from harness.wire import with_size
from traffic.conversations import Conversations

from .telling import LATER, Story, Talk, batch, java, librdkafka, topic


def unspecified_address() -> Conversations:
    talk = Talk("sarama", "1.45.0", client_id="jaeger-collector", broker="10.0.0.1:30001")
    for _ in range(6):
        conn = talk.meet(version=3)
        talk.metadata(
            conn, [topic("jaeger-spans")], ((0, "0.0.0.0", 46723), (1, "0.0.0.0", 39081), (2, "0.0.0.0", 37183)), 7
        )
        talk.wait(LATER)
        talk.close(conn)
    return talk


def loopback_advertised() -> Conversations:
    talk = java("3.1.0", client_id="kafka-ui-admin-1")
    conn = talk.meet()
    for _ in range(8):
        talk.metadata(conn, [], ((1001, "127.0.0.1", 9092),), 9)
        talk.wait(LATER)
    talk.close(conn)
    return talk


def out_of_order() -> Conversations:
    talk = java("3.8.0", release="3.7", client_id="consumer-test_group-1")
    for _ in range(3):
        conn = talk.meet()
        talk.metadata(conn, [topic()])
        for at in range(3):
            talk.fetch(conn, at, took=0.2)
        parts = [{"partition": 0, "fetch_offset": 3, "partition_max_bytes": 1 << 20}]
        first, second = talk.pipelined(
            conn,
            ("Fetch", 10, {"max_wait_ms": 500, "topics": [{"topic": "orders", "partitions": parts}]}),
            ("Metadata", 9, {"topics": [{"name": "orders"}]}),
        )
        nodes = [{"node_id": 1, "host": "10.0.0.1", "port": 9092}]
        answer = {"brokers": nodes, "controller_id": 1, "cluster_id": "Mk3-1xq7SzqcM4", "topics": [topic()]}
        talk.received(conn, with_size(encode_response(3, 9, answer, correlation_id=second)), 0.002)
        part = {"partition_index": 0, "high_watermark": 214, "last_stable_offset": 214, "records": b""}
        talk.received(
            conn,
            with_size(
                encode_response(1, 10, {"responses": [{"topic": "orders", "partitions": [part]}]}, correlation_id=first)
            ),
            0.003,
        )
        talk.wait(0.005)
        talk.close(conn)
        talk.wait(LATER)
    return talk


def larger_than_the_client_takes() -> Conversations:
    talk = librdkafka("2.4.0", release="3.4", client_id="fluent-bit")
    for _ in range(5):
        conn = talk.meet()
        talk.metadata(conn, [topic()])
        parts = [{"partition": 0, "fetch_offset": 1200, "partition_max_bytes": 1 << 20}]
        talk.pipelined(conn, ("Fetch", 11, {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 4193792, "topics": [{"topic": "orders", "partitions": parts}]}))  # fmt: skip
        talk.wait(0.004)
        talk.received(conn, (4020574).to_bytes(4, "big") + (talk._correlation_id).to_bytes(4, "big") + bytes(28000))
        talk.wait(0.001)
        talk.close(conn, "rst")
        talk.wait(1.0)
    return talk


def fetch_refused_amid_login() -> Conversations:
    talk = Talk("@platformatic/kafka", "1.21.0", release="3.7", client_id="events", tls=True)
    conn = talk.meet()
    talk.ask(conn, "SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, {"mechanisms": ["OAUTHBEARER", "PLAIN"]})
    token = b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01"
    talk.ask(conn, "SaslAuthenticate", 2, {"auth_bytes": token}, {"auth_bytes": b"", "session_lifetime_ms": 1_800_000})
    talk.metadata(conn, [topic()])
    for at in range(24):
        talk.fetch(conn, at, batch(at, 1), at + 1, took=0.3)
        talk.wait(59.6)
    talk.ask(conn, "SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, {"mechanisms": ["OAUTHBEARER", "PLAIN"]})
    body = {"max_wait_ms": 500, "topics": [{"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 24}]}]}
    talk.ask(conn, "Fetch", 12, body, {"error_code": 34, "responses": []})
    talk.close(conn, by="broker")
    return talk


def closed_at_the_handshake() -> Conversations:
    talk = Talk("confluent-kafka-dotnet", "2.5.2", release="2.8", broker="10.0.0.1:9098", client_id="rdkafka", tls=True)
    for _ in range(5):
        conn = talk.meet()
        talk.pipelined(conn, ("SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}))
        talk.wait(0.001)
        talk.close(conn, by="broker")
        talk.wait(1.5)
    return talk


def wrong_mechanism() -> Conversations:
    talk = Talk("sarama", "1.32.0", broker="10.0.0.1:9093", client_id="sarama")
    for _ in range(4):
        conn = talk.open()
        talk.ask(conn, "SaslHandshake", 1, {"mechanism": "PLAIN"}, {"error_code": 33, "mechanisms": ["SCRAM-SHA-256"]})
        talk.close(conn)
        talk.wait(0.25)
    return talk


def addresses_that_a_proxy_forgets() -> Conversations:
    talk = java("3.8.1", release="3.8", broker="10.0.0.1:30001", client_id="producer-1")
    behind = (3, "10.0.0.1", 30003)
    conn = talk.meet()
    talk.metadata(conn, [topic(leader=1, nodes=(1, 3))], ((1, "10.0.0.1", 30001), behind), 12)
    for at in range(3):
        talk.produce(conn, batch(at * 3), version=11, base=at * 3)
        talk.wait(0.2)
    parts = [{"index": 0, "records": batch(9)}]
    moved = {"index": 0, "error_code": 6, "base_offset": -1, "current_leader": {"leader_id": 3, "leader_epoch": 5}}
    talk.ask(
        conn, "Produce", 11, {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": "orders", "partition_data": parts}]},
        {
            "responses": [{"name": "orders", "partition_responses": [moved]}],
            "node_endpoints": [{"node_id": 3, "host": "b-3.msk.example.amazonaws.com", "port": 9094}],
        },
    )  # fmt: skip
    for _ in range(4):
        astray = talk.open("10.0.0.9:9094")
        talk.pipelined(
            astray,
            ("ApiVersions", 3, {"client_software_name": "apache-kafka-java", "client_software_version": "3.8.1"}),
        )
        talk.received(astray, bytes.fromhex("15030300020250"), 0.001)
        talk.wait(0.002)
        talk.close(astray, by="broker")
        talk.wait(1)
    talk.close(conn)
    return talk


def sessions_of_the_same_length(ages: tuple[int, ...] = (30, 30, 30, 30)) -> Conversations:
    talk = librdkafka("1.6.1", release="2.7", client_id="rdkafka", tls=True)
    sent = 0
    for steps in ages:
        conn = talk.meet()
        talk.ask(conn, "SaslHandshake", 1, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]})
        talk.ask(conn, "SaslAuthenticate", 0, {"auth_bytes": b"\0u\0p"}, {"auth_bytes": b""})
        talk.metadata(conn, [topic()], version=4)
        for _ in range(steps):
            talk.produce(conn, batch(sent, 1), version=7, base=sent)
            sent += 1
            talk.wait(10)
        talk.close(conn, by="broker")
        talk.wait(0.2)
    return talk


def raw_token_after_the_old_handshake(answered: bool = False) -> Conversations:
    talk = Talk(release="3.9", client_id="kaf", broker="10.0.0.1:9192", tls=True)
    for _ in range(4):
        conn = talk.open()
        talk.ask(conn, "SaslHandshake", 0, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]})
        talk.sent(conn, with_size(b"\0alice\0secret"))
        talk.wait(0.002)
        if answered:
            talk.received(conn, with_size(b""))
            talk.metadata(conn, [topic()])
        talk.close(conn, by="client" if answered else "broker")
        talk.wait(1)
    return talk


def brokers_of_two_clusters(mixed: bool = True) -> Conversations:
    """A proxy that leads one of three addresses to another cluster; or, not `mixed`, brokers that were all set up anew."""
    talk = java("3.7.0", release="3.7", client_id="producer-1", broker="10.0.0.9:9092")
    nodes = tuple((number, "10.0.0.9", 9092 + number) for number in range(3))
    first = talk.meet("10.0.0.9:9093")
    talk.metadata(first, [topic("t1", nodes=(1, 2, 0))], nodes, 12, cluster_id="PRIMARY-aaaaaaaaaaaaaa")
    for at in range(4):
        talk.produce(first, batch(3 * at), "t1", base=3 * at)
    if not mixed:
        talk.close(first, by="broker")
        talk.wait(30)
    second = talk.meet()
    talk.metadata(second, [topic("t1", leader=2, nodes=(2, 0, 1))], nodes, 12, cluster_id="SECONDARY-bbbbbbbbbbbb")
    talk.wait(1)
    if mixed:
        talk.metadata(first, [topic("t1", nodes=(1, 2, 0))], nodes, 12, cluster_id="PRIMARY-aaaaaaaaaaaaaa")
        talk.close(first)
    talk.close(second)
    return talk


def requests_without_waiting(together: bool = True) -> Conversations:
    talk = Talk(release="3.4", client_id="console-producer", broker="10.0.0.1:9192")
    said = {"client_software_name": "apache-kafka-java", "client_software_version": "3.4.0"}
    for _ in range(4):
        conn = talk.open()
        talk.pipelined(conn, *[("ApiVersions", 3, said)] * (2 if together else 1))
        talk.wait(0.01)
        talk.close(conn, by="broker")
        talk.wait(1)
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in talk.offered.items()]
    conn = talk.open()
    talk.ask(conn, "ApiVersions", 3, said, {"api_keys": keys})
    talk.metadata(conn, [topic()], ((1, "10.0.0.1", 9192),))
    talk.close(conn)
    return talk


STORIES = (
    Story(
        "https://github.com/grepplabs/kafka-proxy/issues/203", "sarama in Jaeger's collector", "Kafka behind kafka-proxy 0.4.1",
        "Metadata names 0.0.0.0:46723, 0.0.0.0:39081 and 0.0.0.0:37183; the client connects nowhere and asks again",
        "0.0.0.0 is no address a client can use: mend the proxy's advertised addresses (--dynamic-listeners-disable)",
        unspecified_address, frozenset({"unreachable-advertised-address"}), (r"0\.0\.0\.0", r"advertised"),
    ),
    Story(
        "https://github.com/provectus/kafka-ui/issues/2021", "Java 3.1 in kafka-ui", "Kafka in Docker",
        "Metadata names 127.0.0.1:9092 to a client on another machine, which asks again every 2 s",
        "advertised.listeners says 127.0.0.1, the client's own machine: the broker's configuration",
        loopback_advertised, frozenset({"unreachable-advertised-address"}), (r"127\.0\.0\.1:9092", r"advertised\.listeners"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/pull/25636", "Java 3.8", "Redpanda before 25.1",
        "of two requests in flight the second is answered first; the client closes",
        "the broker answers out of order, which Kafka never does: a broker's (or proxy's) fault",
        out_of_order, frozenset({"odd-correlation-ids"}), (r"order", r"(?i)broker|proxy"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/4915", "librdkafka 2.4.0 in fluent-bit", "Kafka 3.4.1",
        "a Fetch answer of 4020574 bytes begins; the client resets the connection after its first packets, again and again",
        "the client takes no response of this size: raise receive.message.max.bytes above fetch.max.bytes",
        larger_than_the_client_takes, frozenset({"response-too-large"}), (r"4020574|4\.0 ?M", r"receive\.message\.max\.bytes"),
    ),
    Story(
        "https://github.com/platformatic/kafka/issues/204", "@platformatic/kafka", "Google's managed Kafka, sessions of 30 min",
        "after 24 minutes SaslHandshake, then a Fetch before SaslAuthenticate: ILLEGAL_SASL_STATE, FIN",
        "the client sends Fetch in the middle of logging in again: a bug of the client",
        fetch_refused_amid_login, frozenset({"sasl-out-of-turn"}), (r"Fetch", r"SaslHandshake", r"(?i)client"),
    ),
    Story(
        "https://github.com/confluentinc/confluent-kafka-dotnet/issues/2284", "confluent-kafka-dotnet 2.5.2", "MSK Serverless (IAM)",
        "ApiVersions is answered; the broker closes on SaslHandshake OAUTHBEARER within 1 ms, again and again",
        "the broker closes at SaslHandshake, before it was told who the client is: not the credentials; its limits or its TLS side",
        closed_at_the_handshake,
        frozenset({"closed-without-answer"}),
        (r"SaslHandshake", r"(?i)before|no (credentials|token)|mechanism"),
    ),
    Story(
        "https://github.com/birdayz/kaf/issues/212", "sarama in kaf", "Kafka with SCRAM-SHA-256 only",
        "SaslHandshake PLAIN: UNSUPPORTED_SASL_MECHANISM, enabled are [SCRAM-SHA-256]",
        "the client wants PLAIN, the broker has SCRAM-SHA-256 only: the client's configuration",
        wrong_mechanism, frozenset({"sasl-mechanism-mismatch"}), (r"PLAIN", r"SCRAM-SHA-256"),
    ),
    Story(
        "https://github.com/grepplabs/kafka-proxy/issues/223", "Java 3.8.1", "MSK 3.8 behind kafka-proxy 0.4.3",
        "Produce: NOT_LEADER_OR_FOLLOWER with node_endpoints b-3...:9094, which no Metadata named; plaintext to 9094, TLS alert",
        "node_endpoints (KIP-951) names an address that Metadata does not: the proxy does not rewrite it",
        addresses_that_a_proxy_forgets,
        frozenset({"node-endpoint-unknown"}),
        (r"(?i)node.?endpoints", r"b-3\.msk\.example\.amazonaws\.com:9094", r"(?i)proxy"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/3293", "librdkafka 1.6.1", "Kafka 2.7 with connections.max.reauth.ms",
        "SaslAuthenticate v0; the broker ends each connection after 300 s, in the middle of its work",
        "the session of the login ends after 300 s, and the client cannot know it: connections.max.reauth.ms",
        sessions_of_the_same_length, frozenset({"connection-age-limit"}), (r"5 min", r"connections\.max\.reauth\.ms", r"SaslAuthenticate v0"),
    ),
    Story(
        "https://github.com/kroxylicious/kroxylicious/pull/2988", "kaf (sarama with SASL v0)", "Kroxylicious",
        "SaslHandshake v0 is answered; on the token without a header: FIN",
        "the proxy does not support raw tokens: use SaslHandshake v1 (or the password is wrong: v0 cannot say so)",
        raw_token_after_the_old_handshake, frozenset({"sasl-raw-token-refused"}), (r"SaslHandshake v0", r"SaslHandshake v1", r"(?i)proxy"),
    ),
    Story(
        "https://github.com/envoyproxy/envoy/issues/41222", "Java 3.7", "two clusters behind Envoy",
        "Metadata answers on two connections name the same addresses, but different clusters",
        "the proxy fails over broker by broker and mixes the brokers of two clusters",
        brokers_of_two_clusters, frozenset({"clusters-mixed"}), (r"PRIMARY", r"SECONDARY", r"(?i)proxy"),
    ),
    Story(
        "https://github.com/kroxylicious/kroxylicious/issues/513", "a test client with netcat", "Kroxylicious",
        "two ApiVersions requests at once: FIN; one alone is answered",
        "the proxy cannot take a second request while it connects to its broker",
        requests_without_waiting, frozenset({"closed-on-first-request"}), (r"2 requests or more without waiting", r"(?i)proxy"),
    ),
)  # fmt: skip
