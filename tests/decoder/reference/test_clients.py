"""Known client software and its sources."""

from __future__ import annotations

import pytest
from barnabas.decoder.reference import clients, releases


def test_every_fact_has_a_source_and_names_a_release():
    for client in clients.clients().values():
        for fact in (*client.works, *client.brokers):
            assert fact.source and clients.parse_version(fact.version), client.name
            assert releases.release(fact.release)
        assert all(note.source for note in client.notes)
        assert not client.wraps or client.wraps in clients.clients()


@pytest.mark.parametrize(
    ("name", "version", "client_id", "text"),
    [
        ("librdkafka", "2.3.0", "x", "librdkafka 2.3.0"),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", "x", "librdkafka 2.16.0"),
        ("confluent-kafka-go", "1.8.2", "x", "librdkafka 1.8.2"),
        ("apache-kafka-java", "4.1.0", "producer-1", "the Java client 4.1.0"),
        ("", "", "kafka-python-producer-1", "probably kafka-python"),
        ("", "", "producer-1", "probably the Java client"),
        ("", "", "my-service", None),
        ("", "", None, None),
        ("tea", "1", "rdkafka", None),
    ],
)
def test_clients_are_recognised(name, version, client_id, text):
    found = clients.software(name, version, client_id)
    assert (found and found.text) == text


def test_which_version_works_with_which_release():
    librdkafka, java = clients.clients()["librdkafka"], clients.clients()["apache-kafka-java"]
    assert librdkafka.needed_for("4.3").version == "1.8.2" and librdkafka.needed_for("3.9") is None
    assert java.oldest_broker("4.1.0").release == "2.1" and java.oldest_broker("3.9.1").release == "0.10.0"
    assert java.oldest_broker("0.9.0.1") is None and java.oldest_broker("unknown") is None


def test_versions_are_compared_by_number():
    assert clients.parse_version("v1.20.7") > clients.parse_version("1.9.2-rc1") == (1, 9, 2)
    assert clients.parse_version("(devel)") == ()


def test_errors_in_the_file_have_their_line():
    with pytest.raises(ValueError, match="line 2: '  likes tea' is not a fact"):
        clients.read("client x\n  likes tea\n")
