"""What is not as it must be in a pair's result; and findings that are right about a client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from matrix.pair import differences, worse
from matrix.recording import OF_VERSION_0

REASONS = {
    "removed-in-kafka-4": ("sent", "Correct: these clients work with brokers before 4.0, and with later ones through translation."),
    "client-gives-up": (
        "needs brokers of|nor does it offer InitProducerId",
        "Producers since Kafka 3.0 are idempotent by default, and need InitProducerId; other developers do not support "
        "such old brokers. Where the table has letters, the clients work.",
    ),
    "closed-on-version": ("it supports", "Kafka 4 does this for versions that it dropped (KIP-896)."),
    "api-versions-ignored": (
        "had offered no version", "kafka-go always requests settings, even without the proxy."
    ),
    "closed-without-answer": (r"\(DescribeConfigs\)", "The broker does not know that API."),
    "api-versions-fallback": ("refused ApiVersions v", "The client retries the same version instead of version 0."),
    "unanswered-request": ("ApiVersions v", "Kafka 0.9 does not answer unknown requests."),
    "closed-on-first-request": ("(ApiVersions|ListGroups) v", "Kafka 0.8 closes the connection on unknown requests."),
    "undecodable-frame": (
        "Metadata v11 response of broker",
        "Kafka 0.9 does not have that version and answers in version 0.",
    ),
    "corrupt-batch": ("format 2, but Produce v", "The client also does this without the proxy."),
}
"""By id of the finding: a regular expression that its words match, and why it is no fault of what stands between."""


def reason(finding: dict[str, Any]) -> str | None:
    """None where nobody has looked yet."""
    words, why = REASONS.get(finding["id"], ("", None))
    return why if re.search(words, finding["seen"]) else None


def of(result: dict[str, Any]) -> Iterator[str]:
    """Another outcome than directly, a worse one with translation, and whatever the recordings show."""
    yield from differences(result["direct"], result["proxied"]["said"])
    if result["translated"] is not None:
        said = result["translated"]["said"]
        yield from (f"{stage}: works directly, translated {said.get(stage, said.get('broken'))}" for stage in worse(result["direct"], said))
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
