"""Recorded traffic of the area "versions", told again as it was or a little differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from barnabas.captures import open_capture
from barnabas.decoder import Exchange, ExchangeDone, RequestSeen, facts
from barnabas.decoder.findings import Finding, Inspector
from barnabas.decoder.findings.contradictions import DETECTORS as CONTRADICTIONS
from barnabas.decoder.findings.features import DETECTORS as FEATURES
from barnabas.decoder.findings.versions import DETECTORS as VERSIONS
from barnabas.decoder.happening import Happening

CAPTURES = Path(__file__).parents[1] / "decoder" / "findings" / "captures"
SECOND = 1_000_000_000
IDS = [detector.id for detector in (*VERSIONS, *FEATURES, *CONTRADICTIONS)]
NAMES = sorted(path.stem.removeprefix("versions-") for path in CAPTURES.glob("versions-*.pcapng"))


def told(name: str) -> list[Happening]:
    """What happened in a recording; the exchanges are free to be changed, and nobody follows their connections."""
    with open_capture(CAPTURES / f"versions-{name}.pcapng") as capture:
        happenings = list(capture.happenings())
    copies: dict[int, Exchange] = {}
    return [
        type(h)(copies.setdefault(id(h.exchange), _copy(h.exchange)))
        if isinstance(h, RequestSeen | ExchangeDone)
        else h
        for h in happenings
    ]


def _copy(old: Exchange, **changes: Any) -> Exchange:
    names = (
        "connection client broker api_key api_version correlation_id client_id request request_time_ns response "
        "response_time_ns state topics"
    )
    new = Exchange(**{name: getattr(old, name) for name in names.split()} | changes)
    new.marks.update(old.marks)
    return new


def exchange_of(happening: Happening) -> Exchange | None:
    return happening.exchange if isinstance(happening, RequestSeen | ExchangeDone) else None


def without(happenings: Iterable[Happening], leave_out: Callable[[Exchange], bool]) -> list[Happening]:
    """The same without some exchanges."""
    return [h for h in happenings if (e := exchange_of(h)) is None or not leave_out(e)]


def answered(
    happenings: list[Happening], api: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> list[Happening]:
    """The same with the responses of an API changed: `change` is given the body, and gives the edits by path."""
    done: set[int] = set()
    for h in happenings:
        e = exchange_of(h)
        if e is None or e.api != api or e.response is None or id(e) in done:
            continue
        done.add(id(e))
        message = _copy(e).response_message
        assert message is not None
        e.response = message.replace(change(message.to_dict())).encode()
    return happenings


def offering(happenings: list[Happening], **ranges: tuple[int, int]) -> list[Happening]:
    """The same with brokers that offer other ranges."""
    keys = {facts.api_key(name): ends for name, ends in ranges.items()}

    def change(body: dict[str, Any]) -> dict[str, Any]:
        return {
            "api_keys": [
                api | dict(zip(("min_version", "max_version"), keys[api["api_key"]], strict=True))
                if api["api_key"] in keys
                else api
                for api in body["api_keys"]
            ]
        }

    return answered(happenings, "ApiVersions", change)


def changed(happenings: Iterable[Happening], kind: type[Any], **fields: Any) -> list[Happening]:
    """The same with other fields of the happenings of a kind."""
    return [replace(h, **fields) if isinstance(h, kind) else h for h in happenings]


def findings(happenings: Iterable[Happening], *ids: str) -> list[Finding]:
    """What these detectors find, all of the area by default; a detector that fails is among it."""
    inspector = Inspector(ids or IDS)
    for happening in happenings:
        inspector.feed(happening)
    inspector.findings()
    return inspector.findings()  # asked twice: nothing may be counted again


def one(happenings: Iterable[Happening], detector: str) -> Finding:
    """The only finding of a detector."""
    found = findings(happenings, detector)
    assert [f.id for f in found] == [detector]
    assert found[0].seen and found[0].why and found[0].remedy
    return found[0]
