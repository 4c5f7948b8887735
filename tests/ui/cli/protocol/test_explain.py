"""``barnabas explain`` from outside."""

from __future__ import annotations

import json

import pytest


def test_an_error(run):
    done = run("explain", "NOT_LEADER_OR_FOLLOWER")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("NOT_LEADER_OR_FOLLOWER  (error 6, retriable)\n")
    for part in ("Causes", "What to do", "Returned by", "KIP-951", "NOT_LEADER_FOR_PARTITION"):
        assert part in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_an_api(run):
    done = run("explain", "Fetch")
    assert done.stdout.startswith("Fetch  (API 1, sent by clients, brokers and controllers)\n")
    assert "v0 since 0.8.0, v1 since 0.9.0" in done.stdout and "; gone in 4.0" in done.stdout
    assert "min_bytes are available, at most max_wait_ms" in " ".join(done.stdout.split())
    assert "    topic_id                                 uuid (v13+)\n" in done.stdout
    assert "FETCH_SESSION_ID_NOT_FOUND" in done.stdout and "KIP-227: fetch sessions" in done.stdout


def test_a_number_means_both(run):
    done = run("explain", "35")
    assert done.stdout.startswith("35 is the error code UNSUPPORTED_VERSION and the key of the API DescribeLogDirs.\n")
    assert run("explain", "-1").stdout.startswith("UNKNOWN_SERVER_ERROR  (error -1")


def test_a_kip_and_a_setting(run):
    assert run("explain", "kip-896").stdout.startswith("KIP-896  (removal of old versions, since Kafka 4.0)\n")
    done = run("explain", "session.timeout.ms")
    assert done.stdout.startswith("session.timeout.ms  (setting of consumer)\n") and "UNKNOWN_MEMBER_ID" in done.stdout


@pytest.mark.parametrize(
    ("word", "kind", "keys"),
    [
        (
            "UNSUPPORTED_VERSION",
            "error",
            {"code", "name", "retriable", "what", "every", "apis", "causes", "do", "kips"},
        ),
        ("Fetch", "api", {"key", "name", "purpose", "versions", "request", "response", "errors", "kips", "waits"}),
        ("KIP-848", "kip", {"number", "name", "title", "since", "what", "apis", "errors"}),
        ("enable.idempotence", "setting", {"name", "of", "today", "default", "what", "same", "wire", "errors"}),
        ("last_stable_offset", "field", {"name", "text", "places", "values"}),
    ],
)
def test_json(run, word: str, kind: str, keys: set[str]):
    done = json.loads(run("explain", word, "--json").stdout)
    assert done["word"] == word
    (found,) = done["found"]
    assert found["kind"] == kind and keys <= set(found)


def test_a_former_name_is_explained_with_todays(run):
    done = run("explain", "NOT_LEADER_FOR_PARTITION")
    assert done.stdout.splitlines()[0] == "NOT_LEADER_FOR_PARTITION (Kafka 0.8 to 2.5) is NOT_LEADER_OR_FOLLOWER today."
    assert "NOT_LEADER_OR_FOLLOWER  (error 6, retriable)" in done.stdout
    done = run("explain", "quota.producer.default")
    assert done.stdout.startswith("quota.producer.default  (setting of broker)\n") and "Removed in 3.0" in " ".join(done.stdout.split())
    done = run("explain", "request.required.acks")
    assert done.stdout.startswith("request.required.acks  (former setting of producer)\n") and "Today\n  acks\n" in done.stdout


def test_a_field(run):
    done = run("explain", "isolation_level")
    for part in ("isolation_level  (field of Fetch and ListOffsets)", "0 READ_UNCOMMITTED, 1 READ_COMMITTED", "Fetch request v4+: isolation_level"):
        assert part in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_unknown_words_get_suggestions(run):
    done = run("explain", "UNSUPORTED_VERSION")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "barnabas: unknown name UNSUPORTED_VERSION; did you mean UNSUPPORTED_VERSION?\n"
    )
    done = run("explain", "\x1b]52;xyzzy")
    assert done.returncode == 2 and "\x1b" not in done.stderr and "known: error names" in done.stderr


def test_unknown_options_are_refused(run):
    done = run("explain", "Fetch", "--jsno")
    assert done.returncode == 2
