"""A release's folder of jars, taken in with one command."""

from __future__ import annotations

import zipfile
from pathlib import Path

BROKER = Path(__file__).parents[4] / ".cache" / "broker"

NEW_RECORD = """{"apiKey": 99, "type": "coordinator-%s", "name": "TeaGroup%s", "validVersions": "0", // a comment
  "flexibleVersions": "%s", "fields": [{"name": "GroupId", "type": "string", "versions": "0"}]}"""


def test_the_broker_of_the_tests_brings_nothing_new(run):
    assert BROKER.is_dir(), "Kafka's jars are fetched by: make broker"
    done = run("schema", "import", BROKER, "--keep")
    assert done.returncode == 0 and "0 schema files would change" in done.stdout
    lines = [line for line in done.stdout.splitlines() if ".jar: " in line]
    # clients, three coordinators, metadata, raft, storage: each with definitions, and with other names at the most
    assert len(lines) == 7 and all(line.endswith(" 0 differences") for line in lines if not line.startswith("kafka-clients"))
    differing = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert differing and all("has different names: " in line for line in differing)
    assert sum(int(line.split(": ")[1].split()[0]) for line in lines) >= 280


def test_a_new_record_goes_to_its_topics_file(run, tmp_path):
    jars = tmp_path / "jars"
    jars.mkdir()
    with zipfile.ZipFile(jars / "kafka-group-coordinator-9.9.9.jar", "w") as jar:
        jar.writestr("org/apache/kafka/coordinator/group/Any.class", b"")
        for kind, suffix, flexible in (("key", "Key", "none"), ("value", "Value", "0+")):
            jar.writestr(f"common/message/TeaGroup{suffix}.json", NEW_RECORD % (kind, suffix, flexible))
    with zipfile.ZipFile(jars / "kafka-other-9.9.9.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", b"")
    done = run("schema", "import", jars, "-o", tmp_path / "schema")
    assert "TeaGroupKey: new, versions 0" in done.stdout and "1 schema files change" in done.stdout
    text = (tmp_path / "schema" / "embedded" / "consumer_offsets.kafka").read_text()
    assert "data TeaGroupKey key 99 versions 0 flex none on __consumer_offsets\n  GroupId string 0\n" in text
    assert "data OffsetCommitKey key 1" in text


def test_folders_without_definitions_and_broken_jars(run, tmp_path):
    empty = run("schema", "import", tmp_path)
    assert empty.returncode != 0 and "no kafka-*.jar with message definitions" in empty.stderr
    (tmp_path / "kafka-clients-1.jar").write_bytes(b"no zip")
    broken = run("schema", "import", tmp_path)
    assert broken.returncode != 0 and "cannot be read as a jar" in broken.stderr
