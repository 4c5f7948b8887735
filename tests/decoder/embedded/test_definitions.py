"""Every definition outside of the APIs: round trips, the layouts of Kafka's jars, and Kafka's own classes as judge."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.decoder import DecodeError, embedded
from barnabas.decoder.codec import payload
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.reference.definitions import importer
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import Plan, extra_plan
from harness.generator import Generator
from harness.waiting import PATIENCE
from real.kafka_classes.test_java_classes import as_kafkas_json

CACHE = Path(__file__).parents[3] / ".cache"
JAVA = Path(__file__).parent / "java"
FILES = [file for file in facts.extra_files() if file != "headers"]

# What releases before 4.1 wrote under the same version while share groups were in early access.
EARLY_ACCESS = {
    "ShareGroupMetadataValue",
    "ShareGroupPartitionMetadataValue",
    "ShareGroupStatePartitionMetadataValue",
    "ShareSnapshotValue",
    "ShareUpdateValue",
}


def plans() -> Iterator[Plan]:
    for file in FILES:
        for name, definition in facts.extra(file).items():
            for version in definition.versions.every():
                yield extra_plan(file, name, version)


def test_number_of_definitions():
    by_file = {file: len(facts.extra(file)) for file in FILES}
    # Kafka 3.9 has 34 data and 29 metadata definitions; these are the union with 4.4, and the three
    # group protocols (consumer, connect, streams) that no JSON describes.
    assert sum(by_file.values()) - 4 >= 63
    assert by_file["embedded/cluster_metadata"] == 27 and by_file["embedded/consumer_offsets"] == 46


def test_values_survive(generator):
    count = 0
    for of in plans():
        for _ in range(4):
            values = generator.values(of)
            out = bytearray()
            encode_struct(of.root, values, out)
            message = embedded.decode(of.name, of.version, bytes(out))
            assert message.values == values and not message.trailing, (of.name, of.version)
            assert embedded.encode(of.name, of.version, message.to_dict()) == out, (of.name, of.version)
            assert embedded.encode(of.name, of.version, message.to_json()) == out, (of.name, of.version)
        count += 1
    assert count >= 125


def test_bytes_before_the_start_are_skipped_and_bytes_after_the_end_kept():
    data = embedded.encode("TransactionLogKey", 0, {"transactional_id": "tx"})
    message = embedded.decode("TransactionLogKey", 0, b"\0\0" + data + b"more", 2)
    assert message["transactional_id"] == "tx" and message.trailing == b"more"
    assert payload.fields_of(message)["surplus_bytes"] == 4


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("NoSuchThing", 0, "there is no definition"),
        ("TopicRecord", 9, "version 9 is not known"),
        ("TopicRecord", 0, "only 2 left"),
    ],
)
def test_unknown_names_versions_and_cut_bytes(name, version, message):
    with pytest.raises(DecodeError, match=message):
        embedded.decode(name, version, b"\x05ab")


def jars() -> list[Path]:
    """The jars with definitions that have been fetched; those of 4.4.0 are part of the broker. Releases before 3.9 had
    other data definitions under the same names (LeaderChangeMessage), which no release since has read."""
    found = {path.name: path for path in CACHE.rglob("kafka-*.jar")}
    found = {name: path for name, path in found.items() if re.search(r"-(3\.9|[4-9])\.", name)}
    return [path for _, path in sorted(found.items())]


def definitions_of(jar: Path) -> dict[str, Any]:
    with zipfile.ZipFile(jar) as archive:
        entries = archive.namelist()
        files = {name: archive.read(name).decode() for name in importer.definition_files(entries)}
        found = importer.read_definitions(files, importer.topic_of(entries))
    return {name: definition for name, definition in found.items() if definition.kind == "data"}


def test_same_layouts_as_the_jars():
    seen = {}
    for jar in jars():
        release = jar.stem.rsplit("-", 1)[1]
        for name, theirs in definitions_of(jar).items():
            ours = payload.definition(name)
            assert (theirs.key, theirs.listeners) == (ours.key, ours.listeners), (jar.name, name)
            for version in theirs.versions.every():
                seen[release, name, version] = True
                if release < "4.1" and name in EARLY_ACCESS:
                    continue
                before, after = importer.layout(theirs, version), importer.layout(ours, version)
                if release >= "4.4":
                    assert before == after, (jar.name, name, version)
                else:  # later releases add tagged fields at the same version, and what such a field holds
                    tags = tuple(f"{line.split()[0]}." for line in after if " tag" in line)
                    kept = [x for x in after if x in before or not (" tag" in x or x.startswith(tags))]
                    assert kept == before, (jar.name, name, version)
    newest = {name for release, name, _ in seen if release == "4.4.0"}
    assert len(newest) >= 92, "the jars are fetched by: make broker"


def test_importing_a_known_release_changes_nothing():
    for jar in jars():
        if jar.stem.endswith("4.4.0"):
            theirs = definitions_of(jar)
            ours = {name: payload.definition(name) for name in theirs}
            assert importer.differences(ours, theirs) == []
            files = importer.schema_files(importer.union(ours, theirs))
            for name, definition in theirs.items():
                # what belongs to a topic goes to that topic's file
                file = f"embedded/{definition.listeners[0].strip('_')}" if definition.listeners else "data"
                assert f"data {name} " in files[f"{file}.kafka"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, // "b": 2\n "c": "x // y /* z */"}', {"a": 1, "c": "x // y /* z */"}),
        ('/** licence **/ {"a": "\\"//", /***/ "b": 2} behind', {"a": '"//', "b": 2}),
    ],
)
def test_comments_in_definitions(text, value):
    assert importer._load_json(text) == value


def test_record_types_that_3_9_kept_as_versions():
    head = '{"type": "data", "validVersions": "%s", "flexibleVersions": "none", "name": "%s", "fields": [%s]}'
    field = '{"name": "group", "type": "string", "versions": "0-1"}'
    files = {"k": head % ("0-1", "OffsetCommitKey", field), "v": head % ("0", "OffsetCommitValue", "")}
    found = importer.read_definitions(files, "__consumer_offsets")
    key, value = found["OffsetCommitKey"], found["OffsetCommitValue"]
    assert (key.key, str(key.versions), value.key) == (1, "0", 1)
    assert importer.layout(key, 0) == ["group string", "end"]
    # without a topic they stay what they were
    assert importer.read_definitions(files)["OffsetCommitKey"].key is None


@pytest.mark.real
def test_kafkas_own_classes_agree():
    clients = sorted(CACHE.rglob("kafka-clients-4.4.0.jar"))
    assert clients, "Kafka's jars are fetched by: make broker"
    generator = Generator(5)
    cases: list[tuple[Plan, bytes]] = []
    for of in plans():
        for _ in range(4):
            body = bytearray()
            encode_struct(of.root, generator.values(of), body)
            cases.append((of, bytes(body)))
    path = [str(p) for p in (CACHE / "broker").glob("*.jar")]
    path += [str(p) for p in CACHE.glob("definitions/kafka-streams-4.4.0.jar")]
    done = subprocess.run(
        ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", ":".join(path), str(JAVA / "Definitions.java")],
        input="\n".join(f"{of.name} {of.version} {body.hex() or '-'}" for of, body in cases),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.split("\n")[:-1]
    assert len(answers) == len(cases)
    checked = set()
    for (of, body), answer in zip(cases, answers, strict=True):
        if answer == "-":
            continue  # no class of this release
        assert not answer.startswith("! "), f"{of.name} v{of.version}: {answer} {body.hex()}"
        rest, written, text = answer.split(" ", 2)
        assert rest == "0", f"{of.name} v{of.version}: Java leaves {rest} bytes"
        assert bytes.fromhex(written.rstrip("x")) == body, f"{of.name} v{of.version}"
        message = embedded.decode(of.name, of.version, body)
        if text != "{}":
            for name, ours, theirs in as_kafkas_json(of.root, message.to_dict(), json.loads(text)):
                assert ours == theirs, (of.name, of.version, name)
        checked.add((of.name, of.version))
    assert len({name for name, _ in checked}) >= 90
