"""Explanations against the schema, the releases and Kafka's own definitions; and the strictness of their notation."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from barnabas.decoder.records import codecs
from barnabas.decoder.reference import explain, fields, releases
from barnabas.decoder.reference.explain import ApiText, ErrorText, FieldText, KipText, SettingText, UnknownTerm, find
from barnabas.decoder.reference.explanations import texts
from barnabas.decoder.reference.explanations.blocks import BlockError, NotationRule, parse
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.notation import VersionRange
from real.brokers.broker import jar_directory

SEEDS = Path(__file__).parents[4] / "shared" / "reference" / "seeds"
_SETTING_STEMS = {"auto", "broker", "delete", "group", "log", "max", "message", "quota", "replica", "request"}
"""First words of settings; the texts have addresses and abbreviations of the same form."""


def test_the_texts_are_whole_and_every_reference_leads_somewhere():
    explain.check()


@pytest.mark.parametrize("code", facts.errors())
def test_every_error_has_substance(code: int):
    found = explain.error(code)
    assert (found.code, found.name, found.retriable) == facts.errors()[code]
    assert len(found.what) > 15 and found.what.endswith(".")
    assert found.causes and found.do
    assert found.every or found.apis
    # A cause of one API is of one that can answer the error at all.
    assert all(found.every or cause.api in found.apis for cause in found.causes if cause.api)
    assert all(found.every or own.api in found.apis for own in found.differs)


def test_an_error_means_something_else_in_another_api():
    everywhere = explain.error(facts.error_code("MESSAGE_TOO_LARGE"))
    fetched = everywhere.of("Fetch")
    assert "max.partition.fetch.bytes" in fetched.do[0] and "topic allows" not in fetched.what
    assert {cause.api for cause in fetched.causes} == {"Fetch"}
    assert everywhere.of("Produce").do == everywhere.do and everywhere.of("Produce").what == everywhere.what


@pytest.mark.parametrize("key", facts.api_keys())
def test_every_api_has_substance(key: int):
    found = explain.api(key)
    known = facts.api(key)
    assert (found.key, found.name) == (key, known.name)
    assert len(found.purpose) > 15 and found.purpose.endswith(".")
    assert [fact.version for fact in found.versions] == list(known.versions.every())
    assert [f.name for f in found.request if f.depth == 0] == [explain.snake_case(f.name) for f in known.request.fields]


def test_errors_are_of_apis_whose_responses_have_a_code():
    for code in facts.errors():
        for name in explain.error(code).apis:
            response = explain.api(facts.api_key(name)).response
            assert any(field.name.endswith("error_code") for field in response), (explain.error(code).name, name)


@pytest.mark.real
def test_errors_in_comments_of_kafkas_definitions_are_known():
    """Newer definitions list in comments what a response can hold; all of that must be known here."""
    names = {fact.name for fact in facts.errors().values()}
    (jar,) = jar_directory().glob("kafka-clients-*.jar")
    checked = 0
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            match = re.fullmatch(r"common/message/(\w+)Response\.json", entry)
            if not match:
                continue
            comments = "\n".join(line for line in archive.read(entry).decode().splitlines() if "//" in line)
            for name in set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", comments)) & names:
                found = explain.error(facts.error_code(name))
                assert found.every or match[1] in found.apis, (name, match[1])
                checked += 1
    assert checked > 100


def test_kips():
    found = [explain.kip(name) for name in explain.names() if name.startswith("KIP-")]
    assert len(found) >= 60
    numbers = [kip.number for kip in found]
    assert numbers == sorted(numbers)
    for kip in found:
        assert kip.since in releases.releases() and kip.what.endswith(".") and kip.apis


def test_kips_agree_with_the_releases():
    """The versions of a KIP were introduced in its release."""
    order = releases.releases()
    for name in ("KIP-35", "KIP-43", "KIP-152", "KIP-227", "KIP-320", "KIP-394", "KIP-511", "KIP-714", "KIP-951"):
        kip = explain.kip(name)
        for api, versions in kip.apis:
            if versions:
                since = releases.since(facts.api_key(api), VersionRange.parse(versions).low)
                assert since is not None and order.index(since) == order.index(kip.since), (name, api)


def test_versions_dropped_by_kip_896():
    for api, versions in explain.kip("KIP-896").apis:
        for version in VersionRange.parse(versions).every():
            removal = releases.removed(facts.api_key(api), version)
            assert removal is not None and (removal.release, removal.kip) == ("4.0", "KIP-896"), (api, version)


@pytest.mark.parametrize(
    ("word", "kind", "name"),
    [
        ("UNSUPPORTED_VERSION", ErrorText, "UNSUPPORTED_VERSION"),
        ("unsupported_version", ErrorText, "UNSUPPORTED_VERSION"),
        ("UnsupportedVersionException", ErrorText, "UNSUPPORTED_VERSION"),
        ("NotLeaderForPartitionError", ErrorText, "NOT_LEADER_OR_FOLLOWER"),
        ("NOT_LEADER_FOR_PARTITION", ErrorText, "NOT_LEADER_OR_FOLLOWER"),
        ("Offsets", ApiText, "ListOffsets"),
        ("ConsumerMetadataRequest", ApiText, "FindCoordinator"),
        ("request.required.acks", SettingText, "request.required.acks"),
        ("KIP-40", KipText, "KIP-40"),
        ("last_stable_offset", FieldText, "last_stable_offset"),
        ("lastStableOffset", FieldText, "last_stable_offset"),
        ("RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART", ErrorText, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("-1", ErrorText, "UNKNOWN_SERVER_ERROR"),
        ("fetch", ApiText, "Fetch"),
        ("FetchRequest", ApiText, "Fetch"),
        ("AlterIsr", ApiText, "AlterPartition"),
        ("KIP-896", KipText, "KIP-896"),
        ("kip 896", KipText, "KIP-896"),
        ("848", KipText, "KIP-848"),
        ("max.poll.interval.ms", SettingText, "max.poll.interval.ms"),
        ("max_poll_interval_ms", SettingText, "max.poll.interval.ms"),
    ],
)
def test_one_meaning(word: str, kind: type, name: str):
    (found,) = find(word)
    assert isinstance(found, kind) and found.name == name


@pytest.mark.parametrize(("word", "names"), [("35", ["UNSUPPORTED_VERSION", "DescribeLogDirs"]), ("1", ["OFFSET_OUT_OF_RANGE", "Fetch"])])  # fmt: skip
def test_two_meanings(word: str, names: list[str]):
    assert [each.name for each in find(word)] == names


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("UNSUPORTED_VERSION", "UNSUPPORTED_VERSION"),
        ("NOT_LEDER", "NOT_LEADER_OR_FOLLOWER"),
        ("Metadta", "Metadata"),
        ("leade", "LEADER_NOT_AVAILABLE"),
        ("max_byte", "max_bytes"),
        ("max.poll", "max.poll.interval.ms"),
        ("xyzzy", None),
        ("9999", None),
        ("", None),
    ],
)
def test_unknown_words(word: str, near: str | None):
    with pytest.raises(UnknownTerm) as raised:
        find(word)
    assert (near in raised.value.near) if near else raised.value.near == ()


def test_every_former_name_is_explained_with_todays():
    for former in facts.former_names():
        assert former in explain.former(former.name)
        if former.kind == "field":
            end = former.today.rpartition(":")[2].rpartition(".")[2]
            assert any(isinstance(each, FieldText) and each.name == end for each in find(former.name)), former
            continue
        found = next(each for each in find(former.name) if not isinstance(each, FieldText))
        assert isinstance(found, ErrorText | ApiText) and found.name == former.today
        assert former in found.former
    assert explain.former("Fetch") == explain.former("NOT_LEADER_OR_FOLLOWER") == []


def test_words_of_the_seed_texts_are_explained():
    for path in sorted(SEEDS.glob("*.txt")) if SEEDS.is_dir() else pytest.skip("the seed texts are not on this machine"):
        text = path.read_text("utf-8")
        errors = set(re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)+\b", text)) - {"NULLABLE_STRING", "READ_COMMITTED", "READ_UNCOMMITTED"}
        settings = {word for word in re.findall(r"\b[a-z]+(?:\.[a-z]+){1,5}\b", text) if word.split(".")[0] in _SETTING_STEMS}
        for word in errors | settings | set(re.findall(r"KIP-\d+", text)):
            assert find(word), (path.name, word)


def test_a_former_setting_names_todays():
    assert explain.setting("request.required.acks").today == "acks" and explain.setting("acks").today == ""


def test_fields_by_meaning():
    described, *others = find("max_bytes")
    assert isinstance(described, FieldText) and [place.api for place in described.places] == ["Fetch"] and described.text
    assert all(isinstance(other, FieldText) for other in others)
    assert {other.name for other in others if other.text} == {"partition_max_bytes"}  # once called so
    setting, field = find("isolation_level")
    assert isinstance(setting, SettingText) and isinstance(field, FieldText)
    assert field.values == ((0, "READ_UNCOMMITTED"), (1, "READ_COMMITTED"))
    assert {place.api for place in field.places} == {"Fetch", "ListOffsets"}
    # An API's name is not also a field of that name in another spelling.
    assert [type(each) for each in find("Metadata")] == [ApiText]


def test_facts_of_an_error():
    found = explain.error(35)
    assert found.every and not found.retriable and "KIP-896" in found.kips
    assert any(cause.api == "ApiVersions" and "version 0" in cause.text for cause in found.causes)
    assert explain.error(79).apis == ("JoinGroup",)
    assert "Produce" in explain.error(19).apis and "Fetch" not in explain.error(19).apis
    # sets of APIs
    assert {"JoinGroup", "ConsumerGroupHeartbeat", "EndTxn", "FindCoordinator"} <= set(explain.error(16).apis)


def test_facts_of_an_api():
    fetch = explain.api(1)
    assert "max_wait_ms" in fetch.waits and fetch.senders == ("clients", "brokers", "controllers")
    assert (fetch.versions[0].since, fetch.versions[0].removed) == ("0.8.0", "4.0")
    assert (fetch.versions[13].since, fetch.versions[13].removed) == ("3.1", None)
    assert "FETCH_SESSION_ID_NOT_FOUND" in fetch.errors and "MEMBER_ID_REQUIRED" not in fetch.errors
    assert "KIP-227" in fetch.kips
    topic = next(field for field in fetch.request if field.name == "topic_id")
    assert (topic.type, topic.versions, topic.depth) == ("uuid", "13+", 1)
    held = {explain.api(key).name for key in facts.api_keys() if explain.api(key).waits}
    assert {"Fetch", "JoinGroup", "SyncGroup", "Produce", "ShareFetch"} <= held and "Metadata" not in held


RULES = {"what": NotationRule(needed=True), "do": NotationRule(many=True), "cause": NotationRule(many=True, argument="may"), "value": NotationRule(many=True, argument="must")}  # fmt: skip


def test_a_block():
    (block,) = parse("# why\n\nNAME\n  what: one\n    and more\n  cause Fetch: a\n  cause: b\n  do: x, y\n", "f", RULES)
    assert (block.name, block.line, block.text("what")) == ("NAME", 3, "one and more")
    assert [(entry.argument, entry.text, entry.line) for entry in block.all("cause")] == [
        ("Fetch", "a", 6),
        (None, "b", 7),
    ]
    assert block.words("do") == ["x", "y"] and block.text("value") == ""


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("  what: x\n", 1, 1, "outside a block"),
        ("A\n  what: x\nB\n  what: x\n", 3, 1, "blank line is missing"),
        ("A\n  what: x\n\nA\n  what: x\n", 4, 1, "already explained in line 1"),
        ("A\n  do: x\n", 1, 1, "A has no what"),
        ("A\n  what: x\n  what: y\n", 3, 3, "what twice"),
        ("A\n  what: x\n  who: y\n", 3, 3, "no field who"),
        ("A\n  what\n", 2, 3, "not a field"),
        ("A\n   what: x\n", 2, 3, "not a field"),
        ("A\n  what:\n", 2, 3, "no text"),
        ("A\n    what: x\n", 2, 5, "without a field before it"),
        ("A\n  what Fetch: x\n", 2, 8, "takes no argument"),
        ("A\n  what: x\n  value: y\n", 3, 8, "needs an argument"),
        ("A \n  what: x\n", 1, 2, "spaces at the end of the line"),
        ("A\n\twhat: x\n", 2, 9, "a tab"),
        ("A B\n  what: x\n", 1, 1, "not the name of a block"),
    ],
)
def test_faults_have_a_place(text: str, line: int, column: int, words: str):
    with pytest.raises(BlockError, match=re.escape(words)) as raised:
        parse(text, "f.txt", RULES)
    assert (raised.value.line, raised.value.column) == (line, column)
    assert str(raised.value).startswith(f"f.txt:{line}:{column}: ")


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("errors", "NOT_COORDINATOR\n", "NO_COORDINATOR\n", "there is no error NO_COORDINATOR"),
        (
            "errors",
            "  apis: JoinGroup\n  cause: every new",
            "  apis: JoinGruop\n  cause: every new",
            "no API JoinGruop",
        ),
        (
            "errors",
            "@share-state, FindCoordinator, ListGroups",
            "@shared, FindCoordinator, ListGroups",
            "no set @shared",
        ),
        ("errors", "cause Produce: with acks=all", "cause Product: with acks=all", "no API Product"),
        ("apis", "ListGroups\n", "ListGroup\n", "there is no API ListGroup"),
        ("kips", "apis: Vote 2\n", "apis: Vote 9\n", "Vote has versions 0-2, not 9"),
        ("kips", "  since: 3.7\n", "  since: 3.77\n", "since names '3.77'"),
        ("settings", "see: KIP-402\n", "see: KIP-4020\n", "see names 'KIP-4020'"),
    ],
)
def test_references_are_checked(tmp_path, monkeypatch, name: str, old: str, new: str, words: str):
    for file in texts._TEXTS.iterdir():
        if file.name.endswith(".txt"):
            text = file.read_text("utf-8")
            if file.name == f"{name}.txt":
                assert old in text
                text = text.replace(old, new)
            (tmp_path / file.name).write_text(text)
    monkeypatch.setattr(texts, "_TEXTS", tmp_path)
    caches = [
        each
        for module in (explain, texts)
        for each in vars(module).values()
        if hasattr(each, "cache_clear") and each.__module__ == module.__name__
    ]
    for each in caches:
        each.cache_clear()
    try:
        with pytest.raises(BlockError, match=re.escape(words)) as raised:
            explain.check()
        assert raised.value.source == f"{name}.txt" and raised.value.line > 0
    finally:
        monkeypatch.undo()
        for each in caches:
            each.cache_clear()


def test_meanings_of_numbers():
    assert explain.meaning("Produce", "acks", -1) == "(all in-sync replicas)"
    assert explain.meaning("CreateAcls", "resource_type", 4) == "CLUSTER"
    assert explain.meaning("DescribeConfigs", "resource_type", 4) == "BROKER"
    assert explain.meaning("Fetch", "operation", 3) == explain.meaning("Fetch", "acks", "x") == ""
    assert explain.meaning("ApiVersions", "api_key", 3) == "Metadata"
    assert explain.meaning("Metadata", "error_code", 6) == "NOT_LEADER_OR_FOLLOWER"
    assert explain.meaning("DeleteAcls", "resource_type_filter", 1) == "ANY"
    assert explain.meaning("Metadata", "topic_authorized_operations", (1 << 3) | (1 << 8)) == "READ, DESCRIBE"
    assert explain.meaning("Metadata", "topic_authorized_operations", -(1 << 31)) == "(not requested)"
    assert explain.meaning("FindCoordinator", "key_type", True) == ""


def test_words_for_numbers_are_of_fields_that_exist():
    for _, name in texts.values():
        assert name in fields.by_name(), name
    assert texts.values()["PushTelemetry", "compression_type"] == {number: codecs.name(number) for number in range(5)}
