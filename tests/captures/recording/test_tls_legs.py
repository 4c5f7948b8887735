"""Recordings know which legs of a connection were TLS, and so do copies of them; findings report what was in clear."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.transform.cut import Cut, CutSelection
from barnabas.captures.transform.fields import RedactionKind
from barnabas.captures.transform.merge import Merge, MergeInput
from barnabas.captures.transform.pseudonyms import Pseudonyms
from barnabas.captures.transform.redact import Redaction
from barnabas.captures.transform.write import Writer
from barnabas.decoder import encode_request, encode_response
from barnabas.decoder.connection.events import Opened
from barnabas.decoder.schema import facts
from barnabas.decoder.wire.frame import Direction
from harness.wire import with_size

from ..event_words import findings_of

HANDSHAKE = facts.api_key("SaslHandshake")
MS, NOW = 1_000_000, 1_700_000_000_000_000_000
CLIENT, BROKER = ("10.0.0.5", 40_001), ("10.0.0.9", 9092)
BOTH = frozenset(("client", "broker"))


def login(
    folder: Path, tls: frozenset[str], mechanism: str = "PLAIN", client: tuple[str, int] = CLIENT, broker: tuple[str, int] = BROKER
) -> Path:
    """A recording of two segments; a SaslHandshake is in the second."""
    recorder = Recorder(folder)
    recorder.opened(1, NOW, client, broker, tls=tls)
    recorder.rotate()
    asked = encode_request(HANDSHAKE, 1, {"mechanism": mechanism}, correlation_id=1, client_id="shop")
    answer = encode_response(HANDSHAKE, 1, {"mechanisms": [mechanism]}, correlation_id=1)
    recorder.data(1, Direction.REQUEST, NOW + MS, with_size(asked))
    recorder.data(1, Direction.RESPONSE, NOW + 2 * MS, with_size(answer))
    recorder.closed(1, NOW + 3 * MS, "fin", "client")
    recorder.close()
    return folder


NEAR = ("127.0.0.1", 40_001)
CASES = [
    # tls, mechanism, client, what stands between (None: nothing is found), severity, in the remedy
    (BOTH, "PLAIN", CLIENT, None, "", ""),
    (BOTH, "SCRAM-SHA-256", CLIENT, None, "", ""),
    (BOTH, "OAUTHBEARER", CLIENT, None, "", ""),
    (frozenset(), "PLAIN", CLIENT, "", "medium", "security.protocol=SASL_SSL"),
    (frozenset(), "SCRAM-SHA-256", CLIENT, "", "low", "SASL_SSL"),
    (frozenset(), "PLAIN", NEAR, "", "medium", "SASL_SSL"),
    ({"broker"}, "PLAIN", CLIENT, "between the client and the proxy", "medium", "--tls-ca"),
    ({"broker"}, "OAUTHBEARER", NEAR, "between the client and the proxy, on one machine", "info", "--tls-ca"),
    ({"client"}, "PLAIN", CLIENT, "between the proxy and the broker", "medium", "--broker-tls"),
    ({"client"}, "SCRAM-SHA-512", CLIENT, "between the proxy and the broker", "low", "SASL_SSL"),
]


@pytest.mark.parametrize(("tls", "mechanism", "client", "between", "severity", "remedy"), CASES)
def test_findings_depend_on_the_legs_with_tls(
    tmp_path: Path, tls: frozenset[str], mechanism: str, client: tuple[str, int], between: str | None, severity: str, remedy: str
) -> None:
    found = findings_of(login(tmp_path / "r", frozenset(tls), mechanism, client), "credentials-in-clear")
    if between is None:
        assert found == []
        return
    (finding,) = found
    assert finding.seen.endswith(f"with {mechanism} without TLS" + (f" {between}" if between else ""))
    assert finding.severity == severity and remedy in finding.remedy
    assert finding.about["in_clear"] == [leg for leg in ("client", "broker") if leg not in tls]


def copied(path: Path, out: Path, make: Callable[[Path, Writer], None]) -> Path:
    writer = Writer(out)
    make(path, writer)
    writer.close()
    assert writer.faults == []
    return out


def cut(path: Path, writer: Writer) -> None:
    for event in Cut(path, CutSelection()).events():
        writer.write(event)


def merge(path: Path, writer: Writer) -> None:
    for source, event in Merge([MergeInput(path, 0), MergeInput(path, 5)]).events():
        writer.write(event, source)


def redact(path: Path, writer: Writer) -> None:
    with open_capture(path) as capture:
        redaction = Redaction(Pseudonyms(), RedactionKind)
        for event in capture.events():
            for each in redaction.feed(event):
                writer.write(each)


@pytest.mark.parametrize("make", [cut, merge, redact])
@pytest.mark.parametrize("tls", [BOTH, frozenset({"client"}), frozenset()])
def test_copies_keep_the_tls_legs(tmp_path: Path, make: Callable[[Path, Writer], None], tls: frozenset[str]) -> None:
    copy = copied(login(tmp_path / "r", tls), tmp_path / "copy", make)
    with open_capture(copy) as capture:
        opened = [each.tls for each in capture.events() if isinstance(each, Opened)]
        assert capture.verify() == []
    assert opened and set(opened) == {tls}


def test_each_segment_holds_the_tls_legs(tmp_path: Path) -> None:
    for segment in sorted(login(tmp_path / "r", BOTH).glob("*.pcapng")):
        with open_capture(segment) as capture:
            assert [each.tls for each in capture.events() if isinstance(each, Opened)] == [BOTH]
