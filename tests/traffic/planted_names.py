"""A recording with names planted in every place that may hold one, and what reads a recording back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.decoder import embedded
from barnabas.decoder.records import Record, encode_batch, encode_messages
from barnabas.decoder.schema import facts
from harness.wire import with_size

START = 1_795_223_022_000_000_000
TOPIC, GROUP, CLIENT, HOST, USER = "payroll-berlin", "ledger-keepers", "accounting-app", "vault-7.acme.example", "gertrude"
TRANSACTION, RACK, CLUSTER, ADDRESS = "closing-books", "cellar-west", "Qm9iJ3NDbHVzdGVyMTIzNA", "84.17.93.201"
KEY, VALUE, HEADER = b"employee-4711", b"salary of Gertrude: 5400 EUR", "audit-trail"
MEMBER = f"{CLIENT}-5f1c7d0e-8a7b-4c1d-9e2f-001122334455"
_NAMES = (TOPIC, GROUP, CLIENT, HOST, USER, TRANSACTION, RACK, CLUSTER, ADDRESS, HEADER, MEMBER)
PLANTED = [*(name.encode() for name in _NAMES), KEY, VALUE, b"hunter2"]


def records(codec: int = 0) -> bytes:
    rows = [Record(i, 1_700_000_000_000 + i, KEY, VALUE * (i + 1), ((HEADER, USER.encode()),)) for i in range(3)]
    return encode_batch(rows, codec=codec)


def _member(which: str) -> bytes:
    fields: dict[str, Any] = {"user_data": f"{USER} decides".encode()}
    if which == "subscription":
        return b"\0\0" + embedded.encode("ConsumerProtocolSubscription", 0, fields | {"topics": [TOPIC]})
    partitions = [{"topic": TOPIC, "partitions": [0, 1]}]
    return b"\0\0" + embedded.encode("ConsumerProtocolAssignment", 0, fields | {"assigned_partitions": partitions})


def _offsets() -> bytes:
    key = b"\0\1" + embedded.encode("OffsetCommitKey", 0, {"group": GROUP, "topic": TOPIC, "partition": 3})
    value = b"\0\3" + embedded.encode("OffsetCommitValue", 3, {"offset": 5, "metadata": f"by {USER}"})
    group_key = b"\0\2" + embedded.encode("GroupMetadataKey", 0, {"group": GROUP})
    member = {
        "member_id": MEMBER,
        "client_id": CLIENT,
        "client_host": f"/{ADDRESS}",
        "subscription": _member("subscription"),
        "assignment": _member("assignment"),
    }
    group = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": MEMBER, "members": [member]}
    group_value = b"\0\3" + embedded.encode("GroupMetadataValue", 3, group)
    return encode_batch([Record(0, 1, key, value), Record(1, 1, group_key, group_value)], codec=3)


def _exchanges() -> Iterable[tuple[str, int, dict[str, Any], dict[str, Any] | None]]:
    broker = {"node_id": 1, "host": HOST, "port": 9092, "rack": RACK}
    partition = {"error_code": 0, "partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    topic = {"error_code": 0, "name": TOPIC, "topic_id": bytes(range(16)), "is_internal": False, "partitions": [partition]}
    yield "ApiVersions", 3, {"client_software_name": "librdkafka", "client_software_version": "2.3"}, {"api_keys": []}
    yield "Metadata", 12, {"topics": [{"name": TOPIC}]}, {
        "brokers": [broker], "cluster_id": CLUSTER, "controller_id": 1, "topics": [topic],
    }  # fmt: skip
    for codec in range(5):
        data = {"name": TOPIC, "partition_data": [{"index": 0, "records": records(codec)}]}
        fields = {"transactional_id": TRANSACTION, "acks": -1, "timeout_ms": 1, "topic_data": [data]}
        answer = {
            "index": 0,
            "error_code": 2,
            "base_offset": 0,
            "record_errors": [{"batch_index": 0, "batch_index_error_message": f"{TOPIC}-0 refused the record"}],
            "error_message": f"User:{USER} may not write to topic {TOPIC}",
        }
        yield "Produce", 9, fields, {"responses": [{"name": TOPIC, "partition_responses": [answer]}]}
    for magic in (0, 1):
        for codec in range(4):
            area = encode_messages([Record(i, 5, KEY, VALUE) for i in range(3)], magic=magic, codec=codec)
            data = {"topic": TOPIC, "partitions": [{"partition_index": 0, "error_code": 0, "records": area}]}
            yield "Fetch", 3, {"topics": [{"topic": TOPIC, "partitions": []}]}, {"responses": [data]}
    internal = {"topic": "__consumer_offsets", "partitions": [{"partition_index": 0, "records": _offsets()}]}
    asked = {"topics": [{"topic": "__consumer_offsets", "partitions": []}], "rack_id": RACK}
    yield "Fetch", 11, asked, {"responses": [internal]}
    by_id = {"topic_id": bytes(range(16)), "partitions": [{"partition_index": 0, "records": records(4)[:-20]}]}
    yield "Fetch", 13, {"topics": [{"topic_id": bytes(range(16)), "partitions": []}]}, {"responses": [by_id]}
    yield "FindCoordinator", 2, {"key": GROUP, "key_type": 0}, {"node_id": 1, "host": HOST, "port": 9092}
    protocols = [{"name": "range", "metadata": _member("subscription")}]
    yield "JoinGroup", 5, {
        "group_id": GROUP, "member_id": MEMBER, "group_instance_id": f"{CLIENT}-static", "protocol_type": "consumer",
        "protocols": protocols,
    }, {
        "generation_id": 1, "protocol_name": "range", "leader": MEMBER, "member_id": MEMBER,
        "members": [{"member_id": MEMBER, "metadata": _member("subscription")}],
    }  # fmt: skip
    yield "SyncGroup", 3, {
        "group_id": GROUP, "generation_id": 1, "member_id": MEMBER,
        "assignments": [{"member_id": MEMBER, "assignment": _member("assignment")}],
    }, {"assignment": _member("assignment")}  # fmt: skip
    yield "OffsetCommit", 6, {
        "group_id": GROUP, "generation_id_or_member_epoch": 1, "member_id": MEMBER,
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_metadata": f"{USER} was here"}]}],
    }, {"topics": []}  # fmt: skip
    acl = {"principal": f"User:{USER}", "host": ADDRESS, "operation": 3, "permission_type": 3}
    asked = {"resource_type_filter": 2, "resource_name_filter": TOPIC, "principal_filter": None}
    yield "DescribeAcls", 1, asked, {"resources": [{"resource_type": 2, "resource_name": TOPIC, "pattern_type": 3, "acls": [acl]}]}
    configs = [{"name": "advertised.listeners", "value": f"SSL://{HOST}:9093", "synonyms": []}]
    resource = {"resource_type": 2, "resource_name": TOPIC}
    yield "DescribeConfigs", 2, {"resources": [resource]}, {"results": [resource | {"configs": configs}]}
    quota = [{"entity_type": "user", "entity_name": USER}]
    yield "DescribeClientQuotas", 0, {"components": []}, {"entries": [{"entity": quota, "values": []}]}
    yield "PushTelemetry", 0, {"metrics": f"{CLIENT} on {HOST}".encode()}, {}
    yield "Envelope", 0, {
        "request_data": decoder.encode_request(3, 9, {"topics": [{"name": TOPIC}]}, client_id=CLIENT),
        "request_principal": b"\0\0" + embedded.encode("DefaultPrincipalData", 0, {"type": "User", "name": USER}),
        "client_host_address": bytes(map(int, ADDRESS.split("."))),
    }, {"response_data": f"{HOST} said so".encode()}  # fmt: skip
    yield "SaslHandshake", 1, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]}
    yield "SaslAuthenticate", 1, {"auth_bytes": f"\0{USER}\0hunter2".encode()}, {"auth_bytes": b""}
    yield "Heartbeat", 3, {"group_id": GROUP, "member_id": MEMBER}, None


def record_planted(directory: Path) -> None:
    """Secrets are not masked in it."""
    recorder = Recorder(directory, redact=False)
    ends = {"client": (ADDRESS, 50001), "broker": (HOST, 9092)}
    recorder.opened(1, START, **ends)
    at = START
    for number, (api, version, asked, answered) in enumerate(_exchanges()):
        key = facts.api_key(api)
        at += 1_000_000
        request = decoder.encode_request(key, version, asked, correlation_id=number, client_id=CLIENT)
        recorder.data(1, 0, at, with_size(request))
        if answered is not None:
            response = decoder.encode_response(key, version, answered, correlation_id=number)
            if api == "Metadata":
                recorder.broker_leg(1, 1, at + 5, with_size(response), f"the address of {HOST} was changed")
                recorder.note(1, number, f"rule for {TOPIC} fired")
            recorder.data(1, 1, at + 1000, with_size(response))
    unknown = (3).to_bytes(2, "big") + (99).to_bytes(2, "big") + (900).to_bytes(4, "big") + b"\0\x0e" + CLIENT.encode()
    recorder.data(1, 0, at + 2000, with_size(unknown + b"\0" + TOPIC.encode() * 3))
    surplus = decoder.encode_request(3, 1, {"topics": [{"name": TOPIC}]}, correlation_id=901, client_id=CLIENT)
    recorder.data(1, 0, at + 3000, with_size(surplus + USER.encode()))
    recorder.data(1, 1, at + 4000, with_size((902).to_bytes(4, "big") + f"an orphan about {TOPIC}".encode()))
    recorder.closed(1, at + 5000, "fin", "client")
    recorder.opened(2, START, client=(ADDRESS, 50002), broker=(HOST, 9092))
    recorder.data(2, 0, START + 7, f"GET /{TOPIC} HTTP/1.1\r\nHost: {HOST}\r\n".encode())
    recorder.closed(2, START + 9, "rst", "broker")
    recorder.opened(3, START, client=(ADDRESS, 50003), broker=(HOST, 9093), failed="refused")
    recorder.closed(3, START + 9, "rst")
    recorder.close()
