"""Errors that users can meet: one line on stderr that says what to do, nothing on stdout, exit status 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from barnabas.captures.foreign import wireshark
from barnabas.errors import BarnabasError
from harness import commands
from harness.run.slices import slow

NOWHERE = "127.0.0.1:1"
PROXY = ("proxy", "--broker", NOWHERE, "--listen", "127.0.0.1:0")
REPLAY = ("replay", "recording", "--broker")
EXPORT = ("export", "recording")
HEX = ("decode", "--hex", "00", "--request")
SASL = ("--sasl-mechanism", "PLAIN", "--sasl-username", "a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # captures
        *(((*command, "nothing"), "nothing does not exist") for command in (
            ("decode",), ("ui",), ("findings",), ("versions",), ("index",), ("serve",), ("diff", "recording"),
            ("export",), ("replay", "--broker", NOWHERE, "--dry-run"),
        )),
        *(((*command, "notes.txt"), "notes.txt") for command in (("decode",), ("versions",), ("diff", "recording"))),
        *(((command, "empty"), "no .pcapng or .pcap file") for command in ("findings", "index")),
        (("decode",), "nothing to decode"),
        (("findings",), "which capture?"),
        (("findings", "x", "--only", "malformed-api-version-fallback"), "did you mean malformed-api-versions-fallback?"),
        (("findings", "x", "--exclude", "zzz"), "there is no detector zzz; see: barnabas findings --list"),
        (("findings", "x", "y", "--follow"), "--follow takes one capture"),
        (("compat", "recording", "--against", "0.10"), "did you mean 0.10.0 or 0.10.1"),
        (("compat", "recording", "--against", "4.0", "--html", "none/x.html"), "cannot be written"),
        (("serve", "recording", "--on-miss", "passthrough"), "--broker"),
        (("serve", "recording", "--timing", "never"), "--timing"),
        (("serve", "recording", "--records", "some"), "--records"),
        (("serve", "recording", "--listen", "nowhere"), "--listen"),
        ((*REPLAY, NOWHERE), "no connection to 127.0.0.1:1"),
        ((*REPLAY, "nonsense:port"), "--broker 'nonsense:port' is not HOST:PORT"),
        ((*REPLAY, NOWHERE, "--speed", "fast"), "--speed 'fast' is not 1x"),
        ((*REPLAY, NOWHERE, "--connections", "0"), "--connections '0'"),
        ((*REPLAY, NOWHERE, "--topic-map", "orders"), "--topic-map 'orders' is not A=B"),
        ((*REPLAY, NOWHERE, "--sasl-username", "u"), "need --sasl-mechanism"),
        (("export",), "which capture"),
        ((*EXPORT, "--columns", "apis"), "has no column 'apis'; it has: capture_id"),
        ((*EXPORT, "-t", "records", "--columns", "key"), "add --show-values"),
        ((*EXPORT, "-t", "happenings", "--filter", "err"), "it takes no filter"),
        ((*EXPORT, "-t", "errors", "--bodies"), "--bodies needs the table exchanges"),
        ((*EXPORT, "--as", "pytest"), "say which with --exchange N"),
        ((*EXPORT, "--exchange", "9"), "has 4 exchanges"),
        ((*EXPORT, "--exchange", "1", "--as", "csv"), "shows tables"),
        ((*EXPORT, "--exchange", "3", "--as", "pytest"), "nothing to assert on"),
        ((*EXPORT, "-o", "nowhere/x.csv"), "nowhere/x.csv cannot be written"),
        # the proxy
        (("proxy", "--broker", "nonsense:port"), "is not HOST:PORT"),
        (("proxy", "--broker", "kafka:99999"), "99999 is not a port; the highest port is 65535"),
        ((*PROXY, "--rules", "nothing.yaml"), "nothing.yaml"),
        ((*PROXY, "--record", "/dev/null/x"), "cannot record into"),
        (("proxy", "--config", "nothing.toml"), "nothing.toml cannot be read"),
        (("proxy", "--check"), "--config FILE"),
        ((*PROXY, "--allow-edit"), "--allow-edit needs --ui"),
        ((*PROXY, "--tls-cert", "x.pem"), "--tls-key"),
        ((*PROXY, "--broker-ca", "missing.pem"), "--broker-ca"),
        ((*PROXY, *SASL, "--sasl-password-file", "missing"), "cannot be read"),
        slow(((*PROXY, "--sni-suffix", "kafka.example"), "--tls-ca")),
        slow(((*PROXY, "--sasl-username", "alice"), "--sasl-mechanism")),
        slow(((*PROXY, *SASL), "--sasl-password-file")),
        slow(((*PROXY, "--sasl-mechanism", "GSSAPI"), "leave --sasl-mechanism out")),
        # the protocol
        (("feed", "--filter", "topic == a"), "a feed contains only summaries"),
        (("schema", "show", "Metdata"), "did you mean Metadata"),
        (("schema", "show", "Metadata", "99"), "has versions 0-13, not 99"),
        (("schema", "show", "999"), "no API has key 999"),
        (("schema", "import", "nothing.jar"), "nothing.jar cannot be read as a jar"),
        (("translate", "0.9.0", "4.33"), "unknown Kafka release '4.33'"),
        ((*HEX, "--response"), "one of --request and --response"),
        ((*HEX, "--filter", "err"), "--hex is one message"),
        ((*HEX, "--schema", "nothing.avsc"), "nothing.avsc"),
        ((*HEX, "--schema", "bad.avsc"), "bad.avsc"),
        ((*HEX, "--registry", "ftp://x"), "registry"),
        (("decode", "--hex", "0g", "--request"), "'g' is not a hexadecimal digit"),
        (("decode", "--hex", "000", "--request"), "odd number"),
        (("decode", "--hex", "00", "--response"), "give --api and --api-version"),
        (("encode", "{}"), "which API"),
        (("encode", "{}", "--api", "Metdata"), "did you mean Metadata"),
        (("encode", "[]", "--api", "Metadata"), "one JSON object"),
        (("encode", "{", "--api", "Metadata"), "not JSON"),
        (("encode", '{"topic": 1}', "--api", "Metadata"), "did you mean 'topics'"),
        (("encode", "{}", "--api", "Metadata", "--api-version", "99"), "version 99 is not known"),
    ],
)  # fmt: skip
def test_a_user_error_is_one_line_with_status_2(run, recording: Path, arguments: tuple[str, ...], message: str) -> None:
    folder = recording.parent
    (folder / "empty").mkdir()
    (folder / "bad.avsc").write_text("{")
    (folder / "notes.txt").write_text("these are not packets\n" * 10)
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == "", done
    assert message in done.stderr and done.stderr.startswith("barnabas: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("filter", "check"), ("filter", "try", ".", "--filter"), ("decode", ".", "--filter"), (*EXPORT, "--filter"),
        (*REPLAY, NOWHERE, "--filter"), ("findings", ".", "--filter"), ("ui", ".", "--filter"), ("feed", "--filter"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_filter_is_shown_with_a_caret(run, command: tuple[str, ...]) -> None:
    done = run(*command, "api == Prodce and err")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [
        "barnabas: no API is called 'Prodce', did you mean Produce?",
        "api == Prodce and err",
        "       ^^^^^^",
    ]


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("pyarrow", ("export", "recording", "--as", "parquet", "-o", "x.parquet"), "report"),
        ("pyarrow", ("report", "recording"), "report"),
        ("pyarrow", ("pipeline", "run", "recording", "--output", "tables", "--master", "none"), "report"),
        ("pyarrow", ("pipeline", "run", "recording", "--output", "tables"), "spark"),
        ("numpy", ("report", "recording"), "report"),
        ("duckdb", ("report", "recording"), "report"),
        ("pyspark", ("report", "recording", "--engine", "spark"), "spark"),
        ("pyspark", ("pipeline", "run", "recording", "--output", "tables"), "spark"),
        ("pyspark", ("pipeline", "stream", "recording", "--output", "tables"), "spark"),
        ("pandas", ("pipeline", "run", "recording", "--output", "tables", "--remote", f"sc://{NOWHERE}"), "connect"),
        ("fastavro", ("decode", "recording", "--json", "--schema", "good.avsc"), "values"),
        ("fastavro", ("ui", "recording", "--schema", "good.avsc"), "values"),
        ("google.protobuf", ("decode", "recording", "--json", "--schema", "good.desc"), "values"),
        ("cryptography", (*PROXY, "--tls-ca", "ca"), "tls"),
        ("nicegui", ("ui", "recording", "--web"), "web"),
        ("pyshark", ("crosscheck", "recording"), "tshark"),
        ("aiokafka", ("demo",), "demo"),
        ("confluent_kafka", ("demo",), "demo"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)  # fmt: skip
def test_a_missing_library_is_named_with_its_extra(
    recording: Path, monkeypatch: pytest.MonkeyPatch, missing: str, arguments: tuple[str, ...], extra: str
) -> None:
    monkeypatch.chdir(recording.parent)
    Path("good.avsc").write_text('"string"')
    Path("good.desc").write_bytes(b"\n\x05\n\x03a.p")
    wireshark._capture_class.cache_clear()  # made of pyshark, perhaps by a test before
    for name in [missing, *(name for name in sys.modules if name.startswith(f"{missing}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    refused = commands.here(*arguments).exception
    assert isinstance(refused, BarnabasError), refused
    assert f"pip install '.[{extra}]'" in str(refused) and missing.rpartition(".")[2].partition("_")[0] in str(refused).lower()
    assert "\n" not in str(refused)
    assert not Path("x.parquet").exists() and not Path("tables").exists()
