"""What is not as it must be in a pair's result; and findings that are right about a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matrix.pair import differences
from matrix.recording import OF_VERSION_0

REASONS = {
    "removed-in-kafka-4": ("sent", "That is so: these clients work with brokers before 4.0, and with later ones by translation."),
    "client-too-new": (
        "needs brokers of",
        "Their makers promise nothing for brokers so old; where the table has letters, it works all the same.",
    ),
    "closed-on-version": ("it serves", "So Kafka 4 answers versions that it dropped (KIP-896)."),
    "api-versions-ignored": (
        "had offered no version", "kafka-go asks for settings whatever the broker offers; it does so directly, too."
    ),
    "closed-without-answer": ("(DescribeConfigs)", "The broker does not know that API, and closes the connection."),
    "api-versions-fallback": ("refused ApiVersions v", "The client asks again at the same version instead of at version 0."),
    "unanswered-request": ("ApiVersions v", "Kafka 0.9 keeps silent where it is asked what it does not know."),
    "closed-on-first-request": ("ApiVersions v", "Kafka 0.8 closes the connection where it is asked what it does not know."),
    "undecodable-frame": (
        "Metadata v11 between client 'sarama-client'",
        "Kafka 0.9 does not have that version and answers all the same, in the bytes of version 0.",
    ),
    "corrupt-batch": ("format 2, and Produce v", "The client does so directly, too."),
}
"""By id of the finding: words that it must have, and why it is no fault of what stands between."""


def reason(finding: dict[str, Any]) -> str | None:
    """None where nobody has looked yet."""
    words, why = REASONS.get(finding["id"], ("", None))
    return why if words in finding["seen"] else None


def of(result: dict[str, Any]) -> Iterator[str]:
    """Another outcome than directly, and whatever the recordings show."""
    yield from differences(result["direct"], result["proxied"]["said"])
    sides = {"": result["proxied"], "translated, ": result["translated"]}
    for side, seen in ((side, seen) for side, seen in sides.items() if seen is not None):
        # sarama asks Kafka 0.9 in a version that it cannot know of: see `undecodable-frame`.
        yield from (f"{side}undecoded: {each}" for each in seen["undecoded"] if not each.endswith(OF_VERSION_0))
        yield from (f"{side}given the address {each}" for each in seen["astray"])
        if seen["lost"]:
            yield f"{side}the recording missed {seen['lost']}"
    for found in result["proxied"]["findings"]:
        if reason(found) is None:
            yield f"finding {found['id']}: {found['seen']}"
