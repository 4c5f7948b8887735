"""The translator by itself: every API at every version, and what the schema alone does not know."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import records
from barnabas.decoder.records import Record
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.plugins.translation import Answered, Translated, Translator, served_by, version_ranges
from barnabas.plugins.translation.translating_adapter import TranslatingAdapter
from barnabas.plugins.translation.translator import refused
from barnabas.plugins.versions.adapter import AdaptedRequest, Answer, Close, Forward
from harness.generator import Generator, triples

NOW = 1_700_000_000_000


def translator(release: str) -> Translator:
    return Translator(served_by(releases.release(release).offered))


def request(api: str, version: int, fields: dict[str, Any], correlation_id: int = 7) -> bytes:
    key = facts.api_key(api)
    return decoder.encode_request(key, version, fields, correlation_id=correlation_id, client_id="old")


class Exchange:
    """One exchange through a translator in front of brokers of a release."""

    def __init__(self, release: str, api: str, version: int, fields: dict[str, Any]) -> None:
        self.translator = translator(release)
        self.key, self.version = facts.api_key(api), version
        found = self.translator.request(request(api, version, fields))
        assert isinstance(found, Translated), found
        self.translated = found
        messages = [decoder.decode_request(frame) for frame in found.frames]
        assert {m.header["client_id"] for m in messages} == {"old"} and messages[0].header["correlation_id"] == 7
        self.served = messages[0].api_version
        self.asked = [message.to_dict() for message in messages]

    def answer(self, *fields: dict[str, Any]) -> dict[str, Any]:
        """What the client gets when the broker answers this."""
        frames = [decoder.encode_response(self.key, self.served, each, correlation_id=7) for each in fields]
        frame = self.translator.response(self.translated, frames)
        message = decoder.decode_response(frame, api_key=self.key, api_version=self.version)
        assert message.header["correlation_id"] == 7
        return message.to_dict()


def refusal(release: str, api: str, version: int, fields: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    found = translator(release).request(request(api, version, fields))
    assert isinstance(found, Answered) and found.refusal
    if not found.frame:
        return None, found.why
    message = decoder.decode_response(found.frame, api_key=facts.api_key(api), api_version=version)
    return message.to_dict(), found.why


def partition(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "t", "partitions": [{"partition_index": 1, **fields}]}]


@pytest.mark.parametrize("release", ["4.3", "2.1", "0.10.2", "0.9.0", "0.8.2"])
def test_every_request_is_answered_in_its_version(release):
    """The broker gets only versions it serves, the client only its own."""
    between, kinds = translator(release), set()
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            found = between.request(decoder.encode_request(key, version, {}, correlation_id=3))
            kinds.add(type(found))
            if found is None:
                assert releases.release(release).serves(key, version)
            elif isinstance(found, Answered):
                if found.frame:
                    answer = decoder.decode_response(found.frame, api_key=key, api_version=version)
                    assert answer.header["correlation_id"] == 3
            else:
                for frame in found.frames:
                    assert releases.release(release).serves(*decoder.peek_request(frame)[:2])
                    decoder.decode_request(frame)
                made = [decoder.encode_response(key, one.served, {}, correlation_id=3) for one in found.asked]
                decoder.decode_response(between.response(found, made), api_key=key, api_version=version)
    assert kinds == {Translated, Answered, type(None)}


# --- old clients -------------------------------------------------------------------------------------------------------


def test_list_offsets_0_with_several_offsets_and_a_time():
    asked = [
        {"partition_index": 0, "timestamp": -1, "max_num_offsets": 2},
        {"partition_index": 1, "timestamp": 5000, "max_num_offsets": 1},
        {"partition_index": 2, "timestamp": -2, "max_num_offsets": 9},
    ]
    exchange = Exchange("4.3", "ListOffsets", 0, {"replica_id": -1, "topics": [{"name": "t", "partitions": asked}]})
    where = [
        [(p["partition_index"], p["timestamp"]) for topic in each["topics"] for p in topic["partitions"]]
        for each in exchange.asked
    ]
    assert where == [[(0, -1), (1, 5000), (2, -2)], [(1, -1)], [(0, -2)]]

    def offsets(**of: int) -> dict[str, Any]:
        listed = [{"partition_index": int(p[1:]), "error_code": 0, "offset": offset} for p, offset in of.items()]
        return {"topics": [{"name": "t", "partitions": listed}]}

    got = exchange.answer(offsets(p0=70, p1=-1, p2=10), offsets(p1=90), offsets(p0=10))
    assert [p["old_style_offsets"] for p in got["topics"][0]["partitions"]] == [[70, 10], [90], [10]]


def test_offset_commit_0_becomes_a_commit_without_a_member():
    committed = {"group_id": "g", "topics": partition(committed_offset=5, committed_metadata="m")}
    exchange = Exchange("4.3", "OffsetCommit", 0, committed)
    (asked,) = exchange.asked
    assert (asked["generation_id_or_member_epoch"], asked["member_id"], asked["retention_time_ms"]) == (-1, "", -1)
    assert asked["topics"][0]["partitions"] == [
        {"partition_index": 1, "committed_offset": 5, "committed_metadata": "m"}
    ]


def test_offset_commit_1_loses_its_times_with_a_note():
    topics = partition(committed_offset=5, commit_timestamp=1234, committed_metadata=None)
    commit = {"group_id": "g", "generation_id_or_member_epoch": 3, "member_id": "m", "topics": topics}
    exchange = Exchange("4.3", "OffsetCommit", 1, commit)
    assert exchange.asked[0]["member_id"] == "m" and exchange.asked[0]["generation_id_or_member_epoch"] == 3
    assert exchange.translated.notes == ["the time of a commit is now the broker's"]


def test_offset_fetch_0_has_an_error_where_nothing_was_committed():
    exchange = Exchange("4.3", "OffsetFetch", 0, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1]}]})
    got = exchange.answer({"topics": partition(committed_offset=-1, metadata="", error_code=0)})
    assert got["topics"][0]["partitions"][0]["error_code"] == facts.error_code("UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
@pytest.mark.parametrize("acks", [1, 2])
def test_produce_becomes_one_batch(version, magic, acks):
    sent = [Record(i, NOW + i if magic else None, b"k", b"v%d" % i) for i in range(3)]
    data = records.encode_messages(sent, magic=magic)
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
    exchange = Exchange("4.3", "Produce", version, {"acks": acks, "timeout_ms": 9, "topic_data": topics})
    (asked,) = exchange.asked
    assert asked["acks"] == (1 if acks == 1 else -1) and asked["timeout_ms"] == 9 and asked["transactional_id"] is None
    (batch,) = records.batches(asked["topic_data"][0]["partition_data"][0]["records"])
    assert batch.magic == 2 and batch.crc_ok and [r.value for r in batch.records()] == [b"v0", b"v1", b"v2"]
    assert [r.timestamp for r in batch.records()] == ([NOW, NOW + 1, NOW + 2] if magic else [-1, -1, -1])
    storage = facts.error_code("KAFKA_STORAGE_ERROR")
    failed = {"index": 0, "error_code": storage, "base_offset": -1}
    got = exchange.answer({"responses": [{"name": "t", "partition_responses": [failed]}], "throttle_time_ms": 4})
    (part,) = got["responses"][0]["partition_responses"]
    assert part["error_code"] == facts.error_code("NOT_LEADER_OR_FOLLOWER")  # KIP-112
    assert got.get("throttle_time_ms", 4) == 4 and ("throttle_time_ms" in got) == (version >= 1)


def test_produce_without_acks_awaits_nothing():
    found = translator("4.3").request(request("Produce", 0, {"acks": 0, "timeout_ms": 1, "topic_data": []}))
    assert isinstance(found, Translated) and not found.awaited


def test_produce_of_damaged_records_is_answered_as_kafka_does():
    data = bytearray(records.encode_messages([Record(0, None, b"k", b"v")], magic=0))
    data[-1] ^= 1
    topics = [{"name": "t", "partition_data": [{"index": 3, "records": bytes(data)}]}]
    got, why = refusal("4.3", "Produce", 0, {"acks": 1, "timeout_ms": 1, "topic_data": topics})
    assert got is not None and "CRC" in why
    (part,) = got["responses"][0]["partition_responses"]
    assert (part["index"], part["error_code"]) == (3, facts.error_code("CORRUPT_MESSAGE"))


def fetch(offset: int) -> dict[str, Any]:
    asked = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}]
    return {"replica_id": -1, "max_wait_ms": 1, "min_bytes": 1, "topics": [{"topic": "t", "partitions": asked}]}


def fetched(data: bytes | None) -> dict[str, Any]:
    part = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "last_stable_offset": 9, "records": data}
    return {"responses": [{"topic": "t", "partitions": [part | {"aborted_transactions": None}]}]}


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_fetch_gets_message_sets(version, magic):
    batch = records.encode_batch([Record(4, NOW, b"k", b"v", (("h", b"x"),))], base_offset=4)
    exchange = Exchange("4.3", "Fetch", version, fetch(4))
    assert exchange.asked[0]["max_bytes"] == 0x7FFFFFFF and exchange.asked[0]["isolation_level"] == 0
    (part,) = exchange.answer(fetched(batch))["responses"][0]["partitions"]
    (message,) = records.batches(part["records"])
    (record,) = message.records()
    assert (message.magic, record.offset, record.value) == (magic, 4, b"v")
    assert record.timestamp == (NOW if magic else None)
    assert "1 record headers left out" in exchange.translated.notes[0]


def test_fetch_goes_on_behind_what_an_old_consumer_cannot_see():
    """A transaction marker is all that there is at offset 4: a client that gets nothing would ask for it for ever."""
    marker = records.encode_batch(
        [Record(4, NOW, b"\0\0\0\1", b"\0" * 6)], base_offset=4, control=True, transactional=True
    )
    between = translator("4.3")

    def ask(offset: int) -> tuple[Translated, int]:
        found = between.request(request("Fetch", 1, fetch(offset)))
        assert isinstance(found, Translated)
        return found, decoder.decode_request(found.frames[0])["topics[0].partitions[0].fetch_offset"]

    found, asked = ask(4)
    assert asked == 4
    response = decoder.encode_response(1, 4, fetched(marker), correlation_id=7)
    got = decoder.decode_response(between.response(found, [response]), api_key=1, api_version=1)
    assert got["responses[0].partitions[0].records"] == b""
    assert ask(4)[1] == 5
    assert ask(3)[1] == 3


def test_null_records_are_empty_ones_to_old_clients():
    exchange = Exchange("4.3", "Fetch", 0, fetch(0))
    assert exchange.answer(fetched(None))["responses"][0]["partitions"][0]["records"] == b""


def test_describe_configs_0_knows_only_defaults():
    exchange = Exchange("4.3", "DescribeConfigs", 0, {"resources": []})
    config = {"name": "a", "value": "1", "read_only": False, "is_sensitive": False}
    result = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "t"}
    configs = [config | {"config_source": 5}, config | {"config_source": 1}]
    got = exchange.answer({"results": [result | {"configs": configs}]})
    assert [c["is_default"] for c in got["results"][0]["configs"]] == [True, False]


def test_the_sources_of_settings_that_0_does_not_tell():
    """As DescribeConfigsResponse has them in kafka-clients: Java 1.1 takes no unknown one."""
    config = {"name": "a", "value": "1", "read_only": False, "is_sensitive": False}
    configs = [config | {"is_default": True}, config | {"is_default": False}]
    results = [
        {"error_code": 0, "error_message": None, "resource_type": kind, "resource_name": "1", "configs": configs}
        for kind in (2, 4, 8)
    ]
    got = Exchange("0.11.0", "DescribeConfigs", 1, {"resources": []}).answer({"results": results})
    assert [[c["config_source"] for c in each["configs"]] for each in got["results"]] == [[5, 1], [5, 4], [5, 0]]


# --- new clients -------------------------------------------------------------------------------------------------------


def test_metadata_of_all_and_of_none_and_without_making_topics():
    everything = {"brokers": [], "topics": [{"error_code": 0, "name": n, "partitions": []} for n in ("t", "u")]}
    assert Exchange("0.9.0", "Metadata", 1, {"topics": None}).asked == [{"topics": []}]
    assert Exchange("0.9.0", "Metadata", 1, {"topics": []}).answer(everything)["topics"] == []
    # no broker is named as the controller there: some clients would look for one for ever
    brokers = [{"node_id": number, "host": "h", "port": 1} for number in (5, 3)]
    assert Exchange("0.9.0", "Metadata", 5, {"topics": None}).answer({"brokers": brokers})["controller_id"] == 3
    assert Exchange("0.9.0", "Metadata", 5, {"topics": None}).answer({"brokers": []})["controller_id"] == -1
    known = {"brokers": brokers, "controller_id": 5}
    assert Exchange("0.10.2", "Metadata", 5, {"topics": None}).answer(known)["controller_id"] == 5
    named = {"topics": [{"name": "u"}, {"name": "new"}], "allow_auto_topic_creation": False}
    exchange = Exchange("0.10.2", "Metadata", 8, named)
    assert exchange.asked == [{"topics": None}]
    got = exchange.answer(everything)["topics"]
    assert [(t["name"], t["error_code"]) for t in got] == [("u", 0), ("new", 3)]


def test_coordinators_of_several_keys_are_asked_one_by_one():
    exchange = Exchange("0.10.2", "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["a", "b"]})
    assert [asked["key"] for asked in exchange.asked] == ["a", "b"]
    found = [{"error_code": 0, "node_id": n, "host": "h", "port": 9} for n in (1, 2)]
    got = exchange.answer(*found)["coordinators"]
    assert [(c["key"], c["node_id"]) for c in got] == [("a", 1), ("b", 2)]
    nothing = translator("0.10.2").request(request("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": []}))
    assert isinstance(nothing, Answered) and not nothing.refusal
    got, why = refusal("0.10.2", "FindCoordinator", 1, {"key": "tx", "key_type": 1})
    assert got is not None and got["error_code"] == 35 and "transactions" in why


def test_members_leave_one_by_one():
    members = [{"member_id": "a"}, {"member_id": "b"}]
    exchange = Exchange("0.10.2", "LeaveGroup", 3, {"group_id": "g", "members": members})
    assert [asked["member_id"] for asked in exchange.asked] == ["a", "b"]
    got = exchange.answer({"error_code": 0}, {"error_code": 25})
    assert got["error_code"] == 0 and [m["error_code"] for m in got["members"]] == [0, 25]


def test_offsets_of_several_groups():
    topics = [{"name": "t", "partition_indexes": [1]}]
    groups = [{"group_id": "a", "topics": topics}, {"group_id": "b", "topics": topics}]
    exchange = Exchange("0.10.2", "OffsetFetch", 8, {"groups": groups, "require_stable": True})
    answer = {"topics": partition(committed_offset=5, metadata="", error_code=0), "error_code": 16}
    got = exchange.answer(answer, answer | {"error_code": 0})
    assert [(g["group_id"], g["error_code"]) for g in got["groups"]] == [("a", 16), ("b", 0)]
    assert "require_stable" in exchange.translated.notes[0]


def test_produce_for_old_brokers_loses_headers_with_a_note():
    batch = records.encode_batch([Record(0, NOW, b"k", b"v", (("h", b"x"),))], codec=4)
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
    exchange = Exchange("0.10.2", "Produce", 9, {"acks": -1, "timeout_ms": 9, "topic_data": topics})
    (message,) = records.batches(exchange.asked[0]["topic_data"][0]["partition_data"][0]["records"])
    assert (message.magic, message.codec_name) == (1, "gzip")
    assert exchange.translated.notes == ["1 record headers left out: the older message format has none"]


@pytest.mark.parametrize(
    ("api", "version", "fields", "why"),
    [
        ("JoinGroup", 5, {"group_instance_id": "i"}, "group_instance_id does not exist in version 1"),
        ("Metadata", 12, {"topics": [{"topic_id": b"i" * 16, "name": None}]}, "topic by its id"),
        ("OffsetFetch", 10, {"groups": []}, "topic ids"),
        ("InitProducerId", 0, {}, "the broker does not have InitProducerId"),
        ("ListOffsets", 7, {"topics": partition(timestamp=-3)}, "newest timestamp"),
        ("CreateTopics", 4, {"topics": [{"name": "t", "num_partitions": -1, "replication_factor": 1}]}, "defaults"),
        ("DeleteTopics", 6, {"topics": [{"name": None, "topic_id": b"i" * 16}]}, "topic by its id"),
    ],
)
def test_requests_that_cannot_be_converted_are_refused_in_the_clients_version(api, version, fields, why):
    got, reason = refusal("0.10.2", api, version, fields)
    assert why in reason
    assert got is None or 35 in _codes(got) or not _codes(got)


def test_every_request_that_can_be_read_can_be_refused():
    """Whatever it names, and leaves null, can be repeated in the answer."""
    for number, (kind, key, version) in enumerate(triples()):
        if kind != "request":
            continue
        head = decoder.decode_request(decoder.encode_request(key, version, {}, correlation_id=1, client_id="x"))
        asked = decoder.decode_request(head.frame[: head.body_start] + Generator(number).body(kind, key, version)[1])
        answered = refused(asked, "UNSUPPORTED_VERSION", "no").frame
        assert not answered or decoder.decode_response(answered, api_key=key, api_version=version) is not None


def _codes(value: Any) -> list[int]:
    if isinstance(value, dict):
        own = [value["error_code"]] if value.get("error_code") else []
        return own + [code for item in value.values() for code in _codes(item)]
    return [code for item in value for code in _codes(item)] if isinstance(value, list) else []


# --- ApiVersions -------------------------------------------------------------------------------------------------------


def listed(fields: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {facts.api_name(k["api_key"]): (k["min_version"], k["max_version"]) for k in fields["api_keys"]}


def entries(release: str) -> list[dict[str, Any]]:
    offered = releases.release(release).offered
    return [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in offered.items()]


def test_old_clients_are_offered_bridgeable_versions():
    shown = listed(Exchange("4.3", "ApiVersions", 0, {}).answer({"error_code": 0, "api_keys": entries("4.3")}))
    assert (shown["Produce"], shown["Fetch"], shown["ListOffsets"]) == ((0, 13), (0, 18), (0, 11))
    assert "LeaderAndIsr" not in shown


def test_new_clients_are_offered_no_more_than_they_need():
    """0.10.2 answers version 0 only. It gets the versions without which no client of today works; with Metadata 4 kafka-python
    would take it for 0.11, and ask for a producer id that it does not have."""
    exchange = Exchange("0.10.2", "ApiVersions", 4, {"client_software_name": "x", "client_software_version": "1"})
    assert exchange.served == 0
    shown = listed(exchange.answer({"error_code": 0, "api_keys": entries("0.10.2")}))
    assert (shown["Produce"], shown["Fetch"], shown["Metadata"]) == ((0, 3), (0, 4), (0, 2))
    assert "InitProducerId" not in shown


@pytest.mark.parametrize("name", [each for each in releases.releases() if releases.release_order(each) < (2, 1)])
def test_no_version_is_offered_of_a_release_whose_other_apis_the_broker_lacks(name):
    """Clients infer a release from one version, and use what else it has. Only what every client of today needs is offered even so."""
    broker, today = releases.release(name), releases.release(releases.releases()[-1])
    for key, (_, high) in version_ranges.shown(version_ranges.of_release(broker)).items():
        since = releases.since(key, high)
        most = (broker.served(key) or (0, -1))[1]
        if (key, high) == (11, 1):  # kafka-go joins no group without it, and no client infers a release from it
            continue
        if since is None or key == 18 or high <= max(most, (today.served(key) or (0, 0))[0]):
            continue
        if releases.release_order(since) >= (0, 10, 1):
            missing = [other for other in releases.release(since).offered if other not in broker.offers and version_ranges.of_clients(other)]
            assert not missing, (facts.api_name(key), high, since, list(map(facts.api_name, missing)))


def test_an_api_versions_that_the_proxy_has_sent_itself_answers_the_clients():
    """A broker takes one of them before a login."""
    adapter = TranslatingAdapter(served_by(releases.release("4.3").offered))
    adapter.translator.asked = True
    asked = request("ApiVersions", 3, {"client_software_name": "x", "client_software_version": "1"})
    step = adapter.request(asked)
    assert isinstance(step, Answer)
    shown = listed(decoder.decode_response(step.frame, api_key=18, api_version=3).to_dict())
    assert (shown["Produce"], shown["Fetch"], shown["ApiVersions"][0]) == ((0, 13), (0, 18), 0)
    assert isinstance(adapter.request(asked), Forward)


def test_api_versions_is_answered_for_brokers_without_it():
    found = translator("0.8.2").request(request("ApiVersions", 3, {}))
    assert isinstance(found, Answered) and not found.refusal
    shown = listed(decoder.decode_response(found.frame, api_key=18, api_version=3).to_dict())
    assert shown["Produce"] == (0, 3) and shown["Metadata"] == (0, 1)
    assert shown["ApiVersions"] == (0, 3) and "JoinGroup" not in shown


def test_clients_that_take_any_answer_for_groups_meet_0_8_as_it_is():
    """kafka-python before 3 asks ApiVersions (0; from 2.1 on 4 first), then ListGroups 0: it takes answers for 0.10 and
    0.9, a close for 0.8."""
    adapter = TranslatingAdapter(served_by(releases.release("0.8.2").offered))
    assert adapter.wants(18, 0) and adapter.wants(16, 0)
    for api in ("ApiVersions", "ListGroups"):
        assert isinstance(adapter.request(request(api, 0, {})), Close)
    software = {"client_software_name": "kafka-python", "client_software_version": "2.2.15"}
    assert isinstance(adapter.request(request("ApiVersions", 4, software)), Close)
    software["client_software_version"] = "3.0.12"
    assert isinstance(adapter.request(request("ApiVersions", 4, software)), Answer)
    offered = translator("0.8.2")
    for version in (3, 0):  # a client that falls back has been answered
        answer = offered.request(request("ApiVersions", version, {}))
        assert isinstance(answer, Answered) and not answer.refusal
    refusal = offered.request(request("ListGroups", 0, {}))
    assert isinstance(refusal, Answered) and refusal.frame
    with_groups = translator("0.9.0").request(request("ApiVersions", 0, {}))
    assert isinstance(with_groups, Answered) and with_groups.frame


# --- as an adapter -----------------------------------------------------------------------------------------------------


def test_the_adapter_sends_further_parts_first_and_leaves_tokens_alone():
    adapter = TranslatingAdapter(served_by(releases.release("0.10.2").offered))
    assert adapter.wants(10, 4) and not adapter.wants(10, 0) and adapter.wants(18, 0)
    step = adapter.request(request("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["a", "b"]}))
    assert isinstance(step, Forward) and len(step.before) == 1 and "translated from version 4 to 0" in step.note
    asked = AdaptedRequest(10, 4, 7, step.memo)
    found = [decoder.encode_response(10, 0, {"node_id": n, "host": "h"}, correlation_id=7 + n) for n in (0, 1)]
    adapter.response_before(asked, 0, found[1])
    got = decoder.decode_response(adapter.response(asked, found[0]), api_key=10, api_version=4)
    assert [c["node_id"] for c in got["coordinators"]] == [0, 1] and got.header["correlation_id"] == 7
    assert adapter.request(b"\0user\0secret") == Forward(b"\0user\0secret")
    answer = adapter.request(request("InitProducerId", 0, {}))
    assert isinstance(answer, Answer) and "not translated" in answer.note
    assert isinstance(adapter.request(request("OffsetCommit", 10, {"topics": []})), Answer | Close)
