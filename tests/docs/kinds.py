"""What each command of the documentation needs to be run, and which test runs those that need another environment."""

from __future__ import annotations

from docs.pages import Command

ELSEWHERE = {
    "transparent": "tests/real/proxying/test_transparent.py",
    "proxy --transparent": "tests/real/proxying/test_transparent.py",
    "import legs.pcap": "tests/real/proxying/test_keylog.py",
    "schema import .cache/broker": "tests/ui/cli/protocol/test_schema_import.py",
    "spark://": "tests/captures/spark/test_cluster.py",
    "sc://": "tests/captures/spark/test_connect.py",
    "s3://": "tests/captures/spark/output/test_stores.py",
}
"""The beginning of commands, or where they go, and the tests that do this: in network namespaces, with TLS, on a cluster."""


def elsewhere(command: Command) -> str:
    """The tests of what cannot be done here, or ""."""
    text = " ".join(command.words)
    if text.startswith("transparent") and "--dry-run" in command.words:
        return ""  # prints what it would do
    for words, tests in ELSEWHERE.items():
        if text.startswith(words) or (words.endswith("://") and words in text):
            return tests
    return ""


def kind(command: Command) -> str:
    """What it takes: `pattern` (nothing can be run), `elsewhere`, `broker` (a real one), `jar`, `spark`, `web`, `screen` (a
    terminal), `live` (a proxy that runs), `input`, or else `plain`."""
    words = command.words
    text = " ".join(words)
    if command.pattern or text.endswith("..."):
        return "pattern"
    if elsewhere(command):
        return "elsewhere"
    if (words[0] == "replay" and "--dry-run" not in words) or text.startswith("versions kafka-1"):
        return "broker"
    if "kafka-clients-X.jar" in words:
        return "jar"
    if words[0] == "pipeline" and "none" not in words and "--dry-run" not in words:
        return "spark"
    if "--web" in words:
        return "web"
    if words[0] == "ui" and "--plain" not in words and "--list-keys" not in words:
        return "screen"
    if words[0] in ("control", "feed") or words[:2] == ["audit", "--attach"]:
        return "live"
    return "input" if words[:2] == ["decode", "-"] else "plain"
