"""The table `findings`: what is wrong in a capture, and why, as `barnabas findings` tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...decoder import Exchange
from ...decoder.findings import Inspector
from ...decoder.happening import Happening
from .columns import Column, Table

TABLE = Table(
    "findings",
    "finding, the worst first",
    (
        Column("capture_id", "string", "the recording; of a folder that holds several, or of a foreign one, its name"),
        Column("id", "string", "the detector, such as `unsupported-version`"),
        Column("severity", "string", "`high`, `medium`, `low` or `info`"),
        Column("seen", "string", "what was seen"),
        Column("why", "string", "what makes it matter"),
        Column("remedy", "string", "what to do"),
        Column("count", "int64", "how often"),
        Column("first_ns", "int64", "nanoseconds since the epoch; null where no exchange belongs to it", null=True),
        Column("last_ns", "int64", "likewise", null=True),
        Column("about", "json", "what it concerns: client_id, software, broker, api, group, topic, partition ..."),
        Column("exchanges", "json", "up to 5 exchanges that show it"),
    ),
)


def rows(
    happenings: Iterable[Happening], capture_id: str, wanted: Callable[[Exchange], bool] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows; with `wanted`, the findings of which a linked exchange passes."""
    inspector = Inspector()
    for happening in happenings:
        inspector.feed(happening)
    yield from rows_of(inspector, capture_id, wanted)


def rows_of(
    inspector: Inspector, capture_id: str, wanted: Callable[[Exchange], bool] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of what an inspector has found."""
    for finding in inspector.findings():
        if wanted is None or any(map(wanted, finding.exchanges)):
            yield {"capture_id": capture_id, **finding.to_dict()}
