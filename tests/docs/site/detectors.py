"""The page `docs/detectors.md`, made of the detectors' own ids, severities and titles.

    PYTHONPATH=tests python -m docs.site.detectors > docs/detectors.md         (make reference)
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.decoder.findings import detectors

HEAD = """\
# Detectors

What `barnabas findings` looks for, with the usual severity; [Findings](findings.md) explains how to use it. Made by `make reference`.
"""
SUBJECTS = {
    "versions": "Versions and features", "network": "Network and protocol", "security": "Authentication and permissions",
    "groups": "Consumer groups", "producing": "Producing", "fetching": "Fetching", "cluster": "Cluster and metadata",
}  # fmt: skip
"""Headings, by the folder of the detectors."""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for folder in SUBJECTS for line in _section(folder))])


def _section(folder: str) -> Iterator[str]:
    yield f"## {SUBJECTS[folder]}\n\n| id | usually | looks for |\n|---|---|---|"
    for kind in detectors():
        if kind.__module__.split(".")[-2] == folder:
            yield f"| `{kind.id}` | {kind.severity} | {kind.title} |"
    yield ""


if __name__ == "__main__":
    print(page(), end="")
