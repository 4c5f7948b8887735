"""Captures without the names they had: nothing is left of these, and everything else is as it was."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.transform.fields import RedactionKind
from barnabas.captures.transform.redact import Redaction
from barnabas.captures.transform.verify import Verifier
from barnabas.decoder import Exchange, records
from barnabas.decoder.connection.events import Closed, Opened
from kafka.record import MemoryRecords
from traffic.packets import pcap_file, traffic
from traffic.planted_names import ADDRESS, CLIENT, GROUP, HOST, KEY, MEMBER, PLANTED, TOPIC, USER, VALUE

from ..event_words import findings_of, read_events

CAPTURES = Path(__file__).parents[2] / "decoder" / "findings" / "captures"
NAMES = sorted(path.name for path in CAPTURES.glob("*.pcapng"))
# Its alert stands behind the first 8 bytes of a stream that is no Kafka, and these are all that a redaction keeps.
EXCEPTIONS = {"security-tls-untrusted.pcapng": {"tls-handshake-failed"}}


def everything(path: Path) -> bytes:
    """All bytes of a recording, and what is compressed in it."""
    out = [file.read_bytes() for file in sorted(path.iterdir())]
    with open_capture(path) as capture:
        for exchange in capture.exchanges():
            out += [exchange.request or b"", exchange.response or b"", *map(bytes, inside(exchange))]
    return b"\n".join(out)


def inside(exchange: Exchange) -> list[bytes]:
    out = []
    for area in areas(exchange):
        for entry in records.batches(area):
            if not isinstance(entry, records.Partial):
                out += [part for r in entry.records() for part in (r.key, r.value) if part]
                out += [str(r.headers).encode() for r in entry.records()]
    return out


def areas(exchange: Exchange) -> list[bytes]:
    out = []
    if exchange.api == "Produce" and exchange.request_message:
        for topic in exchange.request_message.to_dict()["topic_data"]:
            out += [partition["records"] for partition in topic["partition_data"]]
    if exchange.api == "Fetch" and exchange.response_message:
        for topic in exchange.response_message.to_dict()["responses"]:
            out += [partition["records"] for partition in topic["partitions"]]
    return [area for area in out if area]


def forms(name: bytes) -> list[bytes]:
    encoded = [base64.b64encode(b"x" * i + name)[2 * (i > 0) : -4] for i in range(3)]
    return [name, name.hex().encode(), name.upper(), *(core for core in encoded if len(core) > 5)]


def test_nothing_that_was_planted_is_left(planted: Path, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    before = everything(planted)
    for name in PLANTED:
        assert name in before, name  # otherwise nothing is tested
    redact(planted, tmp_path / "out")
    after = everything(tmp_path / "out")
    for name in PLANTED:
        for form in forms(name):
            assert form not in after, (name, form)


def test_everything_decodes_as_before(planted: Path, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    redact(planted, tmp_path / "out")
    with open_capture(planted) as before, open_capture(tmp_path / "out") as after:
        assert after.verify() == []
        assert after.note is None
        for old, new in zip(before.rows(), after.rows(), strict=True):
            for name in (
                "time_ns",
                "latency_ns",
                "connection",
                "api_key",
                "api_version",
                "correlation_id",
                "error",
                "state",
            ):
                assert getattr(old, name) == getattr(new, name)
            assert (old.undecoded, old.surplus, old.changed, old.noted) == (
                new.undecoded, new.surplus, new.changed, new.noted
            )  # fmt: skip
            assert len(old.client_id or "") == len(new.client_id or "")
            if old.api not in ("Produce", "Fetch", "PushTelemetry"):
                assert (old.request_size, old.response_size) == (new.request_size, new.response_size), old.api
        rows = [(len(list(before.exchanges())), len(list(after.exchanges())))]
        assert rows == [(len(before.rows()), len(after.rows()))]
    ends = [(type(h), h.time_ns, getattr(h, "how", "")) for h in read_events(planted) if isinstance(h, Opened | Closed)]
    assert ends == [
        (type(h), h.time_ns, getattr(h, "how", "")) for h in read_events(tmp_path / "out") if isinstance(h, Opened | Closed)
    ]


def test_records_keep_what_is_around_them(planted: Path, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    redact(planted, tmp_path / "out")
    keys, values, count = set(), set(), 0
    with open_capture(planted) as before, open_capture(tmp_path / "out") as after:
        for old, new in zip(before.exchanges(), after.exchanges(), strict=True):
            for old_area, new_area in zip(areas(old), areas(new), strict=True):
                pairs = zip(records.batches(old_area), records.batches(new_area), strict=True)
                for entry, made in pairs:
                    assert type(entry) is type(made)
                    if isinstance(entry, records.Partial):
                        continue
                    assert made.crc_ok  # type: ignore[union-attr]
                    assert entry.codec == made.codec  # type: ignore[union-attr]
                    for a, b in zip(entry.records(), made.records(), strict=True):
                        assert (a.offset, a.timestamp, len(a.headers)) == (b.offset, b.timestamp, len(b.headers))
                        assert len(a.value or b"") == len(b.value or b"")
                        if a.key == KEY:
                            keys.add(b.key)
                            count += 1
                        if a.value == VALUE:
                            values.add(b.value)
                if isinstance(next(iter(records.batches(new_area))), records.Batch):
                    batch = MemoryRecords(new_area).next_batch()
                    assert batch is None or batch.validate_crc()
    assert len(keys) == len(values) == 1  # equal stays equal, in all magics and codecs
    assert count == 5 * 3 + 8 * 3


def test_one_name_is_replaced_alike_everywhere(planted: Path, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    redaction = redact(planted, tmp_path / "out")
    topic, group, member, user = map(redaction.pseudonyms.name, (TOPIC, GROUP, MEMBER, USER))
    with open_capture(tmp_path / "out") as capture:
        by_api: dict[str, Exchange] = {}
        for exchange in capture.exchanges():
            by_api.setdefault(exchange.api, exchange)
            assert exchange.client_id in (redaction.pseudonyms.name(CLIENT), None)
            assert exchange.client.startswith(redaction.pseudonyms.name(ADDRESS) + ":")
            assert exchange.broker == redaction.pseudonyms.name(HOST) + ":9092"
        join = by_api["JoinGroup"].to_dict()
        (payload,) = join["embedded"]["request"]
        assert payload["fields"]["topics"] == [topic]
        assert join["request"]["group_id"] == group
        assert join["response"]["members"][0]["member_id"] == member
        assert member.startswith(redaction.pseudonyms.name(CLIENT) + "-")
        produce = by_api["Produce"].to_dict()
        assert produce["response"]["responses"][0]["partition_responses"][0]["error_message"] == (
            f"User:{user} may not write to topic {topic}"
        )
        acls = by_api["DescribeAcls"].to_dict()["response"]["resources"][0]
        assert (acls["resource_name"], acls["acls"][0]["principal"]) == (topic, f"User:{user}")
        config = by_api["DescribeConfigs"].to_dict()["response"]["results"][0]["configs"][0]
        assert config["value"] == f"SSL://{redaction.pseudonyms.name(HOST)}:9093"
        notes = capture.exchange(1).marks.notes
        assert any(note.startswith(f"rule for {topic} ") for note in notes)
        offsets = next(
            entry
            for exchange in capture.exchanges()
            for entry in exchange.to_dict(values=True).get("embedded", {}).get("response", ())
            if entry["kind"] == "__consumer_offsets"
        )
        assert (offsets["fields"]["key"]["group"], offsets["fields"]["key"]["topic"]) == (group, topic)


def test_the_same_salt_gives_the_same_bytes(planted: Path, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    for name, salt in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        redact(planted, tmp_path / name, salt=salt)
    frames = []
    for name in "abc":
        with open_capture(tmp_path / name) as capture:
            frames.append([(e.request, e.response) for e in capture.exchanges()])
    assert frames[0] == frames[1] != frames[2]


@pytest.mark.parametrize("kind", RedactionKind)
def test_only_what_is_asked_for_is_replaced(
    kind: RedactionKind, planted: Path, redact: Callable[..., Redaction], tmp_path: Path
) -> None:
    redact(planted, tmp_path / "out", [kind])
    with open_capture(planted) as before, open_capture(tmp_path / "out") as after:
        produced = [next(e for e in capture.exchanges() if e.api == "Produce") for capture in (before, after)]
        (old,), (new,) = map(areas, produced)
        old_record, new_record = (next(next(records.batches(area)).records()) for area in (old, new))
        assert (old_record.key != new_record.key) == (kind is RedactionKind.KEYS)
        assert (old_record.value != new_record.value) == (kind is RedactionKind.VALUES)
        assert (old_record.headers != new_record.headers) == (kind is RedactionKind.HEADERS)
        a, b = (exchange.request_message for exchange in produced)
        assert a is not None and b is not None
        assert (a["topic_data[0].name"] != b["topic_data[0].name"]) == (kind is RedactionKind.TOPICS)
        assert (a["transactional_id"] != b["transactional_id"]) == (kind is RedactionKind.TRANSACTIONS)
        assert (produced[0].client_id != produced[1].client_id) == (kind is RedactionKind.CLIENTS)
        assert (produced[0].client != produced[1].client) == (kind is RedactionKind.HOSTS)
        assert not any(b"hunter2" in (e.request or b"") for e in after.exchanges())  # whatever was asked for


def test_tshark_sees_the_same_apis(
    planted: Path, redact: Callable[..., Redaction], tmp_path: Path, tshark: Callable[..., list[str]]
) -> None:
    redact(planted, tmp_path / "out")
    seen = []
    for path in (planted, tmp_path / "out"):
        (file,) = path.glob("*.pcapng")
        seen.append(
            tshark(file, "kafka", "-T", "fields", "-e", "kafka.api_key", "-e", "kafka.api_version", "-e", "tcp.dstport")
        )
        bad = tshark(file, "tcp.analysis.flags || ip.checksum.status == 0", "-o", "tcp.check_checksum:TRUE")
        assert bad == []
    assert seen[0] == seen[1]
    assert len(seen[0]) > 40


@pytest.mark.parametrize("how", ["as sent", "reordered", "lost", "late"])
def test_captures_of_others(how: str, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    foreign = pcap_file(tmp_path, traffic(5, how, host="93.184.216.%d"))
    redact(foreign, tmp_path / "out")
    with open_capture(foreign) as before, open_capture(tmp_path / "out") as after:
        columns = ("time_ns", "latency_ns", "api_key", "api_version", "correlation_id", "error", "state", "surplus")
        old, new = (
            sorted(str([getattr(row, name) for name in columns] + [row.undecoded]) for row in capture.rows())
            for capture in (before, after)
        )
        assert old == new
        assert len(old) > 50
    bytes_ = everything(tmp_path / "out")
    assert bytes([93, 184, 216]) not in bytes_
    assert b"93.184.216." not in bytes_
    assert b"tttttttt" not in bytes_


def findings(path: Path) -> set[str]:
    with open_capture(path) as capture:
        undecoded = sum(row.undecoded for row in capture.rows())
    return {finding.id for finding in findings_of(path)} | {f"{undecoded} undecoded"}


def _the_same_is_wrong(name: str, redact: Callable[..., Redaction], out: Path) -> None:
    redaction = redact(CAPTURES / name, out)
    assert findings(out) == findings(CAPTURES / name) - EXCEPTIONS.get(name, set())
    verifier = Verifier(redaction.pseudonyms.replaced, redaction.pseudonyms.contents, redaction.frames.kept)
    for file in out.iterdir():
        verifier.file(file)
    verifier.frames(out)
    assert verifier.verdict.left == {}


@pytest.mark.parametrize("name", NAMES[::15])
def test_the_same_is_found_wrong(name: str, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    _the_same_is_wrong(name, redact, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_same_is_found_wrong_in_all_captures(name: str, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    _the_same_is_wrong(name, redact, tmp_path / "out")


def test_a_fault_of_ours_lets_nothing_through(
    planted: Path, redact: Callable[..., Redaction], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, data: bytes) -> bytes:
        raise RuntimeError("a fault")

    monkeypatch.setattr("barnabas.captures.transform.pseudonyms.Pseudonyms.content", broken)
    redaction = redact(planted, tmp_path / "out")
    assert redaction.faults
    assert "RuntimeError" in redaction.faults[0]
    after = everything(tmp_path / "out")
    assert not [name for name in PLANTED if name in after]


def test_the_search_finds_what_is_left(planted: Path, redact: Callable[..., Redaction], tmp_path: Path) -> None:
    """Told of the originals, but given the capture as it was."""
    redaction = redact(planted, tmp_path / "out")
    verifier = Verifier(redaction.pseudonyms.replaced, redaction.pseudonyms.contents, redaction.frames.kept)
    for file in planted.iterdir():
        verifier.file(file)
    verifier.frames(planted)
    left = verifier.verdict.left
    for name in (TOPIC, GROUP, CLIENT, HOST, USER, MEMBER, ADDRESS, KEY.decode(), VALUE.decode()):
        assert left[name]["plain"] > 0


@pytest.mark.parametrize("form", ["plain", "base64", "hexadecimal"])
@pytest.mark.parametrize("front", range(4))
def test_the_search_knows_other_forms(form: str, front: int, tmp_path: Path) -> None:
    name = b"x" * front + b"payroll-berlin" + b"y" * front
    data = {"plain": name, "base64": base64.b64encode(name), "hexadecimal": name.hex().encode()}[form]
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 5000 + data + bytes(range(256)))
    verifier = Verifier({TOPIC: "kqxwzva-jjskdu"})
    verifier.file(path)
    assert verifier.verdict.left == {TOPIC: {form: 1}}


def test_names_that_are_words_of_kafkas_are_unsure() -> None:
    verifier = Verifier(
        {"consumer": "xxxxxxxx", "payroll": "yyyyyyy", "librdkafka": "zzzzzzzzzz"}, (), {"librdkafka 2"}
    )
    assert (verifier.verdict.searched, verifier.verdict.unsure) == (1, 2)
