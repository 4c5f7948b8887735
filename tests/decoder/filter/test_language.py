"""The filter language and its meaning."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange, State, Topics
from barnabas.decoder.connection.api_versions import PeerInfo
from barnabas.decoder.filter import FIELDS, FilterError, compile
from barnabas.decoder.filter.language.check import check
from barnabas.decoder.filter.language.fields import BY_NAME, Known
from barnabas.decoder.filter.language.parser import KEYWORDS, parse
from harness.waiting import PATIENCE

SECOND = 10**9
NOON = 1_699_963_200 * SECOND  # 2023-11-14T12:00:00Z


def exchange(
    api: int, version: int, request: dict[str, Any] | None, response: dict[str, Any] | None = None, **others: Any
) -> Exchange:
    made = Exchange(api_key=api, api_version=version, request_time_ns=NOON, **others)
    if request is not None:
        made.request = decoder.encode_request(api, version, request, correlation_id=1, client_id=made.client_id)
    if response is not None:
        made.response = decoder.encode_response(api, version, response, correlation_id=1)
        made.response_time_ns = NOON + 60 * 10**6
        made.state = State.PAIRED
    return made


def metadata(**errors: dict[int, int]) -> dict[str, Any]:
    """Topics, and the errors of their partitions."""
    return {
        "topics": [
            {"name": name, "partitions": [{"partition_index": i, "error_code": e} for i, e in parts.items()]}
            for name, parts in errors.items()
        ]
    }


@pytest.fixture
def produce() -> Exchange:
    batch = decoder.records.encode_batch([decoder.records.Record(0, 1, b"k", b"v", ())] * 3)
    topics = [
        {"name": "orders", "partition_data": [{"index": 3, "records": batch}, {"index": 4, "records": batch}]},
        {"name": "payments", "partition_data": [{"index": 1, "records": batch}]},
    ]
    answered = [
        {"name": "orders", "partition_responses": [{"index": 3, "error_code": 6}, {"index": 4}]},
        {"name": "payments", "partition_responses": [{"index": 1}]},
    ]
    return exchange(
        0, 9, {"acks": -1, "topic_data": topics, "transactional_id": "pay-0"}, {"responses": answered},
        client_id="stock-1", client="10.0.0.7:50312", broker="kafka-2:9092", connection=17, correlation_id=1,
    )  # fmt: skip


TRUE = """
api == Produce
api == produce && err != 0 and latency > 50ms
api == 0
api in {Fetch, Produce}
api in 0..1
api not in {Fetch, JoinGroup}
not api == Fetch
!(api == Fetch)
ver == 9 and ver in 5..9 and ver < 10 and ver le 9
err == NOT_LEADER_OR_FOLLOWER
err == not_leader_or_follower
err == 6
err
err != NONE
retriable
latency == 60ms
latency in 59ms..0.061s
latency > 59999999ns
latency < 1m and latency < 1h and latency > 1us
latency > 50 ms
client == stock-1
client == "stock-1"
client ~ "^stock-\\d$"
client !~ web
client matches ^stock
client startswith stock and client endswith '-1' and client contains ock
software == "" or not software
conn == 17 and corr == 1
addr == 10.0.0.0/8
addr == 10.0.0.7 and addr == 10.0.0.7:50312 and addr == :50312
addr != 10.0.0.8
client.addr == 10.0.0.7 and ip.addr == kafka-2 and tcp.port == 9092 and tcp.stream == 17
broker == kafka-2:9092 and broker == KAFKA-2 and broker.port == 9092
state == paired and paired and not orphan
size.req > 100B and size.req < 1kB and size > size.req
size.resp < 1KiB
time == 2023-11-14T12:00:00Z
time in 2023-11-14..2023-11-16
time > 2023-11-14T12:59:59.5+01:00
topic == orders
topic == orders and partition == 3
topic == orders and partition == 3 and partition.err != 0
topic == orders and partition.err == NOT_LEADER_OR_FOLLOWER
topic == orders and partition == 4 and partition.err == 0
(topic == orders or topic == payments) and partition == 1
topic == orders and partition != 3
topic in {orders, returns} and partition in {1, 4}
partition == 1
partition.err
errors != 0
not (errors == 0)
any(errors == 0)
errors == 6
txn == pay-0
acks == -1
codec == none and magic == 2 and records == 9
kafka.required_acks == -1 and kafka.topic_name contains order
any(resp.responses[*].partition_responses[*].error_code != NONE)
any(resp.responses.partition_responses.error_code == NOT_LEADER_OR_FOLLOWER)
any(req.topic_data[*].name == orders)
all(req.topic_data[*].partition_data[*].index >= 1)
all(topic ~ "s$")
req.acks == -1
req.transactional_id == pay-0
resp.throttle_time_ms == 0 and throttle == 0 and throttle < 1s
req.timeout_ms < 1s
any(req.topic_data[*].partition_data[*].records contains "v")
"orders"
'ORDERS' and "not_leader" and "10.0.0.7"
err and (api == Fetch or api == Produce)
err and not api == Fetch or api == Fetch
AND_IS_NO_FIELD_BUT_QUOTES_ARE == 1 or err
""".strip().splitlines()[:-1]

FALSE = """
api != Produce
err == 0
not err
latency > 60ms
latency == 5ms
client == stock
client == STOCK-1
client !~ stock
topic == orders and partition == 1
topic == payments and partition == 3
topic == payments and partition.err != 0
topic == orders and partition == 3 and partition.err == 0
topic == returns or topic == payments and partition == 4
topic != orders
partition not in {3, 9}
partition > 4
topic == orders and not (partition == 3)
all(topic == orders)
all(errors == 0)
errors == 0
any(errors == UNKNOWN_MEMBER_ID)
group
member or instance
req.acks != -1
resp.error_code == 0
resp.error_code != 0
any(resp.topics[*].partitions[*].error_code == 0)
all(resp.topics[*].partitions[*].error_code == 0)
any(req.topics[*].name != a)
software
ver > broker.max
pending
pending > 1ns
orphan or undecoded or surplus or changed or noted or carried
time > 2023-11-14T12:00:00Z
time < 2023-11-14
"out of range"
broker == kafka-2:9093
addr == 11.0.0.0/8
codec == gzip
producer.id
topic.id
""".strip().splitlines()


@pytest.mark.parametrize("text", TRUE)
def test_true(produce: Exchange, text: str) -> None:
    assert compile(text)(produce) is True


@pytest.mark.parametrize("text", FALSE)
def test_false(produce: Exchange, text: str) -> None:
    assert compile(text)(produce) is False


def test_fields_of_the_connection() -> None:
    made = exchange(1, 12, {})
    assert not compile("ver > broker.max or ver <= broker.max")(made)
    made.about = PeerInfo()
    made.about.offered = {1: (4, 11), 3: (0, 12)}
    made.about.software_name, made.about.software_version = "apache-kafka-java", "3.9.0"
    assert compile("ver > broker.max and not ver < broker.min and broker.max == 11")(made)
    assert compile('software contains java and software.version ~ "^3[.]"')(made)
    made.api_key = 2
    assert not compile("ver > broker.max or ver <= broker.max")(made)


def test_pending_durations_need_the_time() -> None:
    made = exchange(11, 5, {"group_id": "stock"})
    assert compile("pending")(made) and not compile("pending > 10s")(made)
    assert compile("pending > 10s", now=NOON + 11 * SECOND)(made)
    assert not compile("pending > 10s", now=lambda: NOON + 9 * SECOND)(made)
    assert compile("pending > 10s").at(NOON + 11 * SECOND)(made)
    assert not compile("latency != 5ms and latency == 5ms")(made)
    assert compile("latency != 5ms")(made)  # `!=` is the opposite of `==`: there is no latency


def test_topics_by_id() -> None:
    identity = bytes(range(16))
    topic = {"topic_id": uuid.UUID(bytes=identity), "partitions": [{"partition": 2}]}
    made = exchange(1, 13, {"topics": [topic]})
    assert not compile("topic == orders")(made)
    assert compile("topic.id == 00010203-0405-0607-0809-0a0b0c0d0e0f and partition == 2")(made)
    assert compile("topic.id == AAECAwQFBgcICQoLDA0ODw")(made)
    made.topics = Topics()
    made.topics._names[identity] = "orders"
    assert compile("topic == orders and partition == 2")(made)
    assert not compile("topic == orders and partition == 1")(made)


def test_coordinator_keys_are_groups_or_transactions() -> None:
    for version, fields in ((2, {"key": "stock"}), (4, {"coordinator_keys": ["other", "stock"]})):
        assert compile("group == stock and not txn")(exchange(10, version, fields))
        assert compile("txn == stock and not group")(exchange(10, version, {**fields, "key_type": 1}))


def test_errors_of_topics() -> None:
    made = exchange(3, 5, {}, {"topics": [{"name": "orders", "error_code": 3}, {"name": "returns"}]})
    assert compile("topic == orders and topic.err == UNKNOWN_TOPIC_OR_PARTITION")(made)
    assert not compile("topic == returns and topic.err != 0")(made)
    assert compile("topic == orders and partition.err != 0")(exchange(3, 5, {}, metadata(orders={0: 5}))) is True


def test_undecodable_messages_have_no_values() -> None:
    made = Exchange(api_key=3, api_version=9, request=b"\0\3\0\t", request_time_ns=NOON)
    assert compile("undecoded and not topic and api == Metadata")(made)
    assert not compile("topic == a or any(req.topics.name == a) or group or records")(made)
    unknown = Exchange(api_key=3000, api_version=1, request=b"\x0b\xb8\0\1\0\0\0\0\xff\xff", request_time_ns=NOON)
    assert compile("api == 3000 and not api == Produce and undecoded")(unknown)


def test_filters_that_the_request_decides() -> None:
    for text in ("api == Produce and topic == orders and partition == 3", "acks == 0", "req.group_id == a", "ver > broker.max",
                 "client ~ x or group == y", "addr == 10.0.0.1"):  # fmt: skip
        assert compile(text).request_only
        compile(text).require_request_only()
    for text, pointed in (("api == Produce and err", "err"), ("topic == a and partition.err == 6", "partition.err == 6"),
                          ("latency > 5ms", "latency > 5ms"), ("not resp.error_code == 0", "resp.error_code == 0"),
                          ('api == Fetch or "x"', '"x"'), ("size.req < size.resp", "size.req < size.resp")):  # fmt: skip
        wanted = compile(text)
        assert not wanted.request_only
        with pytest.raises(FilterError, match="before the response") as caught:
            wanted.require_request_only()
        assert text[caught.value.start : caught.value.end] == pointed


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("api == Produce and topic == orders or group == a", Known.BEGINNING),
        ("topic == orders and partition.err != 0", Known.HEADER_PREFIX),
        ("ver > broker.max", Known.HEADER_PREFIX),
        ("any(resp.topics[*].error_code != 0) and req.acks == 1", Known.HEADER_PREFIX),
        ("api == Produce and codec == gzip", Known.MESSAGE),
        ("any(req.topic_data[*].partition_data[*].records contains v)", Known.MESSAGE),
        ('api == Produce and not "orders"', Known.MESSAGE),
        ("latency > pending", Known.COMPLETED),
    ],
)
def test_how_much_of_a_message_decides(text: str, known: Known) -> None:
    assert compile(text).known is known


def test_filters_cannot_be_changed() -> None:
    wanted = compile("topic == orders and partition == 3 and any(req.acks != 0)")
    hash(wanted)
    assert wanted == compile("topic == orders and partition == 3 and any(req.acks != 0)")

    def frozen(node: Any) -> None:
        if dataclasses.is_dataclass(node):
            for field in dataclasses.fields(node):
                value = getattr(node, field.name)
                with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
                    setattr(node, field.name, value)
                for each in value if isinstance(value, tuple) else [value]:
                    frozen(each)

    frozen(wanted)
    frozen(parse(wanted.text))
    assert check(parse(wanted.text), wanted.text) == wanted.tree


def test_the_catalogue() -> None:
    names = [name for field in FIELDS for name in (field.name, *field.synonyms)]
    assert len(names) == len(set(names)) == len(BY_NAME)
    assert not {name.lower() for name in names} & KEYWORDS
    for field in FIELDS:
        assert field.name == field.name.lower() and field.meaning and field.needs
        wanted = compile(field.example)
        assert any(name in field.example for name in (field.name, *field.synonyms))
        assert wanted.tree
        for synonym in field.synonyms:
            assert compile(synonym).tree == compile(synonym.upper()).tree
            assert compile(synonym).tree.field is field  # type: ignore[union-attr]


def test_nothing_of_a_filter_is_executed(tmp_path: Path) -> None:
    """Text of a filter never becomes code: not in the functions over records, nor anywhere else."""
    program = (
        "import builtins, sys\n"
        "from barnabas.decoder.filter import columns, compile\n"
        "seen = []\n"
        "real = builtins.compile\n"
        "columns.compile = lambda source, *more: seen.append(source) or real(source, *more)\n"
        "from barnabas.captures.recording.index import Index, IndexEncoder, Head\n"
        "from barnabas.captures.reading.selection import IndexColumns\n"
        "index = Index.from_encoder(IndexEncoder(), Head(0, 0, '0' * 32, -1, -1, -1))\n"
        'text = \'client == "__import__(1)" and client ~ "evil_word" or corr == 77771 and addr == evil_host\'\n'
        "test = compile(text).columns(IndexColumns(index))\n"
        "list(test.rows(0, 0))\n"
        "assert len(seen) == 1, seen\n"
        "assert not any(word in source for source in seen for word in ('evil', '__import__', '77771')), seen\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=PATIENCE)
