"""The options of `barnabas proxy`: the settings made of them, and the errors for those that make no sense."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from barnabas.decoder import Exchange, ExchangeDone
from barnabas.plugins.versions.profile import Profile
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import FlightWanted
from barnabas.proxy.metrics import settings as metering
from barnabas.proxy.metrics.settings import MeterConfig, MeterSockets, store_token, stored_token
from barnabas.proxy.observers.flight_trigger import FlightTrigger
from barnabas.proxy.observers.settings import FlightConfig, RecordingConfig
from barnabas.proxy.processes.serialization import from_json, to_json
from barnabas.proxy.relay.limits import Limits
from barnabas.proxy.relay.negotiation.security import TlsConfig
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from barnabas.ui import times
from barnabas.ui.cli.common import amounts
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.proxy.options import (
    PASSWORD_VARIABLE,
    TOKEN_VARIABLE,
    FlightOptions,
    LimitOptions,
    MeterOptions,
    RecordingOptions,
    SaslOptions,
    VersionOptions,
    read_token,
    snaplen,
)
from barnabas.ui.cli.proxy.running import bootstrap_line, cap_advice, feed_advice

# --- TLS and SASL ------------------------------------------------------------------------------------------

CANARY = "canary-3Lm"


def test_the_password_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text(f" {CANARY} \n")
    monkeypatch.setenv(PASSWORD_VARIABLE, "from the environment")
    made = SaslOptions("plain", "alice").config()
    assert made is not None and (made.mechanism, made.secret) == ("PLAIN", "from the environment")
    assert PASSWORD_VARIABLE not in os.environ  # the proxy's processes do not inherit it
    made = SaslOptions("PLAIN", "alice", file).config()
    assert made is not None and made.secret == f" {CANARY} "
    assert CANARY not in repr(made)
    assert SaslOptions().config() is None
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Failure, match="not UTF-8 text"):
        SaslOptions("PLAIN", "alice", file).config()


def test_what_caps_take_away_is_said_at_the_start() -> None:
    versions = VersionsConfig(Profile.of("", {"Metadata": 9}))
    lines = cap_advice(ProxyConfig(upstream=("127.0.0.1", 9092), versions=versions))
    assert "capped as well: Produce up to v12: v13 needs Metadata v12, names topics by id (KIP-516)" in lines
    assert "capped as well: no ShareFetch: it needs Metadata v12, names topics by id (KIP-932)" in lines
    assert cap_advice(ProxyConfig(upstream=("127.0.0.1", 9092))) == []
    alone = VersionsConfig(Profile.of("", {"ListGroups": 4}))
    assert cap_advice(ProxyConfig(upstream=("127.0.0.1", 9092), versions=alone)) == []


def test_the_bootstrap_line_names_where_clients_connect() -> None:
    config = ProxyConfig(upstream=("kafka", 9092))
    assert bootstrap_line(config, ("127.0.0.1", 19092)) == "clients: bootstrap.servers=127.0.0.1:19092"
    config = replace(config, tls=TlsConfig(ca=Path("ca"), sni_suffix="Kafka.Example"))
    line = bootstrap_line(config, ("0.0.0.0", 19092))
    assert line.startswith("clients: bootstrap.servers=kafka.example:19092 ") and "broker-ID.kafka.example" in line


def test_what_turns_tls_on() -> None:
    assert not TlsConfig().clients and not TlsConfig().brokers
    assert TlsConfig(ca=Path("x")).clients and TlsConfig(certificate=Path("x")).clients
    assert TlsConfig(broker=True).brokers and TlsConfig(broker_ca=Path("x")).brokers
    assert TlsConfig(broker_insecure=True).brokers and TlsConfig(broker_name="x").brokers


# --- recordings and the flight recorder --------------------------------------------------------------------

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "seconds", "size"),
    [
        ("5m", 300, None), ("90s", 90, None), ("24h", 86400, None), ("7d", 604800, None), ("1.5h", 5400, None),
        ("512MB", None, 512_000_000), ("1GiB", None, GIB), ("5m,1GB", 300, 10**9), ("1GB, 5m", 300, 10**9),
    ],
)  # fmt: skip
def test_windows(text: str, seconds: float | None, size: int | None) -> None:
    assert amounts.window(text, "--flight-keep") == (seconds, size)


@pytest.mark.parametrize(
    "text", ["5", "", "5m,", "5m,6m", "1GB,2GB", "-5m", "0s", "5 weeks", "1e99h", "m", "5m,1GB,1h", "d"]
)
def test_no_windows(text: str) -> None:
    with pytest.raises(Failure, match="--flight-keep"):
        amounts.window(text, "--flight-keep")


def test_segments_follow_what_is_kept() -> None:
    assert RecordingOptions().config() == RecordingConfig()
    assert RecordingConfig().segment_bytes == 64 * MIB and RecordingConfig().segment_seconds == 3600
    assert not RecordingConfig().keep
    kept = RecordingOptions("", "", "10GB", "24h").config()
    assert (kept.keep.bytes, kept.keep.seconds) == (10**10, 86400)
    assert (kept.segment_bytes, kept.segment_seconds) == (64 * MIB, 3600)
    small = RecordingOptions("", "", "80MB", "80s").config()
    assert (small.segment_bytes, small.segment_seconds) == (10_000_000, 10)
    asked = RecordingOptions("1MiB", "2s", "80MB", "80s").config()
    assert (asked.segment_bytes, asked.segment_seconds) == (MIB, 2)
    assert RecordingConfig(**asdict(asked)) == asked


@pytest.mark.parametrize(
    ("rotate_size", "rotate_time", "keep_size", "keep_time", "message"),
    [
        ("8GB", "", "10GB", "", "less than two segments"),
        ("", "1h", "", "90m", "less than two segments"),
        ("1kB", "", "", "", "too small"),
        ("", "5ms", "", "", "too short"),
        ("", "", "100kB", "", "less than two segments"),
        ("10", "", "", "", "'10' is not a size"),
        ("", "10MB", "", "", "'10MB' is not a duration"),
        ("", "", "24h", "", "'24h' is not a size"),
    ],
)
def test_what_makes_no_sense(rotate_size: str, rotate_time: str, keep_size: str, keep_time: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        RecordingOptions(rotate_size, rotate_time, keep_size, keep_time).config()


def test_a_flight_recorder(tmp_path: Path) -> None:
    assert FlightOptions().config() is None
    plain = FlightOptions(tmp_path).config()
    assert plain == FlightConfig(tmp_path)
    assert plain is not None and plain.window == (300, GIB, 10) and plain.pause == 300 and not plain.wakes
    assert plain.ring.segment_seconds == 30 and plain.ring.keep == (plain.ring.keep.__class__(GIB, 300))
    full = FlightOptions(tmp_path, "512MB", "0s", ["err"], ["high", "odd-correlation-ids"], "1h", 3).config()
    assert full is not None and full.window == (None, 512_000_000, 0) and full.pause == 3600 and full.wakes
    assert full.ring.segment_bytes == 64_000_000 and full.ring.segment_seconds == 60
    assert from_json(FlightConfig, to_json(full)) == full


def test_filters_of_a_flight_recorder_read_times_as_they_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noon in Honolulu is evening in UTC."""
    monkeypatch.setenv("TZ", "Pacific/Honolulu")
    time.tzset()
    noon = Exchange(request=b"", api_key=12, request_time_ns=int(datetime(2026, 11, 21, 22, tzinfo=UTC).timestamp()) * 10**9)
    wanted: list[FlightWanted] = []
    try:
        for local in (False, True):
            times.use_local(local)
            flight = FlightOptions(tmp_path, flight_on=["time in 11:00..13:00"]).config()
            assert flight is not None
            zone = None if flight.local else UTC
            trigger = FlightTrigger(flight.filters, flight.findings, lambda event: wanted.append(event) is None, zone)
            trigger.hear(ExchangeDone(noon))
            assert len(wanted) == local
    finally:
        times.use_local(False)
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("", "", ["err =="], None, "", None), r"err =="),
        (("", "", None, ["no-such-finding"], "", None), "nor the id of a finding"),
        (("1s", "", None, None, "", None), "at least 2 seconds"),
        (("1kB", "", None, None, "", None), "at least 256 KiB"),
        (("", "2h", None, None, "", None), "to 1 hour"),
        (("", "", None, None, "", 0), "more than 0"),
    ],
)
def test_what_makes_no_flight_recorder(tmp_path: Path, given: tuple, message: str) -> None:
    with pytest.raises(Failure, match=message):
        FlightOptions(tmp_path, *given).config()


@pytest.mark.parametrize("place", range(6))
def test_options_without_a_flight_recorder(place: int) -> None:
    given: list = ["", "", None, None, "", None]
    given[place] = ["5m", "1s", ["err"], ["high"], "1m", 3][place]
    with pytest.raises(Failure, match="add --flight DIR"):
        FlightOptions(None, *given).config()


def test_snap_lengths() -> None:
    assert (snaplen(""), snaplen("4KiB"), snaplen("128"), snaplen("128KiB")) == (None, 4096, 128, 128 << 10)
    for wrong in ("127", "129KiB", "1MiB"):
        with pytest.raises(Failure, match=f"--snaplen {wrong}: give 128 bytes"):
            snaplen(wrong)


# --- feed and metrics ---------------------------------------------------------------------------------------

@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    return tmp_path / "barnabas"


def test_nothing_asked_for_is_no_meter() -> None:
    assert MeterOptions().config() is None


def test_what_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    given = MeterOptions("127.0.0.1:19095", tmp_path / "token", "[::1]:9400", ["topic"])
    assert given.config() == MeterConfig(("127.0.0.1", 19095), "secret", ("::1", 9400), ("topic",))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"metrics": "h:1", "metrics_by": ["group"]}, "give client or topic"),
        ({"metrics_by": ["topic"]}, "add --metrics HOST:PORT"),
        ({"feed_token_file": Path("x")}, "add --feed HOST:PORT"),
        ({"feed": "h:1", "feed_token_file": Path("/nowhere/token")}, "cannot be read: No such file"),
        ({"feed": "nonsense"}, "--feed 'nonsense' is not HOST:PORT"),
    ],
)
def test_what_makes_no_sense_of_metrics(given: dict[str, Any], text: str) -> None:
    with pytest.raises(Failure, match=text):
        MeterOptions(**given).config()


def test_a_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "from outside")
    config = MeterOptions("127.0.0.1:0").config()
    assert config is not None and config.feed_token == "from outside"
    (tmp_path / "empty").write_text(" \n")
    with pytest.raises(Failure, match="does not contain a token"):
        read_token(tmp_path / "empty")


def test_a_made_token_is_left_for_this_user_only(runtime: Path) -> None:
    config = MeterConfig(feed=("127.0.0.1", 0))
    meter = MeterSockets(config)
    assert meter.feed is not None
    message = feed_advice(meter, config)
    meter.close()
    path = runtime / f"feed-{meter.feed[1]}.token"
    assert message is not None and str(path) in message
    assert meter.feed_token not in message
    assert stored_token(meter.feed[1]) == meter.feed_token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert stored_token(1) is None


def test_a_given_token_is_not_left_anywhere(runtime: Path) -> None:
    config = MeterConfig(feed=("127.0.0.1", 0), feed_token="mine")
    meter = MeterSockets(config)
    message = feed_advice(meter, config)
    meter.close()
    assert message is not None and "mine" not in message
    assert not runtime.exists()
    assert feed_advice(None, None) is None


def test_a_folder_that_others_can_write_is_not_trusted(runtime: Path) -> None:
    runtime.mkdir()
    os.chmod(runtime, 0o777)
    assert store_token(5, "x") is None
    (runtime / "feed-5.token").write_text("planted")
    assert stored_token(5) is None
    os.chmod(runtime, 0o700)
    assert stored_token(5) == "planted"
    assert store_token(5, "ours") == metering.token_file(5)
    assert stored_token(5) == "ours"


def test_a_link_in_place_of_the_folder_is_not_followed(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    runtime.symlink_to(tmp_path / "elsewhere")
    assert store_token(5, "x") is None
    assert list((tmp_path / "elsewhere").iterdir()) == []


# --- versions -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("pretend", "cap", "message"),
    [
        ("0.10.9", [], "--pretend: unknown Kafka release '0.10.9', did you mean 0.10.2?"),
        ("", ["Fetch"], "--cap: 'Fetch' is not API=VERSION, such as Fetch=11"),
        ("0.9", ["CreateTopics=1"], "--cap: Kafka 0.9.0 has no CreateTopics: leave its cap out"),
    ],
)
def test_versions_that_cannot_be(pretend: str, cap: list[str], message: str) -> None:
    with pytest.raises(Failure) as raised:
        VersionOptions(cap, pretend).config()
    assert str(raised.value) == message


def test_versions() -> None:
    assert VersionOptions().config() is None
    assert VersionOptions(translate=True).config() == VersionsConfig(None, True)
    assert VersionOptions(["Fetch=11", "Produce=7"], "3.9").config() == VersionsConfig(
        Profile.of("3.9", {"Fetch": 11, "Produce": 7})
    )


def test_limits_have_the_defaults_of_the_proxy() -> None:
    assert LimitOptions().config() == Limits()
