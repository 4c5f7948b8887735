"""Stories of what brokers, proxies and products that speak Kafka's protocol answer, continued from `brokers`."""

from __future__ import annotations

from barnabas.decoder import Connection
from harness.wire import with_size
from traffic.conversations import Conversations

from .telling import LATER, NOW_MS, Fields, Story, Talk, assignment, batch, java, librdkafka, subscription, topic

TWO = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))


def time_without_a_timestamp(timestamp: int = -1) -> Conversations:
    talk = java("2.3.0", release="2.0", client_id="consumer-1")
    for _ in range(3):
        conn = talk.meet(version=2)
        talk.metadata(conn, [topic()], version=5)
        asked = {"partition_index": 0, "timestamp": NOW_MS - 3_600_000}
        found = {"partition_index": 0, "error_code": 0, "timestamp": timestamp, "offset": 12}
        body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "orders", "partitions": [asked]}]}
        talk.ask(conn, "ListOffsets", 2, body, {"topics": [{"name": "orders", "partitions": [found]}]})
        talk.close(conn)
        talk.wait(LATER)
    return talk


def endpoint_behind_the_proxy(host: str = "kafka-1.kafka.svc", port: int = 9092) -> Conversations:
    talk = java("3.7.0", release="3.7", client_id="producer-1", broker="10.0.0.9:9192")
    nodes = ((0, "10.0.0.9", 9193), (1, "10.0.0.9", 9194))
    conn = talk.meet()
    talk.metadata(conn, [topic(leader=0, nodes=(0, 1))], nodes, 12)
    other = talk.meet("10.0.0.9:9193")
    for at in range(3):
        talk.produce(other, batch(at * 3), version=10, base=at * 3)
        talk.wait(0.1)
    moved = {"index": 0, "error_code": 6, "base_offset": -1, "current_leader": {"leader_id": 1, "leader_epoch": 5}}
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch(9)}]}]
    answer = {
        "responses": [{"name": "orders", "partition_responses": [moved]}],
        "node_endpoints": [{"node_id": 1, "host": host, "port": port}],
    }
    talk.ask(other, "Produce", 10, {"acks": -1, "timeout_ms": 30000, "topic_data": data}, answer)
    for _ in range(5):
        talk.wait(1)
        talk.metadata(conn, [topic(leader=0, nodes=(0, 1))], nodes, 12)
    talk.close(other)
    talk.close(conn)
    return talk


def token_that_a_proxy_takes_for_a_request() -> Conversations:
    talk = Talk(release="3.6", client_id="sarama", broker="10.0.0.1:30192", tls=True)
    for _ in range(4):
        conn = talk.open()
        talk.ask(conn, "SaslHandshake", 0, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]})
        talk.sent(conn, with_size(b"\0TWEJCXK4QXW2\0abcdefgh"))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.25)
    return talk


def generations_of_one_member(waits: bool = False) -> Conversations:
    """Members join one after the other; a coordinator that `waits` lets the others join before it answers."""
    talk = Talk(release="2.4", client_id="brod")
    meta, everything = subscription(["orders"], 0), assignment("orders", 0, 1, 2, 3)
    ends = talk.meet(version=0), talk.meet(version=0)
    for conn in ends:
        talk.metadata(conn, [topic(partitions=4)], version=2)
        talk.coordinator(conn, "g", version=0)

    def join(conn: Connection, generation: int, asked: str, given: str, members: list[str]) -> None:
        protocols = [{"name": "roundrobin_v2", "metadata": meta}]
        body = {"group_id": "g", "session_timeout_ms": 30000, "protocol_type": "consumer", "protocols": protocols}
        listed = [{"member_id": name, "metadata": meta} for name in members]
        answer = {"generation_id": generation, "protocol_name": "roundrobin_v2", "leader": given, "member_id": given}
        talk.ask(conn, "JoinGroup", 0, body | {"member_id": asked}, answer | {"members": listed})
        mine = {"group_id": "g", "generation_id": generation, "member_id": given}
        talk.ask(conn, "SyncGroup", 0, mine | {"assignments": []}, {"assignment": everything})

    def beat(conn: Connection, generation: int, member: str, error: int = 0) -> None:
        body = {"group_id": "g", "generation_id": generation, "member_id": member}
        talk.ask(conn, "Heartbeat", 0, body, {"error_code": error})

    last: tuple[Connection, str] | None = None
    for turn in range(12):
        conn, mine = ends[turn % 2], f"brod-{turn}"
        if waits and last is not None:
            beat(last[0], turn, last[1], 27)
            join(last[0], turn + 1, last[1], last[1], [last[1], mine])
            left = {"group_id": "g", "member_id": last[1]}
            talk.ask(last[0], "LeaveGroup", 0, left, {})
        join(conn, turn + 1, "", mine, [mine])
        if last is not None and not waits:
            beat(last[0], turn, last[1], 25)
        beat(conn, turn + 1, mine)
        last = conn, mine
        for _ in range(12 if waits else 0):
            talk.wait(5)
            beat(conn, turn + 1, mine)
        talk.wait(1)
    for conn in ends:
        talk.close(conn)
    return talk


def epoch_that_metadata_does_not_show(shown: bool = False) -> Conversations:
    talk = java("2.3.1", release="2.3", client_id="consumer-g-1")
    conn = talk.meet(version=2)
    known = topic(leader=2, nodes=(1, 2))
    talk.metadata(conn, [known], TWO, version=8)
    leads = talk.meet("10.0.0.2:9092", version=2)
    for at in range(3):
        talk.fetch(leads, at, batch(at, 1), at + 1, took=0.01, epoch=4)
    for _ in range(2 if shown else 60):
        talk.fetch(leads, 3, b"", -1, took=0.002, error=74, epoch=4, last_stable_offset=-1, log_start_offset=-1)
        talk.metadata(conn, [known], TWO, version=8)
        talk.wait(0.1)
    if shown:
        known["partitions"][0]["leader_epoch"] = 5
        talk.metadata(conn, [known], TWO, version=8)
        for _ in range(20):
            talk.fetch(leads, 3, b"", 3, epoch=5)
    talk.close(leads)
    talk.close(conn)
    return talk


def leader_that_one_broker_hears_of_later() -> Conversations:
    talk = Talk("kgo", "v1.20.0", release="3.9", client_id="kgo")
    links = talk.meet(), talk.meet("10.0.0.2:9092")
    for number in range(20):
        known = topic(leader=1 if number < 4 else 2, nodes=(1, 2))
        known["partitions"][0]["leader_epoch"] = 4 if number < 4 or number == 5 else 5
        if number == 5:
            known["partitions"][0]["leader_id"] = 1
        talk.metadata(links[number % 2], [known], TWO, 11)
        talk.wait(0.5)
    for link in links:
        talk.close(link)
    return talk


def deletion_refused_for_the_cluster(error: int = 31) -> Conversations:
    talk = librdkafka("1.8.2", release="2.4", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic("nope", error=3)], version=4)
    body = {"topic_names": ["nope"], "timeout_ms": 30000}
    talk.ask(conn, "DeleteTopics", 1, body, {"responses": [{"name": "nope", "error_code": error}]})
    talk.close(conn)
    return talk


def controller_of_nobody() -> Conversations:
    talk = java("2.0.0", release="2.0", client_id="adminclient-1")
    conn = talk.meet(version=2)
    for _ in range(60):
        talk.metadata(conn, [], version=5, asked=[], controller_id=-1)
        talk.wait(0.1)
    talk.close(conn)
    return talk


def software_name_with_a_space() -> Conversations:
    talk = Talk(release="3.0", client_id="RP Console")
    for _ in range(3):
        conn = talk.open()
        said = {"client_software_name": "RP Console", "client_software_version": "dev"}
        talk.ask(conn, "ApiVersions", 3, said, {"error_code": 42, "api_keys": []})
        talk.wait(0.1)
        talk.close(conn)
        talk.wait(3)
    return talk


def segment_without_the_offset(end: int = 5) -> Conversations:
    talk = java("3.6.1", release="3.6", client_id="consumer-g-1")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=12)
    talk.fetch(conn, 0, batch(0, 1), end, version=11, took=0.05)
    for _ in range(40):
        talk.fetch(conn, 1, b"", end, version=11, took=0.01 if end > 1 else 0.5)
        talk.wait(0.2)
    talk.close(conn)
    return talk


def version_that_the_older_broker_has_not() -> Conversations:
    talk = Talk(release="3.5", client_id="broker-1", client="10.0.0.2")
    for _ in range(6):
        conn = talk.open()
        topics = [{"name": "orders", "partitions": [0]}]
        one = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0, "verify_only": True, "topics": topics}
        talk.pipelined(conn, ("AddPartitionsToTxn", 4, {"transactions": [one]}))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(0.1)
    return talk


def localhost_from_a_container() -> Conversations:
    talk = librdkafka("1.8.2", release="2.4", client_id="rdkafka", broker="172.17.0.1:32768", client="172.17.0.3")
    conn = talk.meet()
    for _ in range(5):
        talk.metadata(conn, [topic("test")], ((1, "localhost", 32768),), version=4)
        talk.wait(1)
    talk.close(conn)
    return talk


def commits_that_are_forgotten() -> Conversations:
    talk = librdkafka("2.3.0", release="2.4", client_id="rdkafka")
    meta, mine = subscription(["orders"]), assignment("orders", 0)
    for run in range(3):
        conn = talk.meet()
        talk.metadata(conn, [topic()], version=4)
        talk.coordinator(conn, "g")
        name = f"m-{run}"
        protocols = [{"name": "range", "metadata": meta}]
        body = {"group_id": "g", "session_timeout_ms": 45000, "protocol_type": "consumer"}
        body["rebalance_timeout_ms"] = 300000
        answer = {"generation_id": run + 1, "protocol_name": "range", "leader": name, "member_id": name}
        members = [{"member_id": name, "metadata": meta}]
        talk.ask(conn, "JoinGroup", 5, body | {"protocols": protocols}, answer | {"members": members})
        place = {"group_id": "g", "generation_id": run + 1, "member_id": name}
        talk.ask(conn, "SyncGroup", 3, place | {"assignments": []}, {"assignment": mine})
        none: Fields = {"partition_index": 0, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
        wanted = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}
        talk.ask(conn, "OffsetFetch", 5, wanted, {"topics": [{"name": "orders", "partitions": [none]}]})
        talk.fetch(conn, 0, batch(0, 5), 5, took=0.01)
        talk.fetch(conn, 5, b"", 5)
        done = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        commit = {"group_id": "g", "generation_id_or_member_epoch": run + 1, "member_id": name}
        commit["topics"] = [{"name": "orders", "partitions": [done]}]
        taken = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": 0}]}]}
        talk.ask(conn, "OffsetCommit", 7, commit, taken)
        talk.ask(conn, "LeaveGroup", 1, {"group_id": "g", "member_id": name}, {})
        talk.close(conn)
        talk.wait(5)
    return talk


GITHUB = "https://github.com"
STORIES = (
    Story(
        f"{GITHUB}/streamnative/kop/issues/135", "Java 2.3", "KoP",
        "ListOffsets for a time is answered with offset 12 and timestamp -1",
        "Kafka answers the timestamp of the record: the broker's fault; Java fails on the negative timestamp",
        time_without_a_timestamp, frozenset({"impossible-answer"}),
        (r"offset 12 and timestamp -1", r"IllegalArgumentException"),
    ),
    Story(
        f"{GITHUB}/kroxylicious/kroxylicious/issues/1028", "Java 3.7", "Kroxylicious 0.4",
        "Produce v10: NOT_LEADER_OR_FOLLOWER; node_endpoints has the address of the broker behind the proxy",
        "the proxy does not rewrite node_endpoints",
        endpoint_behind_the_proxy, frozenset({"node-endpoint-unknown"}),
        (r"kafka-1\.kafka\.svc:9092", r"10\.0\.0\.9:9194", r"upgrade the proxy"),
    ),
    Story(
        f"{GITHUB}/kroxylicious/kroxylicious/issues/822", "kaf (sarama)", "Kroxylicious before Confluent Cloud",
        "SaslHandshake v0, then a token without a header; FIN",
        "the proxy takes the token for a request: SaslHandshake v1",
        token_that_a_proxy_takes_for_a_request, frozenset({"sasl-raw-token-refused"}),
        (r"does not support tokens", r"SASLHandshakeV1"),
    ),
    Story(
        f"{GITHUB}/kafka4beam/brod/pull/465", "brod", "Redpanda 21.7",
        "JoinGroup v0 of a second member is answered at once; the first gets UNKNOWN_MEMBER_ID, joins again, and so on",
        "the coordinator does not wait for members that are there: v0 has no rebalance timeout",
        generations_of_one_member, frozenset({"members-not-waited-for"}),
        (r"without client 'brod'", r"JoinGroup v0 has no rebalance timeout", r"KIP-62"),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/7795", "Java 2.3", "Kafka 2.3, in a reassignment",
        "Fetch: FENCED_LEADER_EPOCH; Metadata has the epoch of the request, each time",
        "the brokers do not show the leader's epoch (KAFKA-9212): the client cannot help it",
        epoch_that_metadata_does_not_show, frozenset({"fetch-error-loop"}),
        (r"FENCED_LEADER_EPOCH", r"epoch of these requests \(4\)", r"not the client's fault", r"KAFKA-9212"),
    ),
    Story(
        f"{GITHUB}/redpanda-data/redpanda/issues/3382", "librdkafka 1.8", "Redpanda 21.11",
        "DeleteTopics for a topic that is not there: CLUSTER_AUTHORIZATION_FAILED",
        "Kafka answers UNKNOWN_TOPIC_OR_PARTITION; no permission is missing",
        deletion_refused_for_the_cluster, frozenset({"impossible-answer"}),
        (r"CLUSTER_AUTHORIZATION_FAILED, which DeleteTopics never answers", r"developers of the broker"),
    ),
    Story(
        f"{GITHUB}/streamnative/kop/pull/242", "Java 2.0 admin client", "KoP 2.6",
        "Metadata has controller_id -1; the client asks again for ever",
        "without a controller, admin clients send nothing: the product leaves it empty",
        controller_of_nobody, frozenset({"no-controller"}), (r"controller_id -1", r"another product"),
    ),
    Story(
        f"{GITHUB}/redpanda-data/console/issues/390", "franz-go in Redpanda Console", "Kafka",
        "ApiVersions v3 with client_software_name 'RP Console': INVALID_REQUEST",
        "a software name has no space",
        software_name_with_a_space, frozenset({"unexplained-error"}),
        (r"RP Console", r"client_software_name", r"a space", r"KIP-511"),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/15060", "Java 3.6", "Kafka 3.6 with tiered storage",
        "Fetch at 1: no records, at once, again and again; the high watermark is 5",
        "the remote segment has not the offset (KAFKA-15388): the broker's fault",
        segment_without_the_offset, frozenset({"fetch-returns-nothing"}),
        (r"offset 1 of orders-0", r"high watermark is 5", r"KAFKA-15388"),
    ),
    Story(
        f"{GITHUB}/apache/kafka/pull/15971", "a broker of Kafka 3.6 to 3.7", "a broker of Kafka 3.5",
        "AddPartitionsToTxn v4 is the first request of a connection: FIN",
        "the older broker does not have v4, and was not asked (KAFKA-16692)",
        version_that_the_older_broker_has_not, frozenset({"closed-on-first-request"}),
        (r"AddPartitionsToTxn v4", r"it does not support this version", r"does not send ApiVersions first"),
    ),
    Story(
        f"{GITHUB}/testcontainers/testcontainers-python/issues/170", "librdkafka 1.8 in Docker", "Kafka in "
        "Testcontainers",
        "bootstrap 172.17.0.1:32768; Metadata names localhost:32768",
        "localhost is the client's own container: advertised.listeners",
        localhost_from_a_container, frozenset({"unreachable-advertised-address"}),
        (r"localhost:32768", r"advertised\.listeners"),
    ),
    Story(
        f"{GITHUB}/SaaSy-Solutions/mockforge/pull/187", "librdkafka 2.3", "MockForge",
        "OffsetCommit of 5 is accepted; OffsetFetch: -1, after each start",
        "the broker forgets commits",
        commits_that_are_forgotten, frozenset({"committed-offset-lost"}),
        (r"after it accepted offset 5", r"another product"),
    ),
)  # fmt: skip
